"""Metrics on tables made by hand."""

import math

import pandas as pd
import pytest

from balancesim.columns import EpochRow, GpuRow, RequestRow
from balancesim.core.power import GpuPower
from balancesim.core.request import Mode, Outcome, RejectReason
from balancesim.metrics import (
    METRICS,
    AcceptanceRatio,
    AcceptedTokensPerRound,
    E2eLatency,
    Energy,
    EnergyPerRequest,
    EnergyPerToken,
    GoodputRps,
    GpuBusyShare,
    GpuPhase,
    KvPeakShare,
    MeanPhase,
    OutcomeShare,
    Phase,
    PrefixHitShare,
    ServedInTime,
    ServerTtft,
    SwitchShare,
    ThroughputRps,
    ThroughputTps,
    Tpot,
    TpotAttainment,
    TtftAttainment,
    UserTtft,
    Window,
    standard_metrics,
)
from balancesim.recorder import MemoryRecorder
from balancesim.registry import help_line
from tests.result_folders import NEVER_IN, epoch_row, gpu_row, request_row

WINDOW = Window(10.0, 100.0)  # 90 s

#: Six offered requests (numbers 1 to 6), one that arrived in the warm-up and one after the horizon.
REQUESTS = (
    # the warm-up's answer reaches its user at 9 + 3.125 = 12.125 s, inside the window
    request_row(0, 9.0, Outcome.COMPLETED),
    request_row(1, 10.0, Outcome.COMPLETED),
    # in time, one token: server at 21.0, user at 21.125
    request_row(
        2, 20.0, Outcome.COMPLETED, output_tokens=1, tokens_out=1, server_last_token_s=21.0, user_last_token_s=21.125
    ),
    # late by SD: 3 rounds drafted 4 each, 7 kept; TTFT at the user 4.125, answer at 39.125
    request_row(
        3,
        30.0,
        Outcome.LATE,
        mode=Mode.SD,
        lane_id=1,
        draft_length=4,
        draft_rounds=3,
        drafted_tokens=12,
        accepted_tokens=7,
        cached_tokens=60,
        prefill_start_s=33.75,
        server_first_token_s=34.0,
        server_last_token_s=39.0,
        user_first_token_s=34.125,
        user_last_token_s=39.125,
    ),
    # stopped at its deadline after 5 tokens: late, reached nobody
    request_row(4, 40.0, Outcome.LATE, tokens_out=5, server_last_token_s=None, user_last_token_s=None),
    request_row(5, 50.0, Outcome.REJECTED, reject_reason=RejectReason.POLICY, **NEVER_IN),
    # arrives at the horizon, and its answer reaches the user at 103.125, after it
    request_row(6, 100.0, Outcome.COMPLETED),
    request_row(7, 100.5, Outcome.EXPIRED, **NEVER_IN),
)
EPOCHS = (
    epoch_row(5.0, kv_peak_bytes=4e9),  # before the window
    epoch_row(15.0),  # 3e9 of 4e9
    epoch_row(15.0, server_id=1, kv_peak_bytes=1e9, kv_capacity_bytes=2e9),
)
GPU = (
    gpu_row(8.0, 12.0, prefill_s=1.0, decode_s=2.0, switch_s=0.5),  # half inside
    gpu_row(20.0, 40.0, lane_id=1, mode=Mode.SD, draft_s=3.0, verify_s=6.0, switch_s=0.25, server_id=1),
    gpu_row(90.0, 110.0, decode_s=4.0),  # half inside
    gpu_row(50.0, 50.0),  # without length
    gpu_row(110.0, 120.0, decode_s=9.0),  # outside
)


