"""Padded costs C^A and C^S against hand-computed values and the plain sums."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancesim.core.latency import decode_steps_s, prefill_s, rounds_s
from balancesim.core.memory import kv_bytes_per_token, padded_kv_bytes, request_kv_bytes
from balancesim.core.padded import BatchShape, padded_cost
from balancesim.core.request import Mode
from balancesim.latency_laws import Roofline
from tests.problems import make_server

ROOFLINE = Roofline(launch_s=1e-4, bandwidth_efficiency=0.8, compute_efficiency=0.6)


@dataclass(frozen=True)
class CountingLaw:
    """Time = weight · (rows + context read): whole numbers that can be checked by hand."""

    name = "counting"
    weight: float

    def forward_s(self, llm, gpu, phase, work):
        return self.weight * (work.new_tokens + work.kv_tokens)


COUNTING = make_server(9000, 2, laws=(CountingLaw(1.0), CountingLaw(0.1)))


def test_ad_by_hand():
    """b=2, S=3, N=3: prefill 2·3 = 6; steps at contexts 4 and 5: (2+8) + (2+10) = 22."""
    cost = padded_cost(COUNTING, Mode.AD, 0, BatchShape(2, 3, 3))
    assert (cost.prefill_s, cost.decode_s, cost.draft_s, cost.verify_s) == (6.0, 22.0, 0.0, 0.0)
    assert cost.total_s == 28.0


def test_sd_by_hand():
    """b=2, S=3, N=3, γ=2, I=1: one round at the mean of contexts 4 and 5, target weight 1, draft weight 0.1.

    prefill (1 + 0.1)·6 = 6.6; verification at c: 2·3 rows + Σ cache 2c + 2·2: 18 at 4, 20 at 5, mean 19;
    drafts at c and c+1: 0.1·((2+2c) + (2+2c+2)): 0.1·(10+12) = 2.2 at 4, 2.6 at 5, mean 2.4.
    """
    cost = padded_cost(COUNTING, Mode.SD, 2, BatchShape(2, 3, 3, 1))
    parts = [cost.prefill_s, cost.decode_s, cost.draft_s, cost.verify_s]
    assert pytest.approx([6.6, 0.0, 2.4, 19.0], rel=1e-12) == parts


def test_one_token_answers():
    """N = 1 is the prefill alone, in both modes."""
    for mode in Mode:
        cost = padded_cost(COUNTING, mode, 2, BatchShape(4, 10, 1, 0))
        assert cost.total_s == cost.prefill_s


@pytest.mark.parametrize("law", [ROOFLINE, CountingLaw(1e-6)], ids=lambda law: law.name)
@settings(max_examples=30, deadline=None)
@given(
    b=st.integers(1, 20),
    prompt=st.integers(1, 600),
    output=st.integers(1, 300),
    rounds=st.integers(0, 300),
    gamma=st.integers(1, 5),
)
def test_equals_the_plain_sums(law, b, prompt, output, rounds, gamma):
    """The tables give the sums of model.md §5, term by term."""
    server = make_server(9000, gamma, laws=(law, law))
    contexts = np.arange(prompt + 1, prompt + output, dtype=float) * b
    cost = padded_cost(server, Mode.AD, 0, BatchShape(b, prompt, output))
    prefill = prefill_s(server, Mode.AD, b, b * prompt, b * prompt**2)
    assert cost.total_s == pytest.approx(prefill + np.sum(decode_steps_s(server, float(b), contexts)), rel=1e-9)

    cost = padded_cost(server, Mode.SD, gamma, BatchShape(b, prompt, output, rounds))
    per_round = rounds_s(server, float(b), contexts, gamma)
    share = rounds / max(1, output - 1)
    assert cost.prefill_s == pytest.approx(prefill_s(server, Mode.SD, b, b * prompt, b * prompt**2), rel=1e-12)
    assert cost.draft_s == pytest.approx(share * per_round.draft_s.sum(), rel=1e-9)
    assert cost.verify_s == pytest.approx(share * per_round.verify_s.sum(), rel=1e-9)


def test_draft_length_zero_is_ad():
    """SD with γ = 0 costs and reserves what AD does, without a draft model."""
    shape = BatchShape(3, 20, 30, 29)
    assert padded_cost(COUNTING, Mode.SD, 0, shape) == padded_cost(COUNTING, Mode.AD, 0, shape)
    assert padded_kv_bytes(COUNTING, Mode.SD, 0, 50) == padded_kv_bytes(COUNTING, Mode.AD, 0, 50)


def test_arrays_equal_scalars():
    """Many shapes at once give what each gives alone, also when the table must grow in between."""
    server = make_server(9000, 4)
    b, prompt, output, rounds = (
        np.array([1, 9, 40]),
        np.array([5, 300, 700]),
        np.array([1, 50, 900]),
        np.array([0, 20, 300]),
    )
    for mode in Mode:
        together = padded_cost(server, mode, 4, BatchShape(b, prompt, output, rounds)).total_s
        alone = [
            padded_cost(make_server(9000, 4), mode, 4, BatchShape(*row)).total_s
            for row in zip(b.tolist(), prompt.tolist(), output.tolist(), rounds.tolist(), strict=True)
        ]
        assert together == pytest.approx(alone, rel=1e-12)


def test_memory_by_hand():
    """Llama-2-7B has 2·32·4096·2 = 524,288 B a token, TinyLlama 2·22·256·2 = 22,528 B; S+N = 100, γ = 4."""
    server = make_server(9000, 4)
    assert kv_bytes_per_token(server, Mode.AD, 0) == 524_288
    assert padded_kv_bytes(server, Mode.AD, 0, 100) == 52_428_800
    assert padded_kv_bytes(server, Mode.SD, 4, 100) == 104 * 546_816
    assert request_kv_bytes(server, Mode.SD, 4, 100) == 104 * 546_816
