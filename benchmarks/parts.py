"""Where the time of one command goes, by part of the program: ``python -m benchmarks.parts run <scenario> …``.

A timer of processor time interrupts the command; each sample counts for the innermost frame that is SimPy's or the
project's, so that numpy's time counts for who called it. Prints the shares as JSON in the last line.
"""

import json
import runpy
import signal
import sys
from collections import Counter
from types import FrameType

#: Part → what its modules' names begin with, below ``balancesim.``; the first that fits counts.
PARTS: dict[str, tuple[str, ...]] = {
    "tables": ("recorder", "table_writer", "tables", "columns", "processes.visit", "processes.epoch_log", "manifest"),
    "policy": ("policies", "core.shares"),
    "problem and check": ("core.problem", "core.feasibility", "core.lane_models", "core.members", "core.memory",
                          "core.decision", "processes.waiting"),
    "lanes and GPU": ("processes.continuous", "processes.resident", "processes.gpu", "processes.kv_memory",
                      "core.service_curve", "core.slicing", "core.latency", "core.work", "latency_laws", "core.server"),
    "server": ("processes.server", "processes.discipline"),
    "radio": ("processes.cell", "processes.links", "processes.shared_link", "core.radio", "fading", "rate_laws"),
    "requests": ("processes.source", "workload", "arrivals", "lengths", "core.request", "predictors", "deadlines"),
}  # fmt: skip

_STARTED = "balancesim.simulate"


def part_of(frame: FrameType | None) -> str:
    """Return the part that a stack belongs to, from its innermost frame up; before the run begins it is start-up."""
    part, running = "", False
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        running |= module == _STARTED
        if not part and module.startswith("simpy."):
            part = "SimPy"
        elif not part and module.startswith("balancesim."):
            below = module.removeprefix("balancesim.")
            part = next((name for name, heads in PARTS.items() if below.startswith(heads)), "other")
        frame = frame.f_back
    return part if running and part else "start-up"


def main() -> None:
    """Run a command of balancesim under the timer."""
    samples: Counter[str] = Counter()

    def sample(_signal: int, frame: FrameType | None) -> None:
        samples[part_of(frame)] += 1

    sys.argv = ["balancesim", *sys.argv[1:]]
    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)
    try:
        runpy.run_module("balancesim", run_name="__main__")
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    total = sum(samples.values())
    print(json.dumps({name: count / total for name, count in samples.most_common()}))  # noqa: T201


if __name__ == "__main__":
    main()
