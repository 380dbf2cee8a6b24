"""Energy: the power of a GPU, and what of a run's joules belongs to which request."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from balancesim import catalog
from balancesim.core.power import GpuPower, gpu_power
from balancesim.core.request import Outcome
from balancesim.metrics.energy import dynamic_j, request_energy_j
from balancesim.recorder import MemoryRecorder
from balancesim.scenario import load
from balancesim.simulate import run_world
from tests.result_folders import NEVER_IN, gpu_row, request_row
from tests.scenario_files import TINY, write
from tests.test_pipeline_scenario import HETNET


def frames(requests, spans):
    memory = MemoryRecorder()
    memory.requests, memory.gpu_spans = list(requests), list(spans)
    return memory.frame("requests"), memory.frame("gpu")


@pytest.mark.parametrize(("name", "idle_w"), [("A100-80 SXM", 62.0), ("RTX 3090", 17.5), ("H100 SXM", 0.155 * 700)])
def test_the_power_of_a_gpu(name, idle_w):
    """Idle as measured, else the A100's share; prefill at the data sheet's watts, decoding at 0.71 of them."""
    gpu = catalog.gpu(name)
    assert gpu_power(gpu) == GpuPower(idle_w, gpu.power_w, 0.71 * gpu.power_w)


def test_every_gpu_of_the_table_has_a_power():
    """No GPU of the catalog is without watts, and none idles at more than it decodes at."""
    for name in catalog.gpu_names():
        power = gpu_power(catalog.gpu(name))
        assert 0 < power.idle_w < power.decode_w < power.prefill_w


def test_bad_powers_are_refused():
    """A GPU without watts, and one that draws more while idle than while busy."""
    with pytest.raises(ValueError, match="gpu A10: power_w must be given"):
        gpu_power(replace(catalog.gpu("A10"), power_w=math.nan))
    with pytest.raises(ValueError, match="idle_w must be at least 0 and at most decode_w"):
        GpuPower(100.0, 200.0, 90.0)


def test_shares_by_hand():
    """Two requests in one lane, the second from the middle of the first's decoding; a third never came in.

    Powers: idle 10 W, prefill 110 W, decoding 60 W; 20 s in all. Request 0 is in from 0 to 8 s, 1 from 4 to 8 s.
    Spans: 0-2 s prefill (2 s · 100 W = 200 J), 2-8 s decoding (6 s · 50 W = 300 J, 50 W all the time). Above idle:
    request 0: 200 + 2·50 + 4·25 = 400 J, request 1: 4·25 = 100 J; idle 200 J as 4 : 1.
    """
    requests, gpu = frames(
        (
            request_row(0, 0.0, Outcome.COMPLETED, server_id=0, prefill_start_s=0.0, server_last_token_s=8.0),
            request_row(1, 1.0, Outcome.COMPLETED, server_id=0, prefill_start_s=4.0, server_last_token_s=8.0),
            request_row(2, 1.0, Outcome.REJECTED, server_id=0, **NEVER_IN),
        ),
        (gpu_row(0.0, 2.0, prefill_s=2.0, decode_s=0.0), gpu_row(2.0, 8.0, prefill_s=0.0, decode_s=6.0)),
    )
    energy_j = request_energy_j(requests, gpu, [GpuPower(10.0, 110.0, 60.0)], 20.0)
    assert energy_j.tolist() == pytest.approx([400 + 160, 100 + 40, 0])


def test_nobody_inside_gets_nothing():
    """Idle power of a run without work belongs to nobody."""
    requests, gpu = frames((request_row(0, 0.0, Outcome.EXPIRED, server_id=0, **NEVER_IN),), ())
    assert request_energy_j(requests, gpu, [GpuPower(10.0, 110.0, 60.0)], 20.0).tolist() == [0.0]


@pytest.mark.parametrize(
    ("text", "overrides", "label"),
    [
        (TINY, (), "balance"),
        (TINY, ("scheduling.discipline=static",), "balance"),
        (TINY, ("requests.arrivals.rate_hz=40", "run.drain_s=1"), "sd_only"),
        (TINY, ("requests.arrivals.rate_hz=40", "scheduling.abort_late=true"), "ad_only"),
        (HETNET, (), "pipelined_sd"),
    ],
    ids=["continuous", "static", "unfinished", "stopped", "pipeline"],
)
def test_the_joules_of_the_requests_are_those_of_the_gpus(tmp_path, text, overrides, label):
    """Conservation: Σ over requests = Σ over GPUs of idle power · time + work above idle; nobody gets less than 0."""
    scenario = load(write(tmp_path, text), overrides)
    memory = MemoryRecorder()
    summary = run_world(scenario, label, 0, memory).summary
    powers = [gpu_power(catalog.gpu(name)) for name in summary.gpus]
    assert len(powers) == summary.servers
    requests, gpu = memory.frame("requests"), memory.frame("gpu")
    energy_j = request_energy_j(requests, gpu, powers, summary.end_s)
    drawn_j = 0.0
    for server_id, power in enumerate(powers):
        spans = [row for row in memory.gpu_spans if row.server_id == server_id]
        prefill_s = math.fsum(row.prefill_s for row in spans)
        other_s = math.fsum(row.decode_s + row.draft_s + row.verify_s for row in spans)
        rest_s = summary.end_s - prefill_s - other_s
        assert rest_s >= -1e-9
        drawn_j += prefill_s * power.prefill_w + other_s * power.decode_w + rest_s * power.idle_w
    assert energy_j.sum() == pytest.approx(drawn_j, rel=1e-9)
    assert (energy_j >= 0).all()
    worked = requests["server_first_token_s"].notna().to_numpy()
    assert (energy_j[worked] > 0).all()
    assert (energy_j[requests["prefill_start_s"].isna().to_numpy()] == 0).all()


def test_nearly_all_work_has_an_owner(tmp_path):
    """The part above idle is split by time in the lane; what finds nobody is below one per cent."""
    scenario = load(write(tmp_path), ("requests.arrivals.rate_hz=40",))
    memory = MemoryRecorder()
    summary = run_world(scenario, "balance", 0, memory).summary
    powers = [GpuPower(0.0, 100.0, 100.0)] * summary.servers
    requests, gpu = memory.frame("requests"), memory.frame("gpu")
    alone = request_energy_j(requests, gpu.iloc[:0], powers, summary.end_s)
    assert alone.sum() == 0.0
    first = request_energy_j(requests, gpu, powers, summary.end_s)
    split = requests.groupby("server_id").apply(lambda rows: first[rows.index].sum())
    work = pd.Series(dynamic_j(gpu, powers)).groupby(gpu["server_id"]).sum()
    np.testing.assert_allclose(split[work.index], work, rtol=0.01)
