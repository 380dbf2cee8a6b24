"""Workloads: the same requests for every policy, each property from its own stream, lazily."""

import math
import subprocess
import sys
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancesim.acceptance_rates import (
    ACCEPTANCE_RATES,
    AcceptanceRateByTask,
    BetaAcceptanceRate,
    FixedAcceptanceRate,
    PublishedAcceptanceRate,
    UniformAcceptanceRate,
)
from balancesim.acceptance_rates.beta_law import draw_beta
from balancesim.arrivals import AtOnce, Poisson, TraceReplay
from balancesim.deadlines import DEADLINES, FixedDeadline, NoDeadline, PerTokenDeadline, UniformDeadline
from balancesim.lengths import LENGTHS, FixedLengths, LognormalLengths, Sizes, TraceLengths, UniformLengths
from balancesim.predictors import PREDICTORS, ClassMean, Exact, Noisy, NoisyTruth
from balancesim.streams import Streams
from balancesim.trace_formats import TraceError, load_trace
from balancesim.workload import Payload, Tally, Workload
from balancesim.workload_summary import QUANTILES, summarise

USERS = np.arange(10, 40)
PLAIN = Workload(
    horizon_s=2000.0,
    arrivals=Poisson(5.0),
    lengths=UniformLengths(1, 1000, 1, 200),
    deadline=UniformDeadline(0.5, 13.0),
    acceptance_rate=UniformAcceptanceRate(0.6, 0.95),
    prediction=Exact(),
)
LENGTH_EXAMPLES = [
    FixedLengths(5, 6),
    UniformLengths(1, 9, 2, 7),
    LognormalLengths(300.0, 1.0, 20.0, 0.5, 0.3),
    TraceLengths("azure_conversation"),
]
DEADLINE_EXAMPLES = [NoDeadline(), FixedDeadline(2.0), UniformDeadline(1.0, 2.0), PerTokenDeadline(1.0, 0.01, 0.1)]
RATE_EXAMPLES = [
    FixedAcceptanceRate(0.7),
    UniformAcceptanceRate(0.6, 0.9),
    BetaAcceptanceRate(0.7, 0.2),
    AcceptanceRateByTask({"default": 0.5, "chat": 0.8}, cv=0.1),
    PublishedAcceptanceRate("EAGLE", "Llama-3.1-8B", 3, {"default": "ShareGPT", "chat": "GSM8K"}, cv=0.1),
]
TABLES = ({"default": 50.0}, {"default": 0.7})
PREDICTOR_EXAMPLES = [Exact(), Noisy(0.3, 0.3), Noisy(0.3, 0.3, 3.0), NoisyTruth(0.3, 0.3, 3.0), ClassMean(*TABLES)]


def rows(workload, streams=None, users=USERS):
    return list(workload.requests(streams or Streams(1, 0), users))


def column(workload, name, streams=None):
    return np.concatenate([getattr(c, name) for c in workload.columns(streams or Streams(1, 0), USERS)])


def test_every_listed_law_has_an_example():
    """The contract tests run over every law in the lists."""
    assert {type(law) for law in LENGTH_EXAMPLES} == set(LENGTHS)
    assert {type(law) for law in DEADLINE_EXAMPLES} == set(DEADLINES)
    assert {type(law) for law in RATE_EXAMPLES} == set(ACCEPTANCE_RATES)
    assert {type(law) for law in PREDICTOR_EXAMPLES} == set(PREDICTORS)


