"""What the benchmark measures, held by counts that no machine's mood changes: events, calls, cases."""

import cProfile
import json
from pathlib import Path

import numpy as np
import pytest

import balancesim
from balancesim import scenario as scenarios
from balancesim.recorder import MemoryRecorder
from balancesim.simulate import run_world
from balancesim.streams import Streams
from benchmarks import bench_simulate as bench
from benchmarks.parts import PARTS


def run(rate_hz, horizon_s, *more):
    """Return what the Poisson scenario came to over a shorter horizon, and the function calls that it took."""
    overrides = [f"run.horizon_s={horizon_s}", f"requests.arrivals.rate_hz={rate_hz}", *more]
    loaded = scenarios.load(str(bench.HERE / "azure_poisson.toml"), overrides, [])
    calls = cProfile.Profile()
    calls.enable()
    result = run_world(loaded, loaded.policies[0].label, 0, MemoryRecorder())
    calls.disable()
    return result, sum(entry.callcount for entry in calls.getstats())


@pytest.mark.parametrize("rate_hz", [bench.RATE_HZ, bench.OVERLOAD_HZ])
def test_events_per_request_stay_few(rate_hz):
    """Jumps from change to change need at most seven events: arrival, upload, epoch, three changes, answer."""
    result, _ = run(rate_hz, 20.0)
    assert result.outcomes == {"completed": result.summary.offered}
    assert result.summary.events / result.summary.offered <= 7.0


def test_a_request_costs_the_same_however_many_wait():
    """In overload four times as many requests take four times as many calls: no step looks at the whole queue.

    Memory for a dozen requests, so that the queue is there from the first seconds on.
    """
    small = "server.reserve_gib=50"
    (short, few), (long, many) = (run(bench.OVERLOAD_HZ, horizon_s, small) for horizon_s in (8.0, 32.0))
    assert long.summary.offered > 3.5 * short.summary.offered
    assert many / long.summary.offered <= 1.05 * few / short.summary.offered


def test_the_azure_hour_is_the_whole_trace():
    """The benchmark's horizon covers the last of the 19,366 requests."""
    loaded = scenarios.load(str(bench.HERE / "azure_hour.toml"), [], [])
    columns = loaded.workload.columns(Streams(1, 0), np.arange(100))
    assert sum(len(chunk) for chunk in columns) == 19_366


def test_growth_exponent_is_one_for_equal_time_a_request():
    """Ten times the requests in ten times the (calibrated) time: exponent 1; in a hundred times: 2."""

    def figure(requests, wall_s, speed):
        return bench.Figure("", requests, wall_s, requests / wall_s, wall_s, 1.0, 1.0, speed, 1.0)

    assert bench.growth_exponent([figure(100, 1.0, 1e6), figure(1000, 10.0, 1e6)]) == pytest.approx(1.0)
    assert bench.growth_exponent([figure(100, 1.0, 1e6), figure(1000, 50.0, 2e6)]) == pytest.approx(2.0)


def test_the_results_file_has_what_readers_expect():
    """`benchmarks/results/simulate.json` keeps the keys that others read."""
    result = json.loads(bench.RESULT.read_text(encoding="utf-8"))
    keys = {"case", "requests", "wall_s", "requests_per_s", "peak_mib", "events_per_request"}
    assert all(keys <= set(case) for case in result["cases"])
    assert {"growth_exponent", "overload_growth_exponent"} <= set(result)


def test_every_module_of_a_part_exists():
    """The table of parts names modules that are there."""
    root = Path(balancesim.__file__).parent
    for heads in PARTS.values():
        for head in heads:
            assert list(root.glob(head.replace(".", "/") + "*")), head
