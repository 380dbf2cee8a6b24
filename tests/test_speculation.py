"""Tokens per round and rounds per answer."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from balancesim.core import speculation
from balancesim.core.speculation import (
    expected_tokens_per_round,
    planned_rounds,
    planned_rounds_at,
    quantile_rounds,
    round_probabilities,
    tokens_by_round,
    tokens_per_round,
)

rates = st.floats(0, 1)
draft_lengths = st.integers(0, 12)


def obvious_tokens_per_round(uniforms: list[float], acceptance_rate: float, draft_length: int) -> list[int]:
    """Walk through the answer one round at a time, as the definition says."""
    rounds, position = [], 0
    while position < len(uniforms):
        accepted = 0
        while (
            accepted < draft_length
            and position + accepted < len(uniforms)
            and uniforms[position + accepted] < acceptance_rate
        ):
            accepted += 1
        rounds.append(min(accepted + 1, len(uniforms) - position))
        position += accepted + 1
    return rounds


def test_expected_tokens_by_hand() -> None:
    """α = 0.8, γ = 4: (1 − 0.32768)/0.2 = 3.3616; α = 0.5, γ = 1: 1.5."""
    assert expected_tokens_per_round(0.8, 4) == pytest.approx(3.3616, rel=1e-15)
    assert expected_tokens_per_round(0.5, 1) == 1.5


@pytest.mark.parametrize("draft_length", [0, 1, 4, 12])
def test_expected_tokens_at_the_limits(draft_length: int) -> None:
    """Exactly γ + 1 at α = 1, exactly 1 at α = 0, exactly 1 without drafts."""
    assert expected_tokens_per_round(1.0, draft_length) == draft_length + 1
    assert expected_tokens_per_round(0.0, draft_length) == 1.0
    assert expected_tokens_per_round(0.37, 0) == 1.0


@given(st.fractions(0, 1, max_denominator=10**6), draft_lengths)
def test_expected_tokens_equal_the_exact_sum(rate: Fraction, draft_length: int) -> None:
    """E equals the rational geometric sum, also next to α = 1."""
    exact = sum((Fraction(float(rate)) ** j for j in range(draft_length + 1)), Fraction(0))
    assert expected_tokens_per_round(float(rate), draft_length) == pytest.approx(float(exact), rel=1e-14)


@given(st.lists(st.tuples(rates, draft_lengths), min_size=1, max_size=6))
def test_expected_tokens_of_arrays(pairs: list[tuple[float, int]]) -> None:
    """Arrays of rates and of draft lengths are elementwise."""
    alpha, gamma = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    expected = [expected_tokens_per_round(a, g) for a, g in pairs]
    assert expected == np.asarray(expected_tokens_per_round(alpha, gamma)).tolist()
    same = [expected_tokens_per_round(a, 3) for a, _ in pairs]
    assert same == np.asarray(expected_tokens_per_round(alpha, 3)).tolist()


def test_planned_rounds_by_hand() -> None:
    """ceil(199/3.3616) = 60; ceil(3/1.5) = 2; γ = 0: n − 1; one token needs no round."""
    assert planned_rounds(200, 0.8, 4) == 60
    assert planned_rounds(4, 0.5, 1) == 2
    assert planned_rounds(200, 0.8, 0) == 199
    assert planned_rounds(1, 0.8, 4) == 0


@given(st.integers(1, 99), st.integers(1, 3), st.integers(1, 200))
def test_exact_quotients_are_not_rounded_up(percent: int, draft_length: int, multiple: int) -> None:
    """(n − 1)/E that is an integer in exact arithmetic is that integer, and one token more needs one round more."""
    rate = Fraction(percent, 100)
    tokens_a_round = sum((rate**j for j in range(draft_length + 1)), Fraction(0))
    rounds = tokens_a_round.denominator * multiple
    tokens = tokens_a_round * rounds
    assert tokens.denominator == 1
    assert planned_rounds(int(tokens) + 1, percent / 100, draft_length) == rounds
    assert planned_rounds(int(tokens) + 2, percent / 100, draft_length) == rounds + 1


@given(st.integers(1, 3000), st.integers(0, 1000), draft_lengths)
def test_planned_rounds_equal_exact_arithmetic(output_tokens: int, permille: int, draft_length: int) -> None:
    """The plan is the ceiling in rational arithmetic."""
    rate = Fraction(permille, 1000)
    exact = math.ceil((output_tokens - 1) / sum((rate**j for j in range(draft_length + 1)), Fraction(0)))
    assert planned_rounds(output_tokens, permille / 1000, draft_length) == exact


def test_planned_rounds_of_arrays() -> None:
    """Arrays give integers, elementwise."""
    n, alpha = np.array([1, 4, 200]), np.array([0.9, 0.5, 0.8])
    actual = planned_rounds(n, alpha, np.array([2, 1, 4]))
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == np.int64
    assert actual.tolist() == [0, 2, 60]


def test_round_probabilities_by_hand() -> None:
    """α^(j−1)(1−α) for j ≤ γ and α^γ for γ + 1; their mean is E."""
    probabilities = round_probabilities(np.full(4, 0.8))
    assert probabilities == pytest.approx([0.2, 0.16, 0.128, 0.1024, 0.4096])
    assert probabilities @ np.arange(1, 6) == pytest.approx(3.3616)
    assert round_probabilities(np.empty(0)).tolist() == [1.0]


@pytest.mark.parametrize("level", [0.0, 0.5, 0.9, 1.0])
def test_quantile_without_luck(level: float) -> None:
    """α = 1 takes ceil((n−1)/(γ+1)), α = 0 and γ = 0 take n − 1 at every level above 0; one token takes none."""
    positive = int(level > 0)
    assert quantile_rounds(200, round_probabilities(np.ones(4)), level) == 40 * positive
    assert quantile_rounds(200, round_probabilities(np.zeros(4)), level) == 199 * positive
    assert quantile_rounds(200, round_probabilities(np.empty(0)), level) == 199 * positive
    assert quantile_rounds(1, round_probabilities(np.full(4, 0.8)), level) == 0


def test_quantile_by_hand() -> None:
    """γ = 1, α = 0.5, n = 4: three tokens take 2 rounds with probability 3/4 (all but 1+1), 3 rounds surely."""
    probabilities = round_probabilities(np.array([0.5]))
    assert quantile_rounds(4, probabilities, 0.75) == 2
    assert quantile_rounds(4, probabilities, 0.76) == 3
    assert quantile_rounds(4, probabilities, 1.0) == 3


@given(st.integers(1, 60), st.floats(0.01, 0.99), st.integers(0, 6), st.floats(0.01, 0.999))
def test_quantile_equals_a_recursion(output_tokens: int, rate: float, draft_length: int, level: float) -> None:
    """The convolution agrees with the recursion P(done in r rounds | m missing) = Σ_j p_j P(done in r−1 | m − j)."""
    probabilities = round_probabilities(np.full(draft_length, rate))
    done = [1.0] + [0.0] * (output_tokens - 1)  # by tokens missing, within the rounds so far
    rounds = 0
    while done[-1] < level:
        done = [1.0] + [
            sum(p * done[max(0, missing - j)] for j, p in enumerate(probabilities.tolist(), start=1))
            for missing in range(1, output_tokens)
        ]
        rounds += 1
        assume(abs(done[-1] - level) > 1e-9)  # a tie is decided by rounding
    assert quantile_rounds(output_tokens, probabilities, level) == rounds


def test_the_mean_plan_is_often_overrun() -> None:
    """α 0.8, γ 4, n 200: the share of walked answers done in ceil(199/E) = 60 rounds is where the plan moves to 61."""
    rng = np.random.default_rng(4)
    share = np.mean([len(obvious_tokens_per_round(rng.random(199).tolist(), 0.8, 4)) <= 60 for _ in range(3000)])
    margin = 4 * math.sqrt(share * (1 - share) / 3000)
    n, alpha = np.array([200]), np.array([0.8])
    assert planned_rounds_at(n, alpha, 4, float(share - margin)).tolist() <= [60]
    assert planned_rounds_at(n, alpha, 4, float(share + margin)).tolist() >= [61]
    assert share < 0.65


def test_quantile_meets_simulation() -> None:
    """Of 4,000 drawn answers, 0.9 or more are done within the 0.9 plan and fewer within one round less."""
    rng = np.random.default_rng(5)
    rounds = np.array([len(tokens_per_round(rng.random(149), 0.7, 3)) for _ in range(4000)])
    plan = int(planned_rounds_at(np.array([150]), np.array([0.7]), 3, 0.9)[0])
    margin = 4 * math.sqrt(0.9 * 0.1 / 4000)
    assert (rounds <= plan).mean() > 0.9 - margin
    assert (rounds <= plan - 1).mean() < 0.9 + margin
    assert (rounds <= plan - 2).mean() < 0.9  # tight, beyond the margin too


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=60), rates, draft_lengths)
def test_tokens_per_round_equal_the_obvious_walk(uniforms: list[float], rate: float, draft_length: int) -> None:
    """The loop-free split equals the walk from round to round, and sums to n − 1."""
    actual = tokens_per_round(np.array(uniforms), rate, draft_length)
    assert obvious_tokens_per_round(uniforms, rate, draft_length) == actual.tolist()
    assert actual.sum() == len(uniforms)
    assert actual.dtype == np.int64


def test_tokens_per_round_by_hand() -> None:
    """γ = 2, α = 0.5 over .1 .2 .9 | .3 .8 | .7 | .1 .1 .1 | .2: the draft at .9 is the target's own token."""
    uniforms = np.array([0.1, 0.2, 0.9, 0.3, 0.8, 0.7, 0.1, 0.1, 0.1, 0.2])
    assert tokens_per_round(uniforms, 0.5, 2).tolist() == [3, 2, 1, 3, 1]


