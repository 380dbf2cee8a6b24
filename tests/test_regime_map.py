"""Tests of the regime map: its problems by hand, its rows, its picture."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.regime_map import (
    OUT,
    OUTPUT_MEAN,
    POLICIES,
    PROMPT_MEAN,
    RIVALS,
    SPREAD,
    USERS,
    Cell,
    cells,
    draw,
    problem,
    served,
    summary,
    verdicts,
)
from analysis.reproduce.balance_study import LAWS, Coefficients, Setting
from balancesim.core.padded import BatchShape, padded_cost
from balancesim.core.request import Mode

BASE = Setting(Coefficients(1e-14, 1e-13, 3e-14, 1e-13))
CELL = Cell("flops", 1.0, 0.5, 1.0)


def test_deadlines_are_measured_against_one_batch_of_all():
    """Uniform on 0.5 … 1.5 times tightness times C^A(40, 300, 100)."""
    case = problem(BASE, CELL, 0)
    whole_s = float(padded_cost(case.server, Mode.AD, 0, BatchShape(USERS, PROMPT_MEAN, OUTPUT_MEAN)).total_s)
    slack = np.concatenate([problem(BASE, CELL, replication).candidates.slack_s for replication in range(10)])
    assert 0.25 * whole_s <= slack.min() < 0.28 * whole_s
    assert 0.72 * whole_s < slack.max() <= 0.75 * whole_s
    slower = problem(BASE, replace(CELL, tightness=1.0), 0).candidates.slack_s
    assert slower == pytest.approx(2 * case.candidates.slack_s)


@pytest.mark.parametrize("law", LAWS)
def test_memory_is_measured_against_the_need_of_all(law):
    """Beside both models: memory · 40 · 400 tokens · 524,288 bytes."""
    case = problem(BASE, replace(CELL, law=law, memory=0.25), 0)
    assert case.server.free_bytes(uses_sd=True) == pytest.approx(0.25 * 40 * 400 * 524288)


def test_lengths_have_the_stated_mean_and_spread():
    """Log-normal, mean 300 and 100, CV 1, over 200 rounds: within three standard errors; longer ones are cut."""
    tables = [problem(BASE, CELL, replication).candidates for replication in range(200)]
    for name, mean in (("prompt_tokens", 300), ("output_tokens", 100)):
        lengths = np.concatenate([getattr(table, name) for table in tables])
        assert lengths.mean() == pytest.approx(mean, abs=3 * mean / np.sqrt(len(lengths)) + 0.01 * mean)
        assert lengths.std() / lengths.mean() == pytest.approx(1.0, abs=0.1)
    wide = problem(BASE, replace(CELL, length_cv=2.0), 0).candidates
    assert wide.prompt_tokens.max() <= 3072
    assert wide.output_tokens.max() <= 1024


def test_the_rivals_are_the_better_of_two_in_each_round():
    """Never below either; BALANCE is never below the best single mode."""
    frame = served(BASE, CELL, 3)
    for rival, (one, other) in RIVALS.items():
        assert frame[rival].tolist() == [max(a, b) for a, b in zip(frame[one], frame[other], strict=True)]
    assert (frame["balance"] >= frame["best_single"]).all()
    assert set(POLICIES) < set(frame.columns)


def table(seed=0):
    rng = np.random.default_rng(seed)
    names = (*POLICIES, *RIVALS)
    return pd.DataFrame(
        [summary(cell, pd.DataFrame(rng.uniform(0.2, 1.0, (3, len(names))), columns=names)) for cell in cells()]
    )


def test_a_row_has_shares_and_both_readings_of_the_gain():
    """0.6 and 0.8 against 0.5: 70 % served, 40 % or 20 points more."""
    frame = pd.DataFrame({name: [0.5, 0.5] for name in (*POLICIES, *RIVALS)})
    frame["balance"] = [0.6, 0.8]
    row = summary(CELL, frame)
    assert row["law"] == "flops"
    assert row["balance_percent"] == pytest.approx(70.0)
    assert row["gain_over_best_single_percent"] == pytest.approx(40.0)
    assert row["gain_over_two_batches_points"] == pytest.approx(20.0)
    assert row["gain_over_two_batches_points_low"] < 20 < row["gain_over_two_batches_points_high"]


def test_verdicts_count_clear_regimes_and_average_gains():
    """Everyone serves 0.5 but BALANCE 0.6 and two batches 0.55: above both everywhere, 10, 5 and 5 points."""
    frame = pd.DataFrame({name: [0.5, 0.5] for name in (*POLICIES, *RIVALS)})
    frame["balance"], frame["two_batches"] = 0.6, 0.55
    found = verdicts(pd.DataFrame([summary(cell, frame) for cell in cells()]))
    assert list(found.index) == list(LAWS)
    for column, value in (
        ("above best_single", 60), ("below two_batches", 0), ("mean over best_single", 10.0),
        ("mean over two_batches", 5.0), ("two_batches over best_single", 5.0),
    ):  # fmt: skip
        assert found[column].tolist() == pytest.approx([value] * len(LAWS))


def test_the_map_has_a_panel_for_every_law_and_spread_in_both_halves():
    """Two halves of laws times spreads."""
    drawing = draw(table())
    titles = [axes.get_title() for half in drawing.subfigs for axes in half.axes]
    assert len(titles) == 2 * len(LAWS) * len(SPREAD)
    assert titles.count("roofline, length CV 1") == 2


def test_the_stored_map_has_all_regimes():
    """One row a regime; BALANCE is nowhere below the best single mode."""
    rows = pd.read_csv(OUT / "regime_map.csv")
    assert [Cell(*values) for values in rows[list(vars(CELL))].itertuples(index=False)] == cells()
    assert (rows["gain_over_best_single_points"] >= -1e-9).all()
