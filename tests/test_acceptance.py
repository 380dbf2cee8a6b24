"""Acceptance laws: their sums, limits, means and luck."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw, ByDepth, ByTask, Expected, Iid, Markov
from balancesim.core.request import Request
from balancesim.core.speculation import expected_tokens_per_round, planned_rounds
from balancesim.streams import KeyedStream, Streams

#: conditional acceptance of EAGLE drafts on ShareGPT by depth (balancesim/data/SOURCES.md)
SHAREGPT = (0.605, 0.597, 0.648, 0.692, 0.728)
#: the same of n-gram drafts on InstructCoder: .308 .278 .251 .239 .223 survive, each over the one before it
NGRAM_CODE = (0.308, 0.903, 0.903, 0.952, 0.933)
LAWS: tuple[AcceptanceLaw, ...] = (
    *(Iid(), Expected(), ByDepth(SHAREGPT), Markov(0.4)),
    ByTask({"default": SHAREGPT, "code": NGRAM_CODE}),
)
STREAM = Streams(7, 0).keyed("acceptance")

laws = st.sampled_from(LAWS)
rates = st.floats(0, 1)
draft_lengths = st.integers(0, 8)


def request(output_tokens: int, acceptance_rate: float, request_id: int = 3) -> Request:
    return Request(request_id, 0, 0.0, 10, output_tokens, acceptance_rate=acceptance_rate)


def test_every_listed_law_is_exercised() -> None:
    """The laws under test are the listed ones."""
    assert {type(law) for law in LAWS} == set(ACCEPTANCE_LAWS)


@given(laws, st.integers(1, 300), rates, draft_lengths, st.integers(0, 10**6))
def test_rounds_sum_to_the_answer(
    law: AcceptanceLaw, output_tokens: int, rate: float, draft_length: int, request_id: int
) -> None:
    """Rounds emit n − 1 tokens in all, between 1 and γ + 1 each, as integers."""
    rounds = law.rounds(request(output_tokens, rate, request_id), draft_length, STREAM)
    assert rounds.dtype == np.int64
    assert rounds.sum() == output_tokens - 1
    assert ((rounds >= 1) & (rounds <= draft_length + 1)).all()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_limits(law: AcceptanceLaw) -> None:
    """γ = 0 and α = 0 give one token a round, α = 1 gives γ + 1, in the draws and in the mean."""
    for rate, draft_length, size in ((0.7, 0, 1), (0.0, 4, 1), (1.0, 4, 5)):
        assert law.rounds(request(201, rate), draft_length, STREAM).tolist() == [size] * (200 // size)
        assert law.expected_tokens_per_round(rate, draft_length) == pytest.approx(size)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_draws_belong_to_the_request(law: AcceptanceLaw) -> None:
    """A request's rounds depend on seed, replication and request id alone, not on what was drawn before."""
    first = law.rounds(request(120, 0.7, 5), 3, STREAM).tolist()
    law.rounds(request(50, 0.7, 6), 3, STREAM)
    assert first == law.rounds(request(120, 0.7, 5), 3, Streams(7, 0).keyed("acceptance")).tolist()


@pytest.mark.parametrize("law", [Iid(), ByDepth(SHAREGPT), Markov(0.4)], ids=lambda law: law.name)
def test_other_requests_have_other_luck(law: AcceptanceLaw) -> None:
    """Another request id or replication draws other rounds."""
    first = law.rounds(request(120, 0.7, 5), 3, STREAM).tolist()
    assert first != law.rounds(request(120, 0.7, 6), 3, STREAM).tolist()
    assert first != law.rounds(request(120, 0.7, 5), 3, Streams(7, 1).keyed("acceptance")).tolist()


@given(st.sampled_from([Iid(), Markov(0.4)]), rates, st.integers(1, 200), draft_lengths)
def test_luck_belongs_to_the_position(law: AcceptanceLaw, rate: float, output_tokens: int, draft_length: int) -> None:
    """With the same luck, a longer draft never takes more rounds."""
    shorter, longer = (
        len(law.rounds(request(output_tokens, rate), g, STREAM)) for g in (draft_length, draft_length + 1)
    )
    assert longer <= shorter


@given(st.sampled_from([Iid(), ByDepth(SHAREGPT), Markov(0.4)]), st.integers(2, 150), rates, st.integers(1, 6))
def test_longer_answers_extend_shorter_ones(law: AcceptanceLaw, tokens: int, rate: float, draft_length: int) -> None:
    """The rounds of a longer answer begin with those of a shorter one, but for the cut."""
    short = law.rounds(request(tokens, rate), draft_length, STREAM)
    long = law.rounds(request(tokens + 40, rate), draft_length, STREAM)
    assert short[:-1].tolist() == long[: len(short) - 1].tolist()
    assert short[-1] <= long[len(short) - 1]


