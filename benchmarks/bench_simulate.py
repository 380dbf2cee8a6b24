"""Requests simulated per second, SimPy events per request and peak memory: whole commands, tables written.

Run it by ``make bench``. Each case is a process of its own, start-up and writing included. Machines wander by a factor
of two, so every figure also stands as a ratio to a calibration loop (SimPy timeouts per second) timed beside it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import simpy

HERE = Path(__file__).resolve().parent
SCENARIO = HERE / "azure_hour.toml"
RESULT = HERE / "results" / "simulate.json"

#: name → overrides of azure_hour.toml
CASES: dict[str, tuple[str, ...]] = {
    "azure_hour_1_server": (),
    "azure_hour_8_servers": ("network.cells=8",),
}


@dataclass(frozen=True)
class Figure:
    """What one case measured."""

    case: str
    requests: int
    wall_s: float
    requests_per_s: float
    peak_mib: float
    events_per_request: float
    calibration_per_s: float  #: SimPy timeouts per second, timed just before
    requests_per_million_timeouts: float


def calibrate(count: int = 200_000) -> float:
    """Return SimPy timeouts per second of one process on this machine now."""

    def ticks(env: simpy.Environment):  # type: ignore[no-untyped-def]
        for _ in range(count):
            yield env.timeout(1.0)

    env = simpy.Environment()
    env.process(ticks(env))
    start = time.perf_counter()
    env.run()
    return count / (time.perf_counter() - start)


def measure(case: str, overrides: tuple[str, ...], runs: int) -> Figure:
    """Return the median run of a case by wall time."""
    figures = sorted((_once(case, overrides) for _ in range(runs)), key=lambda figure: figure.wall_s)
    return figures[len(figures) // 2]


def _once(case: str, overrides: tuple[str, ...]) -> Figure:
    speed = calibrate()
    with tempfile.TemporaryDirectory() as folder:
        sets = [part for override in overrides for part in ("--set", override)]
        command = [sys.executable, "-m", "balancesim", "run", str(SCENARIO), "--out", folder, *sets]
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        if status != 0:
            raise RuntimeError(f"{' '.join(command)} failed with status {os.waitstatus_to_exitcode(status)}")
        (manifest,) = Path(folder).glob("azure_hour/manifests/*/*/run.json")
        run = json.loads(manifest.read_text(encoding="utf-8"))
    requests = int(run["offered"])
    rate = requests / wall_s
    return Figure(
        case, requests, wall_s, rate, usage.ru_maxrss / 1024, run["events"] / requests, speed, 1e6 * rate / speed
    )


def main() -> None:
    """Measure all cases, print a table and write ``benchmarks/results/simulate.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each case; the median is printed")
    runs = parser.parse_args().runs
    print("case                   requests  wall s  requests/s  peak MiB  events/request  requests per 1e6 timeouts")  # noqa: T201
    figures = []
    for case, overrides in CASES.items():
        f = measure(case, overrides, runs)
        figures.append(asdict(f))
        print(  # noqa: T201
            f"{f.case:<22} {f.requests:>8,} {f.wall_s:>7.2f} {f.requests_per_s:>11,.0f} {f.peak_mib:>9.0f} "
            f"{f.events_per_request:>15.2f} {f.requests_per_million_timeouts:>26,.0f}"
        )
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"cases": figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