def tables(
    requests: tuple[RequestRow, ...] = REQUESTS, epochs: tuple[EpochRow, ...] = EPOCHS, gpu: tuple[GpuRow, ...] = GPU
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return rows as the frames that a metric gets."""
    memory = MemoryRecorder()
    memory.requests.extend(requests)
    memory.epochs.extend(epochs)
    memory.gpu_spans.extend(gpu)
    return memory.frame("requests"), memory.frame("epochs"), memory.frame("gpu")


# answered and offered: requests 1, 2, 3, 6 with e2e 3.125, 1.125, 9.125, 3.125 and user TTFT 1.125, 1.125, 4.125,
# 1.125; their last tokens arrive at 13.125, 21.125, 39.125 and 103.125, that of request 0 at 12.125
POWERS = (GpuPower(20.0, 100.0, 70.0), GpuPower(50.0, 200.0, 150.0))
JOULES = 70.0 * 90 + 0.5 * 80 + 3.0 * 50 + 9.0 * 100

EXPECTED = [
    (ServedInTime(WINDOW), 3 / 6),
    (OutcomeShare(WINDOW, Outcome.COMPLETED), 3 / 6),
    (OutcomeShare(WINDOW, Outcome.LATE), 2 / 6),
    (OutcomeShare(WINDOW, Outcome.REJECTED), 1 / 6),
    (OutcomeShare(WINDOW, Outcome.EXPIRED), 0.0),
    (OutcomeShare(WINDOW, Outcome.UNFINISHED), 0.0),
    (ThroughputRps(WINDOW), 4 / 90),  # requests 0, 1, 2, 3
    (GoodputRps(WINDOW), 3 / 90),  # requests 0, 1, 2
    (ThroughputTps(WINDOW), (11 + 11 + 1 + 11) / 90),
    (ServerTtft(WINDOW, 0.5), 1.0),
    (UserTtft(WINDOW, 0.5), 1.125),
    (UserTtft(WINDOW, 1.0), 4.125),
    # TPOT of 1 and 6: 2 s / 10 gaps; of 3: 5 s / 10 gaps; 2 has no gap
    (Tpot(WINDOW, 0.5), 0.2),
    (Tpot(WINDOW, 1.0), 0.5),
    (E2eLatency(WINDOW, 0.5), 3.125),
    # place 0.95 · 3 = 2.85 of 1.125, 3.125, 3.125, 9.125: 3.125 + 0.85 · 6
    (E2eLatency(WINDOW, 0.95), 8.225),
    (MeanPhase(WINDOW, Phase.UPLOAD), 0.5),
    (MeanPhase(WINDOW, Phase.WAIT), (0.25 + 0.25 + 3.25 + 0.25) / 4),
    (MeanPhase(WINDOW, Phase.PREFILL), 0.25),
    (MeanPhase(WINDOW, Phase.DECODE), (2 + 0 + 5 + 2) / 4),
    (MeanPhase(WINDOW, Phase.DOWNLINK), 0.125),
    # inside: (1 + 2)/2 + (3 + 6) + 4/2 = 12.5 s of 2 servers · 90 s
    (GpuBusyShare(WINDOW, 2), 12.5 / 180),
    (SwitchShare(WINDOW, 2), (0.25 + 0.25) / 180),
    (GpuPhase(WINDOW, "prefill_s"), 0.5),
    (GpuPhase(WINDOW, "decode_s"), 1.0 + 2.0),
    (GpuPhase(WINDOW, "draft_s"), 3.0),
    (GpuPhase(WINDOW, "verify_s"), 6.0),
    (GpuPhase(WINDOW, "switch_s"), 0.5),
    (KvPeakShare(WINDOW), 0.75),
    (AcceptedTokensPerRound(WINDOW), 7 / 3),
    (AcceptanceRatio(WINDOW), 7 / 12),
    # 3 had 60 of its 100 prompt tokens in the cache; 1, 2, 4, 6 had none; 5 was not prefilled
    (PrefixHitShare(WINDOW), 60 / 500),
    # TTFT of 1, 2, 3, 4, 6: 1.125, 1.125, 4.125, 1.125, 1.125; 5 has none
    (TtftAttainment(WINDOW, 2.0), 4 / 6),
    # 1 and 6 at 0.2, 2 has one token, 3 at 0.5, 4 and 5 have no answer
    (TpotAttainment(WINDOW, 0.3), 3 / 6),
    # idle (20 + 50) W · 90 s; server 0: 0.5 s of prefill at +80 W, 1 + 2 s of decoding at +50 W; server 1: 9 s, +100 W
    (Energy(WINDOW, POWERS), JOULES),
    (EnergyPerRequest(WINDOW, POWERS), JOULES / 4),  # requests 0, 1, 2, 3
    (EnergyPerToken(WINDOW, POWERS), JOULES / (11 + 11 + 1 + 11)),
]


@pytest.mark.parametrize(("metric", "expected"), EXPECTED, ids=lambda value: getattr(value, "label", None))
def test_value(metric, expected):
    """Each metric has the value worked out by hand."""
    assert pytest.approx(expected, rel=1e-12) == metric.compute(*tables())


def test_every_metric_has_a_hand_worked_value():
    """No metric of the family goes without a test above."""
    assert set(METRICS) == {type(metric) for metric, _ in EXPECTED}


def test_outcome_shares_sum_to_one():
    """Every offered request has exactly one outcome."""
    assert pytest.approx(sum(OutcomeShare(WINDOW, outcome).compute(*tables()) for outcome in Outcome)) == 1.0


def test_phases_sum_to_the_latency():
    """The five phases of the answered requests sum to the mean end-to-end latency, (3.125·2 + 1.125 + 9.125)/4."""
    total = sum(MeanPhase(WINDOW, phase).compute(*tables()) for phase in Phase)
    assert pytest.approx((3.125 * 2 + 1.125 + 9.125) / 4) == total


@pytest.mark.parametrize("metric", standard_metrics(WINDOW, 2), ids=lambda metric: metric.label)
def test_nothing_happened(metric):
    """With empty tables a metric is NaN, or 0 where nothing is a number."""
    value = metric.compute(*tables((), (), ()))
    assert value == 0.0 or math.isnan(value)


@pytest.mark.parametrize("metric", standard_metrics(WINDOW, 2), ids=lambda metric: metric.label)
def test_order_of_rows_is_irrelevant(metric):
    """A metric does not depend on the order of rows, and leaves the tables as they were."""
    frames = tables()
    copies = [frame.copy() for frame in frames]
    value = metric.compute(*frames)
    for frame, copy in zip(frames, copies, strict=True):
        pd.testing.assert_frame_equal(frame, copy)
    assert value == pytest.approx(metric.compute(*(frame.iloc[::-1] for frame in frames)), nan_ok=True)


def test_unserved_requests_count_against_it():
    """Turning requests away cannot raise the share served in time: 1 of 4, not 1 of 1."""
    away = [
        request_row(i, 20.0, outcome, **NEVER_IN)
        for i, outcome in enumerate([Outcome.REJECTED, Outcome.EXPIRED, Outcome.UNFINISHED])
    ]
    served = request_row(9, 20.0, Outcome.COMPLETED)
    assert ServedInTime(WINDOW).compute(*tables((served, *away))) == 0.25


def test_window_without_length_has_no_rates():
    """A window of one instant has shares but no rate."""
    window = Window(10.0, 10.0)
    assert ServedInTime(window).compute(*tables()) == 1.0
    assert math.isnan(ThroughputRps(window).compute(*tables()))


def test_labels_are_unique_and_documented():
    """The labels of the standard metrics tell them apart, and every metric has a unit and a line of help."""
    metrics = standard_metrics(WINDOW, 1)
    assert len({metric.label for metric in metrics}) == len(metrics)
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.unit
        assert help_line(metric).endswith(".")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Window(5.0, 4.0), "warmup_s must be at least 0 and at most horizon_s, got 5.0 and 4.0"),
        (lambda: Window(-1.0, 4.0), "warmup_s must be"),
        (lambda: Window(0.0, math.inf), "warmup_s must be"),
        (lambda: E2eLatency(WINDOW, 1.5), "quantile must be between 0 and 1, got 1.5"),
        (lambda: GpuBusyShare(WINDOW, 0), "servers must be at least 1, got 0"),
        (lambda: SwitchShare(WINDOW, 0), "servers must be at least 1, got 0"),
        (lambda: GpuPhase(WINDOW, "steps"), "column must be one of prefill_s, .*, got steps"),
        (lambda: TtftAttainment(WINDOW, 0.0), "target_s must be positive, got 0.0"),
        (lambda: TpotAttainment(WINDOW, math.nan), "target_s must be positive, got nan"),
    ],
)
def test_wrong_options_are_refused(make, message):
    """An option outside its range names the rule and the value."""
    with pytest.raises(ValueError, match=message):
        make()