@pytest.mark.parametrize(
    ("rate", "draft_length", "expected"), [(1.0, 4, [5, 5, 2]), (0.0, 4, [1] * 12), (0.5, 0, [1] * 12)]
)
def test_tokens_per_round_at_the_limits(rate: float, draft_length: int, expected: list[int]) -> None:
    """α = 1: γ + 1 a round, the last one cut; α = 0 and γ = 0: one a round."""
    assert tokens_per_round(np.linspace(0, 0.99, 12), rate, draft_length).tolist() == expected


@given(st.lists(st.booleans(), min_size=1, max_size=40), draft_lengths)
def test_longer_drafts_never_take_more_rounds(accepted: list[bool], draft_length: int) -> None:
    """With the same luck, one draft more never takes more rounds."""
    mask = np.array(accepted)
    assert len(tokens_by_round(mask, draft_length + 1)) <= len(tokens_by_round(mask, draft_length))


@pytest.mark.parametrize(("rate", "draft_length"), [(0.6, 3), (0.8, 4), (0.95, 8)])
def test_round_sizes_follow_the_law(rate: float, draft_length: int) -> None:
    """Chi-square of the uncut rounds' sizes against α^(j−1)(1−α), α^γ over 40 replications, 0.1 % level in all."""
    rng = np.random.default_rng(11)
    counts = np.zeros(draft_length + 1)
    for _ in range(40):
        sizes = tokens_per_round(rng.random(5000), rate, draft_length)[:-1]  # the last round may be cut
        counts += np.bincount(sizes, minlength=draft_length + 2)[1:]
    expected = round_probabilities(np.full(draft_length, rate)) * counts.sum()
    statistic = ((counts - expected) ** 2 / expected).sum()
    quantile = {3: 16.27, 4: 18.47, 8: 26.12}[draft_length]  # chi-square, γ degrees of freedom, 0.999
    assert statistic < quantile


def test_mean_tokens_per_round_lies_in_its_interval() -> None:
    """The mean over replications of tokens per round meets E within four standard errors."""
    rng = np.random.default_rng(12)
    means = np.array([tokens_per_round(rng.random(5000), 0.8, 4)[:-1].mean() for _ in range(50)])
    assert abs(means.mean() - 3.3616) < 4 * means.std(ddof=1) / math.sqrt(50)


def test_answers_are_kept() -> None:
    """A second plan of the same request is answered from the cache."""
    speculation._iid_quantile.cache_clear()
    for _ in range(2):
        planned_rounds_at(np.array([50, 60]), np.array([0.7, 0.8]), 4, 0.9)
    assert speculation._iid_quantile.cache_info().hits == 2
