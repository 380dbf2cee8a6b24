"""Arrival processes: contracts over the list, hand-computed values, trace windows."""

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim.arrivals import (
    ARRIVALS,
    AtOnce,
    Deterministic,
    Diurnal,
    Gamma,
    Mmpp,
    Poisson,
    RateTable,
    TraceReplay,
    Weibull,
)
from balancesim.arrivals.chunks import CHUNK
from balancesim.arrivals.weibull import weibull_cv, weibull_shape
from balancesim.streams import Streams
from balancesim.trace_formats import TraceError, load_trace

EXAMPLES = [
    Poisson(4.0),
    Gamma(4.0, 2.5),
    Weibull(4.0, 0.5),
    Mmpp((1.0, 20.0, 0.0), (5.0, 1.0, 2.0)),
    Diurnal(4.0, 0.5, 100.0, 0.25),
    RateTable((1.0, 0.0, 6.0), 10.0),
    Deterministic(4.0),
    AtOnce(8, 2.0),
    TraceReplay("azure_conversation"),
]


def times_s(process, count, seed=1):
    return np.cumsum(list(islice(process.interarrivals_s(np.random.default_rng(seed)), count)))


def test_every_listed_process_has_an_example():
    """The contract tests run over every process in the list."""
    assert {type(example) for example in EXAMPLES} == set(ARRIVALS)
    assert len({cls.name for cls in ARRIVALS}) == len(ARRIVALS)


@pytest.mark.parametrize("process", EXAMPLES, ids=lambda process: process.name)
def test_processes_repeat_and_never_go_back(process):
    """Gaps are finite, never negative, equal for equal seeds, and a longer run begins as a shorter one."""
    long, short = times_s(process, 2 * CHUNK + 7), times_s(process, 10)
    assert len(long) == 2 * CHUNK + 7
    assert np.all(np.isfinite(long))
    assert np.all(np.diff(long, prepend=0.0) >= 0)
    assert long[:10].tolist() == short.tolist()


@pytest.mark.parametrize("process", EXAMPLES, ids=lambda process: process.name)
def test_gaps_are_plain_floats(process):
    """The iterator hands out floats, as SimPy expects."""
    assert {type(gap) for gap in islice(process.interarrivals_s(np.random.default_rng(1)), 20)} == {float}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Poisson(0.0), "rate_hz must be finite and positive, got 0.0"),
        (lambda: Poisson(math.nan), "rate_hz must be finite and positive, got nan"),
        (lambda: Gamma(1.0, -1.0), "cv must be finite and positive"),
        (lambda: Weibull(1.0, 1e9), r"cv must lie in \[.*\] for a Weibull law"),
        (lambda: Mmpp((1.0,), (1.0,)), "rates_hz must have at least 2 states, got 1"),
        (lambda: Mmpp((1.0, 2.0), (1.0,)), "sojourns_s must have 2 entries, got 1"),
        (lambda: Mmpp((1.0, -2.0), (1.0, 1.0)), "rates_hz must be finite and at least 0"),
        (lambda: Mmpp((1.0, 2.0), (1.0, 0.0)), "sojourns_s must be finite and positive"),
        (lambda: Mmpp((0.0, 0.0), (1.0, 1.0)), "rates_hz must have a positive rate"),
        (lambda: Diurnal(1.0, 1.5, 10.0, 0.0), r"amplitude must lie in \[0, 1\], got 1.5"),
        (lambda: Diurnal(1.0, 0.5, 10.0, math.inf), "phase must be finite"),
        (lambda: RateTable((), 10.0), "rates_hz must have a positive rate"),
        (lambda: RateTable((-1.0,), 10.0), "rates_hz must be finite and at least 0"),
        (lambda: AtOnce(0), "users must be at least 1, got 0"),
        (lambda: AtOnce(1, 0.0), "period_s must be finite and positive"),
        (lambda: TraceReplay("x", keep_share=1.5), "keep_share must be at most 1, got 1.5"),
        (lambda: TraceReplay("x", length_s=0.0), "length_s must be finite and positive"),
        (lambda: TraceReplay("x", windows="last"), "windows must be next or same, got 'last'"),
    ],
)
def test_bad_options_are_refused(make, message):
    """A bad option is an error that begins with the field's name."""
    with pytest.raises(ValueError, match=f"^{message}"):
        make()