@pytest.mark.parametrize(
    "workload",
    [
        *(replace(PLAIN, lengths=law) for law in LENGTH_EXAMPLES),
        *(replace(PLAIN, deadline=law) for law in DEADLINE_EXAMPLES),
        *(replace(PLAIN, acceptance_rate=law) for law in RATE_EXAMPLES),
        *(replace(PLAIN, prediction=law) for law in PREDICTOR_EXAMPLES),
        replace(PLAIN, payload=Payload(8000.0, 8e6, 0.3), cut_to_tokens=500),
    ],
    ids=lambda w: f"{w.lengths.name}-{w.deadline.name}-{w.acceptance_rate.name}-{w.prediction.name}",
)
def test_requests_are_valid_ordered_and_repeatable(workload):
    """Ids count up, arrivals never fall and stay below the horizon, values are in range, equal seeds are equal."""
    requests = rows(workload)
    assert [request.request_id for request in requests] == list(range(len(requests)))
    arrivals = [request.arrival_s for request in requests]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= 0
    assert arrivals[-1] < workload.horizon_s
    assert all(request.user_id in USERS and request.deadline_s > 0 for request in requests)
    assert all(0 <= r.acceptance_rate <= 1 and 0 <= r.predicted_acceptance_rate <= 1 for r in requests)
    assert all(min(r.prompt_tokens, r.output_tokens, r.predicted_output_tokens) >= 1 for r in requests)
    assert {type(v) for r in requests[:9] for v in (r.user_id, r.prompt_tokens)} == {int}
    assert requests == rows(workload)
    assert requests != rows(workload, Streams(1, 1))
    assert requests != rows(workload, Streams(2, 0))


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"lengths": LENGTH_EXAMPLES[2]}, {"prompt_tokens", "output_tokens", "predicted_output_tokens"}),
        ({"deadline": FixedDeadline(1.0)}, {"deadline_s"}),
        ({"acceptance_rate": BetaAcceptanceRate(0.7, 0.2)}, {"acceptance_rate", "predicted_acceptance_rate"}),
        ({"prediction": Noisy(0.3, 0.0)}, {"predicted_output_tokens"}),
        ({"prediction": Noisy(0.0, 0.3)}, {"predicted_acceptance_rate"}),
        ({"payload": Payload(0.0, 1e6, 0.5)}, {"payload_bits"}),
        ({"arrivals": Poisson(6.0)}, {"arrival_s"}),
    ],
)
def test_changing_one_law_moves_its_own_columns_only(change, moved):
    """Each property has a stream of its own."""
    before, after = rows(PLAIN), rows(replace(PLAIN, **change))
    names = set(type(before[0]).__slots__)
    pairs = list(zip(before, after, strict=False))
    differing = {name for name in names if any(getattr(a, name) != getattr(b, name) for a, b in pairs)}
    assert differing == moved


@settings(max_examples=10, deadline=None)
@given(horizon_s=st.floats(1.0, 3000.0))
def test_a_longer_horizon_only_adds_requests(horizon_s):
    """The requests of a shorter horizon are a prefix of those of a longer one."""
    workload = replace(PLAIN, prediction=Noisy(0.3, 0.3, 3.0), acceptance_rate=BetaAcceptanceRate(0.7, 0.2))
    short, long = rows(replace(workload, horizon_s=horizon_s)), rows(replace(workload, horizon_s=3000.0))
    assert short == long[: len(short)]
    assert all(request.arrival_s >= horizon_s for request in long[len(short) :])


def test_requests_are_made_lazily():
    """Ten requests of an endless workload are made without the rest."""
    endless = replace(PLAIN, horizon_s=1e12)
    tally = Tally()
    assert len(list(islice(endless.requests(Streams(1, 0), USERS, tally), 10))) == 10
    assert tally.generated == 4096


def test_requests_do_not_depend_on_hash_seed():
    """Two processes with different PYTHONHASHSEED make the same requests."""
    code = (
        "import numpy as np; from tests.test_workload import *; "
        "print(repr(rows(replace(PLAIN, acceptance_rate=RATE_EXAMPLES[3], prediction=PREDICTOR_EXAMPLES[3]))[-1]))"
    )
    outs = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": s}, capture_output=True, check=True).stdout
        for s in ("1", "2")
    }
    assert len(outs) == 1


