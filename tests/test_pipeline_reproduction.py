"""Tests of the two-node study: its world, its constants, and the arithmetic of its tables."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.reproduce.fit_pipeline import BITS_PER_TOKEN, RANGES
from analysis.reproduce.pipeline import below_percent, compare, interval, sweeps
from analysis.reproduce.pipeline_report import comparison_table, residual_points, verdict
from analysis.reproduce.pipeline_study import PAIRS, Comparisons, Constants, Setting, affine, instance
from balancesim.catalog import llm
from balancesim.core.gpu import GpuSpec
from balancesim.core.pipeline_instance import admit

CONSTANTS = Constants(32.0, 0.5, 1.0, 0.5, 1.0, 1e-5)
FIT = Path("docs/reproduction/pipeline_fit.json")


def test_affine_constants_by_hand():
    """c1 = 1/(efficiency·peak); c2 = factor·streamed weights/bandwidth + layer time·layers."""
    model, gpu = llm("TinyLlama-1.1B"), GpuSpec("any", 1e13, 1e11, 16e9)
    law = affine(model, gpu, 0.5, 2.0, 1e-4)
    assert law.s_per_flop == pytest.approx(1 / 5e12)
    assert law.fixed_s == pytest.approx(2 * model.streamed_weight_bytes / 1e11 + 22e-4)


def test_the_world_is_the_same_for_every_pair_and_scales_with_the_sweep():
    """Pairs and bands share users and lengths; a longer maximum stretches the same ranks."""
    one, other = (instance(CONSTANTS, Setting(pair), 3) for pair in ("68M/7B", "1.1B/13B"))
    for name in vars(one.tasks):
        assert getattr(one.tasks, name).tolist() == getattr(other.tasks, name).tolist()
    short = instance(CONSTANTS, Setting("68M/7B", max_input=256), 3)
    assert np.abs(one.tasks.prompt_tokens - 2 * short.tasks.prompt_tokens).max() <= 2
    assert one.tasks.upload_bits.tolist() == (32.0 * one.tasks.prompt_tokens).tolist()


@pytest.mark.parametrize("pair", PAIRS)
def test_every_task_of_the_paper_fits(pair):
    """100 tasks of up to 512 + 2048 tokens fit the 16 GB beside either draft: memory is not what limits batches."""
    case = instance(CONSTANTS, Setting(pair), 0)
    assert len(admit(case).admitted) == 100
    together = case.kv_tokens(np.array([100]), np.array([512]))
    assert together[0] < case.kv_room_tokens(1)


def test_users_at_the_edge_have_the_rate_of_the_link_budget():
    """At 400 m, macro: 23.01 dBm − (128.1 + 37.6·lg 0.4) dB + 106 dBm = 15.87 dB; nobody is below log2(1 + SNR)."""
    edge = math.log2(1 + 10 ** ((10 * math.log10(200) - 128.1 - 37.6 * math.log10(0.4) + 106) / 10))
    rates = instance(CONSTANTS, Setting("68M/7B", tasks=2000), 0).tasks.spectral_efficiency_bps_hz
    assert edge <= rates.min() <= 1.01 * edge


def test_interval_by_hand():
    """Mean 2 of 1, 2, 3: half width t(0.975; 2)·1/√3 = 4.3027/1.7321."""
    mean, low, high = interval(pd.Series([1.0, 2.0, 3.0]))
    assert (mean, low, high) == pytest.approx((2.0, 2 - 2.48414, 2 + 2.48414), abs=1e-4)
    assert math.isnan(interval(pd.Series([1.0]))[1])


def frame(pair: str = "68M/7B") -> pd.DataFrame:
    rows = [
        ("bandwidth", "25", pair, scheme, replication, total)
        for replication, totals in enumerate([(6.0, 10.0), (9.0, 12.0)])
        for scheme, total in zip(("joint", "uniform_bandwidth"), totals, strict=True)
    ]
    return pd.DataFrame(rows, columns=["figure", "x", "pair", "scheme", "replication", "total_s"])


def test_reductions_are_paired_within_a_replication():
    """1 − 6/10 = 40 % and 1 − 9/12 = 25 %: mean 32.5 %, not 1 − 15/22."""
    assert below_percent(frame(), "uniform_bandwidth").tolist() == pytest.approx([40.0, 25.0])
    table = compare(frame(), Comparisons())
    row = table[table["paper"] == 44.9].iloc[0]
    assert row["ours"] == pytest.approx(32.5)
    assert "| 44.9 | 32.5 |" in comparison_table(table)
    assert residual_points(table, "without_pipeline") == pytest.approx(44.9 - 32.5)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((math.nan, 2.0, 1.0, 3.0), "holds"),
        ((math.nan, 0.5, -1.0, 2.0), "not clear"),
        ((math.nan, -2.0, -3.0, -1.0), "does not hold"),
        ((20.0, 22.9, 22.0, 23.0), "met"),
        ((20.0, 26.0, 19.0, 33.0), "met"),
        ((20.0, 26.0, 25.0, 27.0), "sign only"),
        ((20.0, -1.0, -2.0, 0.5), "not met"),
    ],
)
def test_verdicts(numbers, expected):
    """Within 3 points or inside the interval is met; else only the sign can hold."""
    assert verdict(*numbers) == expected


def test_every_statement_of_the_paper_has_its_point_in_a_sweep():
    """No comparison is lost because its setting is not simulated."""
    comparisons = Comparisons(pair="1.1B/7B")
    points = {
        (sweep.figure, x, setting, scheme)
        for sweep in sweeps("1.1B/7B", comparisons.alphas)
        for x, setting in sweep.points
        for scheme in sweep.schemes
    }
    for item in comparisons.items:
        assert (item.figure, item.x, item.setting, item.baseline) in points


def test_fitted_constants_lie_inside_their_declared_ranges():
    """The stored fit stays inside the ranges of the search."""
    constants = json.loads(FIT.read_text())["constants"]
    Constants(**constants)
    for name, (low, high) in RANGES.items():
        assert low * (1 - 1e-9) <= constants[name] <= high * (1 + 1e-9)
    assert BITS_PER_TOKEN[0] <= constants["bits_per_token"] <= BITS_PER_TOKEN[-1] * (1 + 1e-9)
