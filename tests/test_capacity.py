"""The capacity estimate of `balancesim check`, by hand on a server whose memory counts tokens."""

from dataclasses import replace

import pytest

from balancesim.acceptance import Iid
from balancesim.capacity import MeanRequest, mode_capacity, modes_of, upload_times
from balancesim.core.gpu import GpuSpec
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from tests.edge import UNIT_LLM, StepLaw
from tests.scenario_files import changed

LAW = StepLaw(fixed_s=1.0, per_row_s=0.1, prefill_s=2.0)
WEIGHTS = UNIT_LLM.weight_bytes
SPEC = ServerSpec(
    gpu=GpuSpec("unit", 1.0, 1.0, 1.0),
    target=UNIT_LLM,
    target_law=LAW,
    usable_memory_bytes=2 * WEIGHTS + 220 * UNIT_LLM.kv_bytes_per_token,
    draft=UNIT_LLM,
    draft_law=LAW,
    draft_length=1,
)
#: 10 + 11 tokens: 10 steps after the first token
REQUEST = MeanRequest(prompt_tokens=10.0, output_tokens=11.0, acceptance_rate=1.0)


def test_autoregressive_capacity() -> None:
    """Alone 2 + 10·(1 + 0.1) = 13 s; room (220·kv + W)/(21·kv); in a batch of b 2 + 10·(1 + 0.1·b)/b."""
    found = mode_capacity(SPEC, Mode.AD, REQUEST, Iid())
    room = (220 * UNIT_LLM.kv_bytes_per_token + WEIGHTS) / (21 * UNIT_LLM.kv_bytes_per_token)
    batch = int(room)
    assert found.kv_room == pytest.approx(room)
    assert found.alone_s == pytest.approx(13.0)
    assert found.batched_s == pytest.approx(2 + 10 * (1 + 0.1 * batch) / batch)
    assert found.requests_per_s == pytest.approx(1 / found.batched_s)


def test_speculative_capacity() -> None:
    """α = 1, γ = 1: 2 tokens a round, 5 rounds of (1 + 0.1·b) + (1 + 0.2·b) s after two prefills; room 220/44."""
    found = mode_capacity(SPEC, Mode.SD, REQUEST, Iid())
    assert found.kv_room == pytest.approx(5.0)  # (10 + 11 + γ) tokens of both caches: 22·2 = 44 of 220
    assert found.alone_s == pytest.approx(4 + 5 * (1.1 + 1.2))
    assert found.batched_s == pytest.approx(4 + 5 * (1.5 + 2.0) / 5)


def test_a_server_without_room_serves_nobody() -> None:
    """Less than one mean request fits: no throughput, and no draft no speculative mode."""
    tight = replace(SPEC, usable_memory_bytes=WEIGHTS + 20 * UNIT_LLM.kv_bytes_per_token, draft=None, draft_law=None)
    found = mode_capacity(tight, Mode.AD, REQUEST, Iid())
    assert (found.kv_room < 1, found.requests_per_s) == (True, 0.0)
    assert modes_of(tight) == (Mode.AD,)
    assert modes_of(SPEC) == (Mode.AD, Mode.SD)


def test_upload_time_of_a_fixed_channel(tmp_path) -> None:
    """23 dBm − 100 dB over −174 + 5 + 60 dBm of noise is 32 dB: log2(1 + 10^3.2) = 10.631 bit/s/Hz on 1 MHz."""
    median, edge = upload_times(changed(tmp_path), 10.631e6)
    assert median.snr_db == pytest.approx(32.0, abs=1e-6)
    assert median.seconds == pytest.approx(1.0, rel=1e-4)
    assert edge.seconds == median.seconds


def test_upload_out_of_range_never_ends(tmp_path) -> None:
    """Below the first row of the CQI table nothing is carried."""
    scenario = changed(tmp_path, "radio.channel.loss_db=160", "radio.rate=cqi_table1")
    assert [time.seconds for time in upload_times(scenario, 1.0)] == [float("inf")] * 2