def test_starting_up_loads_no_heavy_library():
    """Importing the workload pulls in neither pandas nor scipy nor pyarrow."""
    code = "import sys, balancesim.workload; print({'pandas', 'scipy', 'pyarrow'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_replay_pairs_arrivals_with_their_own_lengths():
    """A replayed request has the prompt and answer recorded at its arrival."""
    trace = load_trace("azure_conversation")
    requests = rows(replace(PLAIN, horizon_s=600.0, arrivals=TraceReplay("azure_conversation"), lengths=TraceLengths()))
    first = trace.arrival_s < 600.0
    assert [r.prompt_tokens for r in requests] == trace.prompt_tokens[first].tolist()
    assert [r.output_tokens for r in requests] == trace.output_tokens[first].tolist()
    assert [r.arrival_s for r in requests] == pytest.approx(trace.arrival_s[first].tolist(), abs=1e-9)


def test_bootstrap_draws_whole_rows():
    """Pairs drawn from a trace are pairs of the trace."""
    trace = load_trace("azure_conversation")
    pairs = set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    requests = rows(replace(PLAIN, lengths=TraceLengths("azure_conversation")))
    assert {(r.prompt_tokens, r.output_tokens) for r in requests} <= pairs


def test_trace_lengths_without_a_file_need_a_replay():
    """Lengths "as recorded" beside Poisson arrivals are an error that says what to add."""
    with pytest.raises(ValueError, match='file is needed unless the arrivals are of kind "trace"'):
        replace(PLAIN, lengths=TraceLengths()).check(1)
    with pytest.raises(ValueError, match="file is needed"):
        next(TraceLengths().batches(np.random.default_rng(1), 1))


def test_check_finds_what_is_missing_before_the_run():
    """A trace too short for the replications, or not there, is found without generating requests."""
    replay = replace(PLAIN, horizon_s=600.0, arrivals=TraceReplay("azure_conversation"), lengths=TraceLengths())
    replay.check(5)
    with pytest.raises(TraceError, match="5 replications fit"):
        replay.check(6)
    with pytest.raises(TraceError, match="no such file"):
        replace(PLAIN, lengths=TraceLengths("none.csv")).check(1)


def test_users_are_uniform():
    """10,000 requests over 30 users: chi-square below its 99.9 % quantile, 58.3 at 29 degrees of freedom."""
    counts = np.unique(column(PLAIN, "user_id"), return_counts=True)[1]
    mean = counts.sum() / 30
    assert len(counts) == 30
    assert np.sum((counts - mean) ** 2 / mean) < 58.3


@pytest.mark.parametrize("period_s", [None, 7.0])
def test_a_round_names_every_user_once(period_s):
    """K users at once are K different users, in every round, across chunks."""
    users = np.arange(100, 170)
    workload = replace(PLAIN, arrivals=AtOnce(70, period_s), horizon_s=1000.0)
    ids = np.array([request.user_id for request in workload.requests(Streams(1, 0), users)])
    # rounds at 0, 7, ..., 994: 143 of them before 1000 s
    assert len(ids) == 70 * (1 if period_s is None else 143)
    for round_ids in ids.reshape(-1, 70):
        assert sorted(round_ids) == users.tolist()
    if period_s is not None:
        assert ids[:70].tolist() != ids[70:140].tolist()


def test_more_users_than_a_chunk():
    """A round of more users than are drawn at once still names each once."""
    users = np.arange(5000)
    workload = replace(PLAIN, arrivals=AtOnce(5000))
    assert sorted(r.user_id for r in workload.requests(Streams(1, 0), users)) == users.tolist()


def test_no_users_is_an_error():
    """Requests need somebody to send them."""
    with pytest.raises(ValueError, match="users must have at least one id"):
        next(PLAIN.requests(Streams(1, 0), np.array([], dtype=np.int64)))


def test_cut_by_hand():
    """Context 100: (60, 50) keeps the answer, prompt 50; (5, 200) keeps 1 + 99; (40, 60) fits as it is."""
    for (prompt, output), expected, cut in (
        ((60, 50), (50, 50), True),
        ((5, 200), (1, 99), True),
        ((40, 60), (40, 60), False),
    ):
        tally = Tally()
        workload = replace(PLAIN, lengths=FixedLengths(prompt, output), arrivals=AtOnce(3), cut_to_tokens=100)
        requests = list(workload.requests(Streams(1, 0), USERS, tally))
        assert {(r.prompt_tokens, r.output_tokens) for r in requests} == {expected}
        assert (tally.generated, tally.cut) == (3, 3 if cut else 0)