def test_deterministic_arrivals_do_not_drift():
    """The running sum of the gaps is k/rate exactly, as rounded once."""
    expected = np.arange(1, 3 * CHUNK + 1) / 30.0
    assert expected.tolist() == times_s(Deterministic(30.0), 3 * CHUNK).tolist()


@given(period_s=st.floats(1e-3, 1e3), users=st.integers(1, 5))
def test_rounds_fall_on_multiples_of_the_period(period_s, users):
    """Round k of at_once falls on k·period exactly, so that it meets an epoch of that period."""
    expected = [k * period_s for k in range(200) for _ in range(users)]
    total, actual = 0.0, []
    for gap in islice(AtOnce(users, period_s).interarrivals_s(np.random.default_rng(0)), 200 * users):
        total += gap
        actual.append(total)
    assert expected == actual


def test_one_round_ends():
    """Without a period there is one round of K users at time 0, and no long-run rate."""
    assert list(AtOnce(3).interarrivals_s(np.random.default_rng(0))) == [0.0, 0.0, 0.0]
    assert AtOnce(3).mean_rate_hz == 0.0


def test_mean_rates_by_hand():
    """Mmpp: (2·3 + 10·1)/(3+1) = 4; table: (1+0+5)/3 = 2; 8 users every 2 s = 4."""
    assert Mmpp((2.0, 10.0), (3.0, 1.0)).mean_rate_hz == 4.0
    assert RateTable((1.0, 0.0, 5.0), 10.0).mean_rate_hz == 2.0
    assert AtOnce(8, 2.0).mean_rate_hz == 4.0
    assert Diurnal(4.0, 0.5, 100.0, 0.0).mean_rate_hz == 4.0
    plain = Poisson(3.0), Gamma(3.0, 2.0), Weibull(3.0, 2.0), Deterministic(3.0)
    assert [process.mean_rate_hz for process in plain] == [3.0] * 4


def test_weibull_shape_one_is_exponential():
    """At k = 1: Γ(3)/Γ(2)² − 1 = 1, so CV 1; at k = 1/2: Γ(5)/Γ(3)² − 1 = 24/4 − 1 = 5."""
    assert weibull_cv(1.0) == pytest.approx(1.0, abs=1e-12)
    assert weibull_cv(0.5) == pytest.approx(math.sqrt(5.0), abs=1e-12)
    assert weibull_shape(math.sqrt(5.0)) == pytest.approx(0.5, rel=1e-9)


def test_silent_states_send_nothing():
    """A rate table's zero hour and an MMPP's silent state have no arrivals."""
    arrivals = times_s(RateTable((5.0, 0.0), 10.0), 3000)
    assert np.all(arrivals % 20.0 < 10.0)
    # 1,000 expected arrivals a burst of mean 1 s, bursts 1,000 s apart: gaps within are tiny against those between
    gaps = np.diff(times_s(Mmpp((0.0, 1000.0), (1000.0, 1.0)), 20_000))
    assert np.median(gaps) < 0.01
    assert gaps.max() > 100.0


def test_sine_rate_by_hand():
    """mean 4, amplitude 0.5, phase 0: rate 4 at 0, 6 at a quarter period, 2 at three quarters."""
    rates = Diurnal(4.0, 0.5, 100.0, 0.0).rate_hz(np.array([0.0, 25.0, 75.0]))
    assert rates.tolist() == pytest.approx([4.0, 6.0, 2.0])


def test_replay_keeps_recorded_times_and_pairs():
    """Replication 1 replays the second window of 600 s: the same times, prompts and answers as in the file."""
    rows = load_trace("azure_conversation")
    window = (rows.arrival_s >= 600.0) & (rows.arrival_s < 1200.0)
    replayed = TraceReplay("azure_conversation").for_replication(Streams(1, 1), 600.0)
    assert replayed.arrival_s.tolist() == (rows.arrival_s[window] - 600.0).tolist()
    assert replayed.sizes.prompt_tokens.tolist() == rows.prompt_tokens[window].tolist()
    assert replayed.sizes.output_tokens.tolist() == rows.output_tokens[window].tolist()
    assert replayed.mean_rate_hz == pytest.approx(window.sum() / 600.0)


def test_windows_run_out_with_a_clear_error():
    """3,501.7 s hold five windows of 600 s; the sixth replication says so."""
    replay = TraceReplay("azure_conversation")
    assert replay.replications(600.0) == 5
    with pytest.raises(TraceError, match=r"replication 5 needs the trace from 3000 s to 3600 s.*5 replications fit"):
        replay.for_replication(Streams(1, 5), 600.0)


