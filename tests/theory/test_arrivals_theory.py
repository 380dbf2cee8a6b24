"""Arrival processes against their theory: moments and rates, with intervals over independent replications.

Each test computes one figure a replication, and asks that the theory's value lies in the 99.9 % Student interval of
its mean over the replications. Seeds are fixed, so a test that passes always passes.
"""

import math

import numpy as np
import pytest
from scipy import stats

from balancesim.acceptance_rates import UniformAcceptanceRate
from balancesim.arrivals import Diurnal, Gamma, Mmpp, Poisson, RateTable, TraceReplay, Weibull
from balancesim.deadlines import NoDeadline
from balancesim.lengths import FixedLengths, TraceLengths
from balancesim.predictors import Exact
from balancesim.streams import Streams
from balancesim.workload import Workload

pytestmark = pytest.mark.slow

REPLICATIONS = 40


def arrivals_s(process, horizon_s, replication, users=10):
    """Arrival times of one replication, made as a run makes them."""
    workload = Workload(horizon_s, process, FixedLengths(1, 1), NoDeadline(), UniformAcceptanceRate(0.5, 0.9), Exact())
    chunks = list(workload.columns(Streams(7, replication), np.arange(users)))
    times = np.concatenate([chunk.arrival_s for chunk in chunks])
    return times, np.concatenate([chunk.user_id for chunk in chunks])