def test_without_a_cut_long_requests_keep_their_size():
    """Rejection is the simulator's: sizes stay as drawn and nothing is counted as cut."""
    workload = replace(PLAIN, lengths=FixedLengths(10**6, 7), arrivals=AtOnce(1))
    assert rows(workload)[0].prompt_tokens == 10**6


def test_predictions_stay_within_the_context():
    """A cut request's predicted answer fits beside its prompt."""
    workload = replace(PLAIN, prediction=Noisy(2.0, 0.0, 2.5), cut_to_tokens=300)
    for request in rows(workload):
        assert request.prompt_tokens + max(request.output_tokens, request.predicted_output_tokens) <= 300


def test_payload_by_hand():
    """A fixed part of 8 kbit in all requests, 4 Mbit more in about 30 % of them (five standard deviations)."""
    bits = column(replace(PLAIN, payload=Payload(8e3, 4e6, 0.3)), "payload_bits")
    assert set(bits.tolist()) == {8e3, 4.008e6}
    assert np.mean(bits > 8e3) == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / len(bits)))


def test_per_token_deadline_by_hand():
    """1 + 0.01·200 + 0.1·30 = 6 s."""
    sizes = Sizes(np.array([200]), np.array([30]))
    assert PerTokenDeadline(1.0, 0.01, 0.1).draw(np.random.default_rng(0), sizes).tolist() == pytest.approx([6.0])


def test_uniform_lengths_reach_both_ends():
    """Lengths cover every whole number of their range."""
    workload = replace(PLAIN, lengths=UniformLengths(3, 7, 2, 2))
    assert set(column(workload, "prompt_tokens")) == {3, 4, 5, 6, 7}
    assert set(column(workload, "output_tokens")) == {2}


def tasked():
    return Sizes(np.array([1, 1, 1]), np.array([9, 9, 9]), np.array(["chat", "code", ""], dtype=object))


def test_rates_and_means_by_task():
    """A task takes its own entry, others the default; a missing entry is an error with the task's name."""
    rng = np.random.default_rng(0)
    assert AcceptanceRateByTask({"chat": 0.8, "default": 0.5}).draw(rng, tasked()).tolist() == [0.8, 0.5, 0.5]
    means = ClassMean({"code": 20.6, "default": 3.0}, {"default": 0.7})
    assert means.output_tokens(rng, tasked()).predicted.tolist() == [3, 21, 3]
    assert means.output_tokens(rng, tasked()).true.tolist() == [9, 9, 9]
    assert means.acceptance_rate(rng, np.full(3, 0.9), tasked()).predicted.tolist() == [0.7, 0.7, 0.7]
    with pytest.raises(ValueError, match=r"acceptance_rate\.rates has no entry for task ''; add it, or .*'default'"):
        AcceptanceRateByTask({"chat": 0.8, "code": 0.5}).draw(rng, tasked())


def test_tasks_of_a_trace_reach_the_requests(tmp_path):
    """The task column of a replayed trace is the request's task and chooses its acceptance rate."""
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,task\n0,1,1,chat\n1,1,1,code\n")
    workload = replace(
        PLAIN,
        horizon_s=1.0,
        arrivals=TraceReplay(str(path), length_s=1.0),
        lengths=TraceLengths(),
        acceptance_rate=AcceptanceRateByTask({"chat": 0.25, "code": 0.75}),
    )
    assert [(r.task, r.acceptance_rate) for r in rows(workload)] == [("chat", 0.25)]