@given(st.integers(1, 2000), st.integers(0, 1000), draft_lengths)
def test_expected_takes_exactly_the_planned_rounds(output_tokens: int, permille: int, draft_length: int) -> None:
    """The law ``expected`` takes ceil((n−1)/E) rounds and is never a token behind i·E, nor ahead of it."""
    rate = permille / 1000
    rounds = Expected().rounds(request(output_tokens, rate), draft_length, STREAM)
    assert len(rounds) == planned_rounds(output_tokens, rate, draft_length)
    mean = float(expected_tokens_per_round(rate, draft_length))
    lead = np.cumsum(rounds)[:-1] - mean * np.arange(1, len(rounds))
    assert ((lead > -1) & (lead < 1e-6)).all()


def test_expected_by_hand() -> None:
    """α = 0.5, γ = 1, E = 1.5: 1, 3, 4, 6, 7 of n − 1 = 7 tokens are out after rounds 1 to 5."""
    assert Expected().rounds(request(8, 0.5), 1, STREAM).tolist() == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("law", [ByDepth((0.5,)), ByDepth((0.7, 0.7, 0.7)), Markov(0.0)], ids=repr)
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.85, 1.0])
def test_special_cases_are_iid(law: AcceptanceLaw, rate: float) -> None:
    """A flat profile, or a chain without memory, is the i.i.d. law: same mean, same rounds from the same numbers."""
    for draft_length in (0, 1, 5):
        assert law.expected_tokens_per_round(rate, draft_length) == pytest.approx(
            expected_tokens_per_round(rate, draft_length), rel=1e-12
        )
        iid = Iid().rounds(request(150, rate), draft_length, STREAM)
        assert iid.tolist() == law.rounds(request(150, rate), draft_length, STREAM).tolist()


def test_by_depth_keeps_the_measured_shape() -> None:
    """At the profile's geometric mean the law is the profile: EAGLE on ShareGPT emits 2.480 tokens at γ = 5."""
    rate = math.prod(SHAREGPT) ** 0.2
    survivals = np.cumprod(SHAREGPT)  # .605 .361 .234 .162 .118, published
    assert survivals == pytest.approx([0.605, 0.361, 0.234, 0.162, 0.118], abs=5e-4)
    assert ByDepth(SHAREGPT).expected_tokens_per_round(rate, 5) == pytest.approx(1 + survivals.sum())
    assert 1 + survivals.sum() == pytest.approx(2.480, abs=2e-3)


def test_by_depth_keeps_all_listed_drafts_as_often_as_iid() -> None:
    """E(γ) − E(γ−1), the chance to keep all γ drafts, is α^5 at γ = 5; deeper drafts go on with the last weight."""
    law = ByDepth(SHAREGPT)
    means = [float(law.expected_tokens_per_round(0.8, g)) for g in range(8)]
    assert means[5] - means[4] == pytest.approx(0.8**5)
    last = math.log(0.728) / (sum(map(math.log, SHAREGPT)) / 5)
    assert means[6] - means[5] == pytest.approx(0.8 ** (5 + last))
    assert means[7] - means[6] == pytest.approx(0.8 ** (5 + 2 * last))


def test_markov_by_hand() -> None:
    """α = ρ = 0.5, γ = 1: h = 0.75, l = 0.25, π = 0.1875/(1 − 0.5625 + 0.1875) = 0.3, E = 1 + 0.3·h + 0.7·l = 1.4."""
    assert Markov(0.5).expected_tokens_per_round(0.5, 1) == pytest.approx(1.4)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_means_of_arrays(law: AcceptanceLaw) -> None:
    """The mean is elementwise over acceptance rates, and a float for a float."""
    rates_array = np.array([0.0, 0.4, 0.9, 1.0])
    for draft_length in (0, 3):
        expected = [law.expected_tokens_per_round(rate, draft_length) for rate in rates_array.tolist()]
        assert all(isinstance(value, float) for value in expected)
        actual = law.expected_tokens_per_round(rates_array, draft_length)
        assert np.asarray(actual) == pytest.approx(expected, rel=1e-14)


@given(laws, st.floats(0, 0.99), st.floats(0, 0.01), draft_lengths)
def test_mean_rises_with_the_rate(law: AcceptanceLaw, rate: float, more: float, draft_length: int) -> None:
    """A higher acceptance rate never lowers the mean, which lies between 1 and γ + 1."""
    low, high = (float(law.expected_tokens_per_round(r, draft_length)) for r in (rate, rate + more))
    assert low <= high + 1e-9
    assert 1 - 1e-9 <= low <= draft_length + 1 + 1e-9


