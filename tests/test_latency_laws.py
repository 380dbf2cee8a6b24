"""Cost laws: hand-computed values, limits, monotonicity, scalar = array."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim import catalog
from balancesim.core.work import (
    ForwardPass,
    LatencyLaw,
    Phase,
    decode_pass,
    pass_flops,
    prefill_pass,
    verify_pass,
)
from balancesim.latency_laws import LATENCY_LAWS, Affine, Flops, Roofline

LLAMA = catalog.llm("Llama-2-7B")
RTX_4090 = catalog.gpu("RTX 4090")
JETSON = catalog.gpu("Jetson AGX Orin 64GB")
LAWS: tuple[LatencyLaw, ...] = (
    Flops(prefill_s_per_flop=1e-14, decode_s_per_flop=9e-13, verify_s_per_flop=2e-13),
    Affine(s_per_flop=1e-14, fixed_s=0.0137),
    Roofline(launch_s=1e-4),
    Roofline(launch_s=0.0, bandwidth_efficiency=1.0, compute_efficiency=1.0),
)
#: one more row, pair, cached token or head row must never make a pass cheaper
SUMS = ("new_tokens", "attention_pairs", "kv_tokens", "head_rows")

counts = st.floats(0, 1e6)
passes = st.builds(
    ForwardPass,
    sequences=counts,
    new_tokens=counts,
    attention_pairs=st.floats(0, 1e10),
    kv_tokens=counts,
    head_rows=counts,
)
laws = st.sampled_from(LAWS)
phases = st.sampled_from(list(Phase))


def test_every_law_is_exercised() -> None:
    """The laws under test are the listed ones."""
    assert {type(law) for law in LAWS} == {Flops, Affine, Roofline}
    assert {Flops, Affine, Roofline} <= set(LATENCY_LAWS)


def test_flops_law_by_hand() -> None:
    """κ of the phase times FLOPs: one row at context 0 of Llama-2-7B has 12,952,010,752 + 262,144,000 FLOPs."""
    work = decode_pass(1.0, 0.0)
    flops = 32 * (8 * 4096**2 + 6 * 4096 * 11008) + 2 * 4096 * 32_000
    assert flops == 12_952_010_752 + 262_144_000
    law = Flops(prefill_s_per_flop=1e-14, decode_s_per_flop=2e-12, verify_s_per_flop=3e-13)
    for phase, coefficient in ((Phase.PREFILL, 1e-14), (Phase.DECODE, 2e-12), (Phase.VERIFY, 3e-13)):
        assert law.forward_s(LLAMA, RTX_4090, phase, work) == pytest.approx(coefficient * flops)


def test_affine_law_by_hand() -> None:
    """T = c1·F·b + c2: twice the batch at context 0 costs c1·F more."""
    law = Affine(s_per_flop=1e-14, fixed_s=0.01)
    flops = 13_214_154_752
    assert law.forward_s(LLAMA, RTX_4090, Phase.DECODE, decode_pass(1.0, 0.0)) == pytest.approx(0.01 + 1e-14 * flops)
    assert law.forward_s(LLAMA, RTX_4090, Phase.DECODE, decode_pass(2.0, 0.0)) == pytest.approx(0.01 + 2e-14 * flops)


def test_roofline_reads_the_weights_at_batch_one() -> None:
    """Whole weights over 1,008 GB/s are 13.37 ms; without the input embeddings (0.262 GB) a pass takes 13.11 ms."""
    law = Roofline(launch_s=0.0, bandwidth_efficiency=1.0, compute_efficiency=1.0)
    assert LLAMA.weight_bytes / 1008e9 == pytest.approx(13.4e-3, abs=0.05e-3)
    time_s = law.forward_s(LLAMA, RTX_4090, Phase.DECODE, decode_pass(1.0, 0.0))
    assert time_s == pytest.approx((13_476_831_232 - 262_144_000) / 1008e9)
    assert time_s == pytest.approx(13.11e-3, abs=0.005e-3)


def test_roofline_reads_the_cache_once() -> None:
    """8 requests at context 1,000 add 8,000 · 524,288 B / 1,008 GB/s = 4.161 ms to the weights' time."""
    law = Roofline(launch_s=0.0, bandwidth_efficiency=1.0, compute_efficiency=1.0)
    empty, full = (law.forward_s(LLAMA, RTX_4090, Phase.DECODE, decode_pass(8.0, c)) for c in (0.0, 8000.0))
    assert full - empty == pytest.approx(4.161e-3, abs=1e-6)