def test_noise_has_the_stated_centre_and_spread():
    """Log-normal factor: mean 1, CV 0.3; log-t: median 1; Beta: mean α, CV 0.3 (each within five standard errors)."""
    count = 200_000
    sizes = Sizes(np.ones(count, dtype=np.int64), np.full(count, 10_000))
    rng = np.random.default_rng(5)
    factor = Noisy(0.3, 0.3).output_tokens(rng, sizes).predicted / 1e4
    assert factor.mean() == pytest.approx(1.0, abs=5 * 0.3 / math.sqrt(count))
    assert factor.std() == pytest.approx(0.3, rel=0.02)
    logs = np.log(Noisy(0.3, 0.3, 5.0).output_tokens(rng, sizes).predicted / 1e4)
    # the median of log T has density f(0)/scale > 1, so its error is below 0.5/sqrt(count)
    assert np.median(logs) == pytest.approx(0.0, abs=2.5 / math.sqrt(count) + 1e-4)
    # sd of the logarithm is sqrt(ln 1.09) = 0.2936 for every ν; at ν = 5 its estimate's own error is below 1 %
    assert logs.std() == pytest.approx(math.sqrt(math.log(1.09)), rel=0.03)
    rates = draw_beta(rng, np.full(count, 0.7), 0.3)
    assert rates.mean() == pytest.approx(0.7, abs=5 * 0.21 / math.sqrt(count))
    assert rates.std() == pytest.approx(0.21, rel=0.02)


def test_beta_noise_holds_at_its_limit_and_keeps_the_mean():
    """CV 0.3 is out of a Beta law's reach at mean 0.95: spread is held at a + b = 1, sd = sqrt(m(1−m)/2) = 0.154."""
    rates = draw_beta(np.random.default_rng(3), np.full(100_000, 0.95), 0.3)
    assert rates.mean() == pytest.approx(0.95, abs=5 * 0.155 / math.sqrt(1e5))
    assert rates.std() == pytest.approx(math.sqrt(0.95 * 0.05 / 2), rel=0.03)
    assert draw_beta(np.random.default_rng(3), np.array([0.0, 1.0]), 0.3).tolist() == [0.0, 1.0]


def test_noisy_truth_moves_the_truth_and_keeps_the_prediction():
    """The policy is told the drawn values; what happens scatters around them."""
    exact, noisy = rows(PLAIN), rows(replace(PLAIN, prediction=NoisyTruth(0.3, 0.3, 3.0)))
    assert [r.output_tokens for r in exact] == [r.predicted_output_tokens for r in noisy]
    assert [r.acceptance_rate for r in exact] == [r.predicted_acceptance_rate for r in noisy]
    assert [r.output_tokens for r in exact] != [r.output_tokens for r in noisy]


def test_lognormal_lengths_have_the_stated_moments():
    """Mean 1,000 and CV 1.2 (prompt), 200 and 0.5 (answer), correlation 0.6 of the logarithms, over 200,000 pairs."""
    law = LognormalLengths(1000.0, 1.2, 200.0, 0.5, 0.6)
    sizes = next(law.batches(np.random.default_rng(11), 200_000))
    assert sizes.prompt_tokens.mean() == pytest.approx(1000.0, abs=5 * 1200 / math.sqrt(2e5))
    assert sizes.output_tokens.mean() == pytest.approx(200.0, abs=5 * 100 / math.sqrt(2e5))
    assert sizes.output_tokens.std() == pytest.approx(100.0, rel=0.03)
    logs = np.log(sizes.prompt_tokens), np.log(sizes.output_tokens)
    assert np.corrcoef(*logs)[0, 1] == pytest.approx(0.6, abs=5 * 0.64 / math.sqrt(2e5) + 1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedLengths(0, 1), "prompt_tokens must be at least 1, got 0"),
        (lambda: UniformLengths(5, 4, 1, 1), r"prompt_max must be at least prompt_min \(5\), got 4"),
        (lambda: LognormalLengths(10.0, -1.0, 1.0, 1.0), "prompt_cv must be finite and at least 0"),
        (lambda: LognormalLengths(10.0, 1.0, 1.0, 1.0, 2.0), r"correlation must lie in \[-1, 1\], got 2.0"),
        (lambda: FixedDeadline(0.0), "deadline_s must be finite and positive"),
        (lambda: UniformDeadline(2.0, 1.0), "max_s must be at least min_s"),
        (lambda: PerTokenDeadline(0.0, 0.0, 0.0), "base_s must be positive when both per-token times are 0"),
        (lambda: FixedAcceptanceRate(1.1), r"acceptance_rate must lie in \[0, 1\], got 1.1"),
        (lambda: UniformAcceptanceRate(0.9, 0.1), "max must be at least min"),
        (lambda: BetaAcceptanceRate(1.0, 0.1), r"mean must lie in \(0, 1\), got 1.0"),
        (lambda: BetaAcceptanceRate(0.9, 0.3), "cv must be at most 0.236 for a Beta law of mean 0.9, got 0.3"),
        (lambda: AcceptanceRateByTask({}), "rates must have at least one entry"),
        (lambda: AcceptanceRateByTask({"a": 2.0}), r"rates must lie in \[0, 1\], got 2.0 for 'a'"),
        (lambda: Noisy(-0.1, 0.0), "length_cv must be finite and at least 0"),
        (lambda: NoisyTruth(0.1, 0.0, 2.0), "degrees_of_freedom must be above 2, got 2.0"),
        (lambda: ClassMean({"a": 0.0}, {}), "mean_output_tokens must be at least 1, got 0.0 for 'a'"),
        (lambda: ClassMean({}, {"a": 2.0}), "mean_acceptance_rate must lie in"),
        (lambda: Payload(-1.0), "fixed_bits must be finite and at least 0"),
        (lambda: Payload(0.0, 0.0, 2.0), r"image_share must lie in \[0, 1\]"),
        (lambda: replace(PLAIN, horizon_s=0.0), "horizon_s must be finite and positive"),
        (lambda: replace(PLAIN, cut_to_tokens=1), "cut_to_tokens must be at least 2, got 1"),
    ],
)
def test_bad_options_are_refused(make, message):
    """A bad option is an error that begins with the field's name."""
    with pytest.raises(ValueError, match=f"^{message}"):
        make()


