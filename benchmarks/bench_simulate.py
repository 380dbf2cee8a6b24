"""Requests per second, SimPy events per request, peak memory, growth and parts: whole commands, tables written.

Run it by ``make bench`` (``ARGS=--million`` adds a million requests, ``ARGS="--runs 5"`` more runs of each case). Each
run is a process of its own, start-up and writing included. Machines wander by a factor of two, so every figure also
stands as a ratio to a calibration loop (SimPy timeouts per second) timed right before and after it.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import simpy

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "simulate.json"

RATE_HZ = 15.5  #: 70 % of the capacity of the server of azure_poisson.toml
OVERLOAD_HZ = 44.2  #: twice the capacity


@dataclass(frozen=True)
class Case:
    """One command to measure: a scenario of this folder and its overrides."""

    name: str
    scenario: str
    overrides: tuple[str, ...] = ()
    workers: int = 1


def poisson(name: str, requests: int, rate_hz: float) -> Case:
    """Return a case with about so many Poisson arrivals."""
    overrides = (f"requests.arrivals.rate_hz={rate_hz}", f"run.horizon_s={requests / rate_hz:.0f}")
    return Case(name, "azure_poisson", overrides)


NORMAL = (poisson("poisson_10k", 10_000, RATE_HZ), poisson("poisson_100k", 100_000, RATE_HZ))
MILLION = poisson("poisson_1m", 1_000_000, RATE_HZ)
OVERLOAD = (poisson("overload_10k", 10_000, OVERLOAD_HZ), poisson("overload_100k", 100_000, OVERLOAD_HZ))
HOURS = (Case("azure_hour_1_server", "azure_hour"), Case("azure_hour_8_servers", "azure_hour", ("network.cells=8",)))


@dataclass(frozen=True)
class Figure:
    """What one case measured."""

    case: str
    requests: int
    wall_s: float
    requests_per_s: float
    cpu_s: float  #: processor time of the command, its threads included
    peak_mib: float
    events_per_request: float
    calibration_per_s: float  #: SimPy timeouts per second, timed just before and after
    requests_per_million_timeouts: float

    @property
    def wall_timeouts(self) -> float:
        """Wall time in timeouts of the calibration loop: free of the machine's mood."""
        return self.wall_s * self.calibration_per_s


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


def measure(case: Case, runs: int) -> Figure:
    """Return the median run of a case by requests per calibration timeout."""
    figures = sorted((_once(case) for _ in range(runs)), key=lambda figure: figure.requests_per_million_timeouts)
    return figures[len(figures) // 2]


def command(case: Case, folder: str) -> list[str]:
    """Return the command line of a case."""
    sets = [part for override in case.overrides for part in ("--set", override)]
    scenario = str(HERE / f"{case.scenario}.toml")
    workers = ["--workers", str(case.workers)]
    return [sys.executable, "-m", "balancesim", "run", scenario, "--out", folder, *workers, *sets]


def _once(case: Case) -> Figure:
    before = calibrate()
    with tempfile.TemporaryDirectory() as folder:
        words = command(case, folder)
        start = time.perf_counter()
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        if status != 0:
            raise RuntimeError(f"{' '.join(words)} failed with status {os.waitstatus_to_exitcode(status)}")
        manifests = Path(folder).glob(f"{case.scenario}/manifests/*/*/run.json")
        runs = [json.loads(manifest.read_text(encoding="utf-8")) for manifest in manifests]
    requests, events = (sum(int(run[key]) for run in runs) for key in ("offered", "events"))
    speed = 0.5 * (before + calibrate())
    return Figure(
        case=case.name,
        requests=requests,
        wall_s=wall_s,
        requests_per_s=requests / wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss / 1024,
        events_per_request=events / requests,
        calibration_per_s=speed,
        requests_per_million_timeouts=1e6 * requests / wall_s / speed,
    )


def growth_exponent(figures: Sequence[Figure], time: str = "wall_timeouts") -> float:
    """Return the exponent b of time ∝ requests^b between the smallest and the largest case; of wall time, calibrated,
    or of another field, as ``cpu_s`` where other programs share the machine."""
    first, last = figures[0], figures[-1]
    ratio: float = getattr(last, time) / getattr(first, time)
    return math.log(ratio) / math.log(last.requests / first.requests)


def sweep_speedup(runs: int) -> float:
    """Return how much faster four replications of 50,000 requests are done by two workers than by one; the median."""
    ratios = []
    for _ in range(runs):
        alone, both = (_once(_sweep(workers)) for workers in (1, 2))
        ratios.append(alone.wall_s / both.wall_s)
    return sorted(ratios)[len(ratios) // 2]


def _sweep(workers: int) -> Case:
    case = poisson(f"sweep_{workers}_workers", 50_000, RATE_HZ)
    return Case(case.name, case.scenario, (*case.overrides, "run.replications=4"), workers)


def parts() -> dict[str, float]:
    """Return the share of time of every part of the program in one case, by sampling."""
    with tempfile.TemporaryDirectory() as folder:
        words = command(NORMAL[0], folder)[3:]
        output = subprocess.run(
            [sys.executable, "-m", "benchmarks.parts", *words], check=True, capture_output=True, text=True
        ).stdout
    shares: dict[str, float] = json.loads(output.splitlines()[-1])
    return shares


def _print(figure: Figure) -> None:
    print(  # noqa: T201
        f"{figure.case:<22} {figure.requests:>9,} {figure.wall_s:>7.2f} {figure.requests_per_s:>11,.0f} "
        f"{figure.cpu_s:>6.1f} {figure.peak_mib:>9.0f} {figure.events_per_request:>15.2f} "
        f"{figure.requests_per_million_timeouts:>26,.0f}",
        flush=True,
    )


def main() -> None:
    """Measure all cases, print a table and write ``benchmarks/results/simulate.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each case; the median is printed")
    parser.add_argument("--million", action="store_true", help="also a million requests, once")
    options = parser.parse_args()
    print(  # noqa: T201
        "case                    requests  wall s  requests/s  cpu s  peak MiB  events/request  "
        "requests per 1e6 timeouts"
    )
    figures: dict[str, Figure] = {}
    for case in (*NORMAL, *OVERLOAD, *HOURS, *((MILLION,) if options.million else ())):
        figures[case.name] = measure(case, 1 if case is MILLION else options.runs)
        _print(figures[case.name])
    normal = [figures[case.name] for case in (*NORMAL, MILLION) if case.name in figures]
    overload = [figures[case.name] for case in OVERLOAD]
    result = {
        "cases": [asdict(figure) for figure in figures.values()],
        "growth_exponent": growth_exponent(normal),
        "overload_growth_exponent": growth_exponent(overload),
        "growth_exponent_cpu": growth_exponent(normal, "cpu_s"),
        "overload_growth_exponent_cpu": growth_exponent(overload, "cpu_s"),
        #: time per request in overload over that at 70 % of capacity, 100,000 requests each
        "overload_time_ratio": normal[1].requests_per_million_timeouts / overload[1].requests_per_million_timeouts,
        "sweep_speedup": sweep_speedup(options.runs),
        "parts": parts(),
    }
    for name, value in result.items():
        if isinstance(value, float):
            print(f"{name:<28} {value:.3f}")  # noqa: T201
    print("share of time  " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in result["parts"].items()))  # type: ignore[attr-defined]  # noqa: T201
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