def test_roofline_is_compute_bound_in_prefill() -> None:
    """2,048 tokens: 2048·12.952e9 + 2048²·32·4·4096 + 0.262e9 FLOPs over 165.2 TFLOPS · 0.95, plus the launch time."""
    flops = 2048 * 12_952_010_752 + 2048**2 * 524_288 + 262_144_000
    time_s = Roofline(launch_s=1e-3).forward_s(LLAMA, RTX_4090, Phase.PREFILL, prefill_pass(2048.0, 2048.0**2, 1.0))
    assert time_s == pytest.approx(flops / (165.2e12 * 0.95) + 1e-3)


def test_roofline_meets_the_measured_profile() -> None:
    """RTX 4090, Llama-3.1-8B: 32 layers and head at one token take 15.3 + 1.1 ms measured; 181 ms at 2,048 tokens."""
    llama, law = catalog.llm("Llama-3.1-8B"), Roofline(launch_s=0.0)
    assert law.forward_s(llama, RTX_4090, Phase.DECODE, decode_pass(1.0, 0.0)) == pytest.approx(16.4e-3, rel=0.03)
    dense = ForwardPass(1.0, 2048.0, 0.0, 0.0, 0.0)
    assert law.forward_s(llama, RTX_4090, Phase.PREFILL, dense) == pytest.approx(181e-3, rel=0.03)


def test_roofline_options_override_the_table() -> None:
    """A given efficiency replaces the measured one; half the bandwidth takes twice the time."""
    work = decode_pass(1.0, 100.0)
    half, whole = (
        Roofline(launch_s=0.0, bandwidth_efficiency=share).forward_s(LLAMA, RTX_4090, Phase.DECODE, work)
        for share in (0.5, 1.0)
    )
    assert half == pytest.approx(2 * whole)


def test_number_formats_speed_up_reading_only() -> None:
    """int4 weights take a quarter of the read time at batch 1 and leave a compute-bound prefill as it is."""
    law, int4 = Roofline(launch_s=0.0), catalog.llm("Llama-2-7B", weights="int4")
    one = decode_pass(1.0, 0.0)
    assert law.forward_s(int4, RTX_4090, Phase.DECODE, one) == pytest.approx(
        law.forward_s(LLAMA, RTX_4090, Phase.DECODE, one) / 4
    )
    prefill = prefill_pass(2048.0, 2048.0**2, 1.0)
    fp16_s, int4_s = (law.forward_s(llm, RTX_4090, Phase.PREFILL, prefill) for llm in (LLAMA, int4))
    assert fp16_s == int4_s


@pytest.mark.parametrize(
    ("options", "field"),
    [({"compute_efficiency": 0.5}, "bandwidth_efficiency"), ({"bandwidth_efficiency": 0.5}, "compute_efficiency")],
)
def test_roofline_needs_both_efficiencies(options: dict[str, float], field: str) -> None:
    """A GPU without measured efficiencies needs both options; the error names the missing one and the GPU."""
    with pytest.raises(ValueError, match=f"^{field} must be given for Jetson AGX Orin 64GB"):
        Roofline(launch_s=0.0, **options).forward_s(LLAMA, JETSON, Phase.DECODE, decode_pass(1.0, 1.0))