def test_summary_describes_the_sample():
    """Over one replayed window the summary's figures are those of the file."""
    trace = load_trace("azure_conversation")
    prompt = trace.prompt_tokens[trace.arrival_s < 600.0]
    workload = replace(PLAIN, horizon_s=600.0, arrivals=TraceReplay("azure_conversation"), lengths=TraceLengths())
    summary = summarise(workload, Streams(1, 0))
    assert summary.requests == len(prompt)
    assert summary.rate_hz == pytest.approx(len(prompt) / 600.0)
    assert summary.prompt_tokens.mean == pytest.approx(prompt.mean())
    assert summary.prompt_tokens.largest == prompt.max()
    # the "lower" quantile of n sorted values is the one at place floor(q·(n−1))
    expected = [np.sort(prompt)[math.floor(q * (len(prompt) - 1))] for q in QUANTILES]
    assert expected == list(summary.prompt_tokens.quantiles)


def test_summary_of_a_long_run_uses_its_beginning():
    """A sample shorter than the horizon gives the rate over the time that it covers."""
    summary = summarise(replace(PLAIN, horizon_s=1e9, cut_to_tokens=600), Streams(1, 0), most=10_000)
    assert summary.requests == 10_000
    assert summary.rate_hz == pytest.approx(5.0, abs=5 * 5.0 / math.sqrt(1e4))
    # uniform s on 1..1000, n on 1..200: P(s + n > 600) = 1 − mean over n of (600−n)/1000 = 0.5005
    assert summary.cut / 1e4 == pytest.approx(0.5005, abs=5 * 0.005)


def test_summary_knows_rounds_and_endless_deadlines():
    """A round at time 0 has its rate over the horizon; no deadline is an infinite mean; no request is an error."""
    workload = replace(PLAIN, arrivals=AtOnce(6), horizon_s=3.0, deadline=NoDeadline())
    summary = summarise(workload, Streams(1, 0))
    assert (summary.rate_hz, summary.deadline_s.mean) == (2.0, math.inf)
    assert summarise(workload, Streams(1, 0), most=6).rate_hz == math.inf
    with pytest.raises(ValueError, match="must arrive before the horizon of 3 s, got none"):
        summarise(replace(PLAIN, arrivals=Poisson(1e-9), horizon_s=3.0), Streams(1, 0))