def mean_interval(law: AcceptanceLaw, rate: float, draft_length: int, stream: KeyedStream) -> tuple[float, float]:
    """Return mean and standard error, over 60 long answers, of the tokens of an uncut round."""
    means = np.array([law.rounds(request(4001, rate, k), draft_length, stream)[:-1].mean() for k in range(60)])
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(60))


@pytest.mark.parametrize(("rate", "draft_length"), [(0.6, 1), (0.8, 4), (0.9, 8)])
@pytest.mark.parametrize("law", [Iid(), ByDepth(SHAREGPT), Markov(0.4), Markov(0.8)], ids=repr)
def test_simulated_mean_meets_the_formula(law: AcceptanceLaw, rate: float, draft_length: int) -> None:
    """Tokens of an uncut round, over 60 requests, meet the law's own mean within four standard errors."""
    mean, error = mean_interval(law, rate, draft_length, STREAM)
    # Bias of the first rounds and of leaving out the last one: below one round in about a thousand.
    assert abs(mean - law.expected_tokens_per_round(rate, draft_length)) < 4 * error + 2e-3


def test_markov_keeps_mean_and_correlation() -> None:
    """With γ = 1000 a round is a run of kept positions; each position is kept with α, neighbours correlate with ρ."""
    kept = []
    for k in range(200):
        rounds = Markov(0.6).rounds(request(1001, 0.7, k), 1000, STREAM)
        path = np.ones(1000)
        path[np.cumsum(rounds)[:-1] - 1] = 0  # a rejection ends each round but the cut one
        kept.append(path[:-1])
    paths = np.array(kept)
    means = paths.mean(axis=1)
    assert abs(means.mean() - 0.7) < 4 * means.std(ddof=1) / math.sqrt(200)
    pairs = (paths[:, 1:] * paths[:, :-1]).mean(axis=1)  # P(both kept) = α·h = 0.7 · (0.7 + 0.6·0.3) = 0.616
    assert abs(pairs.mean() - 0.616) < 4 * pairs.std(ddof=1) / math.sqrt(200)


def test_rising_acceptance_has_a_thicker_tail() -> None:
    """At the same mean, rising conditional acceptance fills whole rounds more often than the i.i.d. law."""
    rate = math.prod(SHAREGPT) ** 0.2
    mean = float(ByDepth(SHAREGPT).expected_tokens_per_round(rate, 5))
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens_per_round(middle, 5) < mean else (low, middle)
    full = [
        np.mean(np.concatenate([law.rounds(request(4001, a, k), 5, STREAM)[:-1] for k in range(40)]) == 6)
        for law, a in ((ByDepth(SHAREGPT), rate), (Iid(), low))
    ]
    assert full[0] > full[1] + 0.01


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ByDepth(()), "conditional_acceptance must have at least one entry"),
        (lambda: ByDepth((0.5, 1.0)), "conditional_acceptance must lie strictly between 0 and 1, got 1.0"),
        (lambda: ByDepth((0.0,)), "conditional_acceptance must lie strictly between 0 and 1, got 0.0"),
        (lambda: Markov(1.0), "persistence must be at least 0 and below 1, got 1.0"),
        (lambda: Markov(-0.1), "persistence must be at least 0 and below 1, got -0.1"),
        (lambda: Markov(math.nan), "persistence must be at least 0 and below 1, got nan"),
    ],
)
def test_wrong_options_are_refused(build: object, message: str) -> None:
    """A wrong option is refused with its name, rule and value."""
    assert callable(build)
    with pytest.raises(ValueError, match=f"^{message}"):
        build()


def test_the_task_picks_the_curve() -> None:
    """Requests of a task follow its curve, all others the default's, with the same luck."""
    law = ByTask({"default": SHAREGPT, "code": NGRAM_CODE})
    for task, curve in (("code", NGRAM_CODE), ("", SHAREGPT), ("chat", SHAREGPT)):
        asked = replace(request(301, 0.7), task=task)
        assert law.rounds(asked, 5, STREAM).tolist() == ByDepth(curve).rounds(asked, 5, STREAM).tolist()
        kept = law.kept_by_depth(asked, 5, STREAM)
        np.testing.assert_array_equal(kept, ByDepth(curve).kept_by_depth(asked, 5, STREAM))
    code, text = (law.rounds(replace(request(301, 0.7), task=task), 5, STREAM).tolist() for task in ("code", ""))
    assert code != text


def test_curves_of_tasks_are_checked() -> None:
    """A default is needed; a bad curve names its task."""
    with pytest.raises(ValueError, match="must have an entry 'default'"):
        ByTask({"code": NGRAM_CODE})
    with pytest.raises(ValueError, match="task 'code': conditional_acceptance must lie strictly between 0 and 1"):
        ByTask({"default": SHAREGPT, "code": (1.0,)})