def test_same_window_serves_every_replication():
    """With windows = "same" replication 7 replays what replication 0 does."""
    replay = TraceReplay("azure_conversation", windows="same", start_s=100.0, length_s=600.0)
    first, other = (replay.for_replication(Streams(1, replication), 600.0) for replication in (0, 7))
    assert first.arrival_s.tolist() == other.arrival_s.tolist()


def test_ticks_fill_whole_windows():
    """Mooncake's 800 ticks of 3 s are exactly four windows of 600 s."""
    assert TraceReplay("mooncake_conversation").replications(600.0) == 4


def test_ticks_are_spread_within_themselves():
    """Each request stays within its 3-second tick and in its order; two seeds spread differently, one alike."""
    rows = load_trace("mooncake_conversation")
    replay = TraceReplay("mooncake_conversation")
    spread = replay.for_replication(Streams(1, 0), 2400.0)
    ticks = np.rint(rows.arrival_s / 3.0)
    assert ticks.tolist() == np.floor(spread.arrival_s / 3.0).tolist()
    assert spread.sizes.prompt_tokens.tolist() == rows.prompt_tokens.tolist()
    assert spread.arrival_s.tolist() == replay.for_replication(Streams(1, 0), 2400.0).arrival_s.tolist()
    assert spread.arrival_s.tolist() != replay.for_replication(Streams(2, 0), 2400.0).arrival_s.tolist()
    # uniform on [0, 3): mean 1.5, standard error 3/sqrt(12·7851) = 0.0098; five of them
    assert np.mean(spread.arrival_s % 3.0) == pytest.approx(1.5, abs=0.05)


def test_ticks_stay_as_filed_when_asked():
    """Without spreading the arrivals have the file's 800 distinct times."""
    replay = TraceReplay("mooncake_conversation", spread_ticks=False, length_s=2400.0)
    assert len(np.unique(replay.for_replication(Streams(1, 0), 2400.0).arrival_s)) == 800


def test_rate_scale_compresses_time():
    """At rate_scale 2 a horizon of 300 s replays 600 s of the trace at twice the rate."""
    plain = TraceReplay("azure_conversation").for_replication(Streams(1, 0), 600.0)
    fast = TraceReplay("azure_conversation", rate_scale=2.0).for_replication(Streams(1, 0), 300.0)
    assert (plain.arrival_s / 2.0).tolist() == fast.arrival_s.tolist()
    assert fast.mean_rate_hz == pytest.approx(2 * plain.mean_rate_hz)


def test_thinning_keeps_a_subset():
    """Kept requests are some of the window's, about the share asked for (binomial, five standard deviations)."""
    whole = TraceReplay("azure_conversation").for_replication(Streams(1, 0), 3000.0)
    thin = TraceReplay("azure_conversation", keep_share=0.25).for_replication(Streams(1, 0), 3000.0)
    count = len(whole.arrival_s)
    assert set(thin.arrival_s.tolist()) < set(whole.arrival_s.tolist())
    assert len(thin.arrival_s) == pytest.approx(count / 4, abs=5 * math.sqrt(count * 0.25 * 0.75))


@pytest.mark.parametrize(
    ("replay", "horizon_s", "message"),
    [
        (TraceReplay("azure_conversation", length_s=300.0), 600.0, "length_s must cover the horizon: 600 s"),
        (TraceReplay("azure_conversation", start_s=9999.0), 600.0, "0 replications fit"),
        (TraceReplay("azure_conversation", keep_share=1e-9), 10.0, "must have requests from 0 s to 10 s, got none"),
    ],
)
def test_windows_without_requests_are_refused(replay, horizon_s, message):
    """A window that is too short, beyond the end, or empty is an error."""
    with pytest.raises(TraceError, match=message):
        replay.for_replication(Streams(1, 0), horizon_s)


def test_replays_mean_rate_covers_the_rest_of_the_trace():
    """19,366 requests over 3,501.721937 s are 5.530 a second; thinning and scaling multiply it."""
    assert TraceReplay("azure_conversation").mean_rate_hz == pytest.approx(19_366 / 3501.721937)
    half = TraceReplay("azure_conversation", keep_share=0.5, rate_scale=4.0)
    assert half.mean_rate_hz == pytest.approx(2 * 19_366 / 3501.721937)
    assert TraceReplay("azure_conversation", start_s=5000.0).mean_rate_hz == 0.0