def assert_mean_is(expected, values):
    """The expected value lies in the interval of the mean, and the interval is narrow enough to mean something."""
    mean = np.mean(values)
    half = stats.t.ppf(0.9995, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert abs(mean - expected) <= half, f"{expected} not in {mean} ± {half}"
    assert half < 0.1 * abs(expected)


def window_counts(times, horizon_s, window_s):
    return np.histogram(times, bins=round(horizon_s / window_s), range=(0.0, horizon_s))[0]


def test_poisson_counts_have_equal_mean_and_variance():
    """Counts in windows of 2 s at 5/s have mean 10 and variance 10."""
    counts = [window_counts(arrivals_s(Poisson(5.0), 2000.0, r)[0], 2000.0, 2.0) for r in range(REPLICATIONS)]
    assert_mean_is(10.0, [np.mean(c) for c in counts])
    assert_mean_is(10.0, [np.var(c, ddof=1) for c in counts])


def test_poisson_counts_of_disjoint_windows_are_independent():
    """Neighbouring windows are uncorrelated: E[(N₁ − 10)(N₂ − 10)] = 0, so E[(N₁+N₂ − 20)²] = 20."""
    sums = []
    for replication in range(REPLICATIONS):
        counts = window_counts(arrivals_s(Poisson(5.0), 2000.0, replication)[0], 2000.0, 2.0)
        sums.append(np.mean((counts[:-1] + counts[1:] - 20.0) ** 2))
    assert_mean_is(20.0, sums)


def test_requests_split_over_users_are_poisson():
    """Requests of one of ten users at 5/s in all: counts in windows of 4 s have mean 2 and variance 2."""
    counts = []
    for replication in range(REPLICATIONS):
        times, users = arrivals_s(Poisson(5.0), 4000.0, replication)
        counts.append(window_counts(times[users == 3], 4000.0, 4.0))
    assert_mean_is(2.0, [np.mean(c) for c in counts])
    assert_mean_is(2.0, [np.var(c, ddof=1) for c in counts])


@pytest.mark.parametrize("process", [Gamma(5.0, 0.5), Gamma(5.0, 2.0), Weibull(5.0, 0.5), Weibull(5.0, 2.0)])
def test_renewal_gaps_have_the_stated_rate_and_spread(process):
    """Mean gap 1/rate and mean squared gap (1 + CV²)/rate²."""
    gaps = [np.diff(arrivals_s(process, 4000.0, r)[0], prepend=0.0) for r in range(REPLICATIONS)]
    assert_mean_is(1 / 5.0, [np.mean(g) for g in gaps])
    assert_mean_is((1 + process.cv**2) / 25.0, [np.mean(g**2) for g in gaps])


@pytest.mark.parametrize(
    "process",
    [Mmpp((1.0, 20.0), (5.0, 1.0)), Mmpp((0.0, 10.0), (2.0, 2.0)), Mmpp((1.0, 4.0, 16.0), (4.0, 2.0, 1.0))],
)
def test_mmpp_has_its_mean_rate_from_the_start(process):
    """The rate is Σ r·τ / Σ τ over the run, and in its first second too (stationary start)."""
    rate_hz = process.mean_rate_hz
    assert_mean_is(rate_hz, [len(arrivals_s(process, 4000.0, r)[0]) / 4000.0 for r in range(REPLICATIONS)])
    assert_mean_is(rate_hz, [len(_times(process, 1.0, seed)) for seed in range(20_000)])


def _times(process, horizon_s, seed):
    times, now = [], 0.0
    for gap in process.interarrivals_s(np.random.default_rng(seed)):
        now += gap
        if now >= horizon_s:
            return times
        times.append(now)
    return times


def test_mmpp_counts_have_the_variance_of_theory():
    """Two states, rates 1 and 9, mean sojourns 2 s: mean 5/s; the index of dispersion in windows of t.

    Var N(t) = λt + 2·p₁p₂(r₁−r₂)²·(t/σ − (1−e^{−σt})/σ²) with σ = 1/τ₁ + 1/τ₂ = 1, p = 1/2 (Fischer and
    Meier-Hellstern, "The Markov-modulated Poisson process cookbook", 1993). t = 4: 20 + 2·16·(4 − 1 + e⁻⁴) = 116.59.
    """
    process = Mmpp((1.0, 9.0), (2.0, 2.0))
    counts = [window_counts(arrivals_s(process, 8000.0, r)[0], 8000.0, 4.0) for r in range(REPLICATIONS)]
    assert_mean_is(20.0, [np.mean(c) for c in counts])
    assert_mean_is(20.0 + 32.0 * (3.0 + math.exp(-4.0)), [np.mean((c - 20.0) ** 2) for c in counts])


def test_diurnal_rate_follows_the_sine_in_every_phase():
    """Eighths of the period: mean rate over [a, b] is m + m·A·(cos 2πa − cos 2πb)/(2π(b−a)), times in periods."""
    process = Diurnal(5.0, 0.8, 200.0, 0.1)
    counts = []
    for replication in range(REPLICATIONS):
        phases = (arrivals_s(process, 4000.0, replication)[0] / 200.0) % 1.0
        counts.append(np.histogram(phases, bins=8, range=(0.0, 1.0))[0] / (4000.0 / 8))
    for part, rates in enumerate(np.transpose(counts)):
        begin, end = 2 * math.pi * (part / 8 + 0.1), 2 * math.pi * ((part + 1) / 8 + 0.1)
        assert_mean_is(5.0 + 4.0 * (math.cos(begin) - math.cos(end)) / (end - begin), rates)


def test_rate_table_keeps_each_step():
    """Rates 2, 8 and 5 for 50 s each, repeated: the counts in each step have that mean and are Poisson."""
    process = RateTable((2.0, 8.0, 5.0), 50.0)
    counts = [
        window_counts(arrivals_s(process, 3000.0, r)[0], 3000.0, 50.0).reshape(-1, 3) for r in range(REPLICATIONS)
    ]
    for step, rate_hz in enumerate(process.rates_hz):
        assert_mean_is(rate_hz * 50.0, [np.mean(c[:, step]) for c in counts])
        variances = [np.mean((c[:, step] - rate_hz * 50.0) ** 2) for c in counts]
        half = stats.t.ppf(0.9995, REPLICATIONS - 1) * np.std(variances, ddof=1) / math.sqrt(REPLICATIONS)
        assert np.mean(variances) == pytest.approx(rate_hz * 50.0, abs=half)


def test_thinned_replay_has_the_share_of_the_rate():
    """Keeping 30 % of a window leaves 30 % of its requests on average over replications."""
    replay = TraceReplay("azure_conversation", windows="same", keep_share=0.3)
    whole = TraceReplay("azure_conversation", windows="same").for_replication(Streams(7, 0), 1000.0)
    kept = [len(replay.for_replication(Streams(7, r), 1000.0).arrival_s) for r in range(REPLICATIONS)]
    assert_mean_is(0.3 * len(whole.arrival_s), kept)


def test_bootstrap_keeps_the_traces_means():
    """Lengths drawn from the Azure trace have its means, 1,154.697 and 211.126 tokens."""
    law = TraceLengths("azure_conversation")
    draws = [next(law.batches(Streams(7, r).sequential("lengths"), 4096)) for r in range(REPLICATIONS)]
    assert_mean_is(1154.697408, [np.mean(d.prompt_tokens) for d in draws])
    assert_mean_is(211.125942, [np.mean(d.output_tokens) for d in draws])


def test_a_million_rows_are_read_in_seconds(tmp_path):
    """A generated trace of 1,000,000 rows is read in under 5 s, and its requests are made at over 50,000 a second.

    Measured on two cores: 0.4 s and 450,000 a second; the limits leave room for a busy machine.
    """
    import time

    import pandas as pd

    from balancesim.trace_formats import read_trace

    rng = np.random.default_rng(1)
    count = 1_000_000
    frame = pd.DataFrame(
        {
            "arrival_s": np.cumsum(rng.exponential(1.0, count)),
            "prompt_tokens": rng.integers(1, 2000, count),
            "output_tokens": rng.integers(1, 1000, count),
        }
    )
    path = tmp_path / "million.csv"
    frame.to_csv(path, index=False)
    begin = time.process_time()
    read = read_trace(path)
    assert time.process_time() - begin < 5.0
    pd.testing.assert_frame_equal(read, frame)
    replay = TraceReplay(str(path))
    workload = Workload(9e5, replay, TraceLengths(), NoDeadline(), UniformAcceptanceRate(0.5, 0.9), Exact())
    begin = time.process_time()
    generated = sum(1 for _ in workload.requests(Streams(1, 0), np.arange(100)))
    assert generated / (time.process_time() - begin) > 150_000 / 3
    assert generated == np.count_nonzero(frame["arrival_s"] < 9e5)