@pytest.mark.parametrize(
    ("law", "options", "message"),
    [
        (Flops, {"prefill_s_per_flop": 0.0, "decode_s_per_flop": 1.0, "verify_s_per_flop": 1.0}, "prefill_s_per_flop"),
        (Flops, {"prefill_s_per_flop": 1.0, "decode_s_per_flop": float("nan"), "verify_s_per_flop": 1}, "decode_s_"),
        (Flops, {"prefill_s_per_flop": 1.0, "decode_s_per_flop": 1.0, "verify_s_per_flop": -1.0}, "verify_s_per_flop"),
        (Affine, {"s_per_flop": float("inf"), "fixed_s": 0.0}, "s_per_flop must be positive and finite, got inf"),
        (Affine, {"s_per_flop": 1.0, "fixed_s": -1.0}, "fixed_s must be finite and at least 0, got -1.0"),
        (Roofline, {"launch_s": -1.0}, "launch_s must be finite and at least 0, got -1.0"),
        (Roofline, {"launch_s": 0.0, "bandwidth_efficiency": 1.5}, "bandwidth_efficiency must be above 0 and at most"),
        (Roofline, {"launch_s": 0.0, "compute_efficiency": 0.0}, "compute_efficiency must be above 0 and at most 1"),
    ],
)
def test_wrong_options_are_refused(law: Any, options: dict[str, float], message: str) -> None:
    """A wrong option is refused with its name, rule and value."""
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        law(**options)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).name)
def test_verification_without_drafts_is_a_decode_step(law: LatencyLaw) -> None:
    """γ = 0: the pass, and under a law without a κ for each phase the time, equal a decode step's."""
    verify, decode = verify_pass(4.0, 1000.0, 0), decode_pass(4.0, 1000.0)
    assert verify == decode
    assert law.forward_s(LLAMA, RTX_4090, Phase.VERIFY, verify) == law.forward_s(LLAMA, RTX_4090, Phase.VERIFY, decode)
    if not isinstance(law, Flops):
        assert law.forward_s(LLAMA, RTX_4090, Phase.VERIFY, verify) == law.forward_s(
            LLAMA, RTX_4090, Phase.DECODE, decode
        )


def test_verification_sums_rows_at_their_own_contexts() -> None:
    """γ + 1 rows at c, c+1, …, c+γ have the FLOPs of γ + 1 decode steps at these contexts."""
    steps = sum(pass_flops(LLAMA, decode_pass(3.0, 300.0 + 3 * j)) for j in range(5))
    assert pass_flops(LLAMA, verify_pass(3.0, 300.0, 4)) == pytest.approx(steps)


@given(laws, phases, passes, st.sampled_from(SUMS), st.floats(0, 1e6))
def test_time_never_falls_when_work_rises(
    law: LatencyLaw, phase: Phase, work: ForwardPass, field: str, more: float
) -> None:
    """A law is monotone in every sum of the pass."""
    larger = dataclasses.replace(work, **{field: getattr(work, field) + more})
    assert law.forward_s(LLAMA, RTX_4090, phase, work) <= law.forward_s(LLAMA, RTX_4090, phase, larger)


@given(laws, phases, st.lists(passes, min_size=1, max_size=8))
def test_arrays_are_elementwise(law: LatencyLaw, phase: Phase, works: list[ForwardPass]) -> None:
    """A pass of arrays gives, entry by entry, what its scalar passes give, to the last bit."""
    names = [field.name for field in dataclasses.fields(ForwardPass)]
    arrays = ForwardPass(*(np.array([getattr(work, name) for work in works]) for name in names))
    expected = [law.forward_s(LLAMA, RTX_4090, phase, work) for work in works]
    actual = law.forward_s(LLAMA, RTX_4090, phase, arrays)
    assert isinstance(actual, np.ndarray)
    assert expected == actual.tolist()


@given(laws, st.floats(1, 64), st.lists(st.floats(0, 1e5), min_size=1, max_size=8))
def test_a_scalar_batch_over_array_contexts(law: LatencyLaw, sequences: float, contexts: list[float]) -> None:
    """The inner loop's case, a constant batch over an array of contexts, equals its scalar steps."""
    expected = [law.forward_s(LLAMA, RTX_4090, Phase.DECODE, decode_pass(sequences, c)) for c in contexts]
    actual = law.forward_s(LLAMA, RTX_4090, Phase.DECODE, decode_pass(sequences, np.array(contexts)))
    assert expected == np.asarray(actual).tolist()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).name)
def test_scalars_give_a_float(law: LatencyLaw) -> None:
    """Numbers in, a number out."""
    assert isinstance(law.forward_s(LLAMA, RTX_4090, Phase.DECODE, decode_pass(2, 100)), float)
