"""Tests of the BALANCE study: its problems, what counts as served, the paper's numbers, the tables' arithmetic."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.reproduce import balance
from analysis.reproduce.balance_claims import (
    CLAIMS,
    COLUMNS,
    POINTS,
    RELATIVE,
    TWO_BATCHES,
    Claim,
    compared,
    gain,
    in_reading,
    residuals,
    with_two_batches,
)
from analysis.reproduce.balance_report import judged
from analysis.reproduce.balance_single import INPUT_TOKENS, OUTPUT_TOKENS, single_request
from analysis.reproduce.balance_study import LAWS, PAIRS, Coefficients, Round, Setting, one_round, server, weight_bytes
from analysis.reproduce.balance_sweeps import (
    ABLATIONS,
    AXES,
    PREDICTIONS,
    SCHEMES,
    Scheme,
    along,
    exhaustive_sweep,
    law_sweeps,
    paper_sweeps,
    run_point,
    serve,
    served_in_time,
)
from analysis.reproduce.fit_balance import COARSE, RANGES, RESULT, setting
from balancesim.catalog import llm
from balancesim.core.decision import Decision, Lane
from balancesim.core.request import Mode
from balancesim.policies import Balance
from balancesim.predictors import NoisyTruth
from tests.problems import LinearLaw, make_candidates, make_problem, make_server

KAPPAS = Coefficients(1e-14, 1e-13, 3e-14, 1e-13)
CSV = Path("docs/reproduction/balance.csv")
BASE = Setting(KAPPAS, users=30, t_max_s=6.0, max_input=300, max_output=100)


class TestProblems:
    @pytest.mark.parametrize("pair", PAIRS)
    def test_the_declared_ranges_are_filled_and_kept(self, pair):
        """T in 0.5 … T_max, s and n in 1 … their maxima, α in 0.6 … its maximum; text uploads take milliseconds."""
        rounds = [one_round(replace(BASE, pair=pair, users=70), replication).predicted for replication in range(20)]

        def column(name):
            return np.concatenate([getattr(problem.candidates, name) for problem in rounds])

        for name, low, high in (
            ("prompt_tokens", 1, 300),
            ("output_tokens", 1, 100),
            ("acceptance_rate", 0.6, 0.95),
            ("slack_s", 0.5, 6.0),
        ):
            values = column(name)
            span = high - low
            assert low - 0.01 <= values.min() <= low + 0.02 * span
            assert high - 0.02 * span <= values.max() <= high
        assert 0 < np.median(column("upload_s")) < 0.01

    def test_the_world_is_the_same_along_every_axis(self):
        """Fewer users are the first of the many; a larger maximum stretches the same ranks."""
        one, fewer = one_round(BASE, 3).true.candidates, one_round(replace(BASE, users=10), 3).true.candidates
        for name in ("prompt_tokens", "output_tokens", "acceptance_rate", "slack_s", "upload_s"):
            assert getattr(one, name)[:10].tolist() == getattr(fewer, name).tolist()
        longer = one_round(replace(BASE, max_output=200), 3).true.candidates
        assert np.abs(longer.output_tokens - 2 * one.output_tokens).max() <= 2

    def test_memory_is_q_times_utilisation_less_weights(self):
        """24 GB at 0.9 less 6.738 and 1.1 billion parameters of two bytes."""
        spec = server(replace(BASE, utilisation=0.9))
        assert spec.free_bytes(uses_sd=True) == pytest.approx(0.9 * 24e9 - 2 * (6738415616 + 1100048384))

    def test_other_pairs_keep_the_room_of_the_first_along_the_memory_axis(self):
        """What is left beside both models' weights is the same for every pair."""
        rooms = [
            [server(point).free_bytes(uses_sd=True) for _, point in along(replace(BASE, pair=pair), "memory")]
            for pair in PAIRS
        ]
        for other in rooms[1:]:
            assert other == pytest.approx(rooms[0])
        assert weight_bytes("TinyLlama/Llama-2-7B") == pytest.approx(2 * (6738415616 + 1100048384))

    @pytest.mark.parametrize("law", LAWS)
    def test_every_cost_law_has_a_server(self, law):
        """Times of a decode step are positive and grow with the context."""
        single = single_request(replace(BASE, law=law))
        assert 0 < single.ad_s < math.inf
        assert 0 < single.sd_s < math.inf

    def test_predictions_are_told_and_the_truth_is_kept_apart(self):
        """Under `noisy_truth` the drawn lengths are what the policy sees, and the truth differs."""
        plain = one_round(BASE, 0)
        assert plain.predicted.candidates.output_tokens.tolist() == plain.true.candidates.output_tokens.tolist()
        noisy = one_round(replace(BASE, predictor=NoisyTruth(0.3, 0.0)), 0)
        assert noisy.predicted.candidates.output_tokens.tolist() == plain.true.candidates.output_tokens.tolist()
        assert noisy.true.candidates.output_tokens.tolist() != plain.true.candidates.output_tokens.tolist()
        assert noisy.true.candidates.acceptance_rate.tolist() == plain.true.candidates.acceptance_rate.tolist()


def chance(predicted, true, slack, alpha=(0.5, 0.5)):
    """Two users of 10 prompt tokens on a server where every pass of either model takes 0.1 s."""
    law = LinearLaw(0.1, 0.0, 0.0)
    spec = make_server(draft_length=1, laws=(law, law))
    told, real = (
        make_problem(make_candidates([10, 10], output, slack, alpha=rates), spec)
        for output, rates in ((predicted, [0.5, 0.5]), (true, list(alpha)))
    )
    return Round(BASE, told, real)


class TestServedInTime:
    def test_a_lane_ends_at_its_true_cost(self):
        """AD, half the GPU, n = 5: (1 prefill + 4 steps)·0.1 s/0.5 = 1 s; only a slack of 1 s or more is met."""
        lane = Lane(0, Mode.AD, 0.5, 1.0, (0, 1))
        assert served_in_time(chance([5, 3], [5, 3], [1.0, 1.1]), Decision((lane,))) == 2
        with pytest.raises(ValueError, match="not feasible"):
            served_in_time(chance([5, 3], [5, 3], [0.9, 1.1]), Decision((lane,)))

    def test_answers_beyond_the_bound_are_cut_and_late(self):
        """Told 5 and 3, truly 9 and 4: the batch still ends after 5 tokens; the first is cut, the second is whole."""
        lane = Lane(0, Mode.AD, 0.5, 1.0, (0, 1))
        assert served_in_time(chance([5, 3], [9, 4], [1.0, 1.0]), Decision((lane,))) == 1

    def test_shorter_truths_end_sooner(self):
        """Told 5, truly 2 and 1: 0.2 s/0.5 = 0.4 s; all in time, as told."""
        lane = Lane(0, Mode.AD, 0.5, 1.0, (0, 1))
        assert served_in_time(chance([5, 3], [2, 1], [1.0, 1.0]), Decision((lane,))) == 2

    def test_worse_acceptance_makes_the_batch_late(self):
        """SD, γ = 1, told α = 0.5: E = 1.5, ⌈6/1.5⌉ = 4 rounds of 2 passes and 2 prefills: 1 s.

        At a true α of 0 the second user takes 6 rounds, 1.4 s: it and the first, padded to it, miss 1.2 s.
        """
        lane = Lane(1, Mode.SD, 1.0, 1.0, (0, 1), draft_length=1)
        assert served_in_time(chance([7, 7], [7, 7], [1.0, 1.0]), Decision((lane,))) == 2
        assert served_in_time(chance([7, 7], [7, 7], [1.2, 1.2], alpha=(0.5, 0.0)), Decision((lane,))) == 0
        assert served_in_time(chance([7, 7], [7, 7], [1.2, 1.5], alpha=(0.5, 0.0)), Decision((lane,))) == 1

    @pytest.mark.parametrize("cost_form", ["padded", "per_user"])
    def test_with_exact_predictions_all_admitted_are_served(self, cost_form):
        """The metric is then the size of the decision over K, under both cost forms."""
        for replication in range(3):
            base = replace(BASE, cost_form=cost_form)
            decision = Balance().decide(one_round(base, replication).predicted)
            assert len(decision.admitted) > 0
            assert serve(base, Scheme(Balance()), replication) == len(decision.admitted) / 30

    def test_nobody_serves_more_than_the_optimum_with_one_batch_of_each_mode(self):
        """K = 10 … 16 at T_max = 1 s: BALANCE, as published or not, AD and SD stay below it or reach it."""
        sweep = exhaustive_sweep(BASE)
        assert [x for x, _ in sweep.points] == [10, 12, 14, 16]
        for place in (0, 3):
            rows = {(name, replication): share for _, _, name, replication, share in run_point(sweep, place, range(3))}
            for (_, replication), share in rows.items():
                assert share <= rows["optimal", replication]

    def test_told_the_truth_all_admitted_are_served(self):
        """The reference of the prediction errors decides on the truth of the same world."""
        law = NoisyTruth(0.3, 0.3)
        truth = one_round(replace(BASE, predictor=law), 1).true
        assert serve(BASE, Scheme(Balance(), law, told=True), 1) == len(Balance().decide(truth).admitted) / 30


def test_single_request_by_hand():
    """Memory: weights and KV of 700 tokens, 4 more for SD; latency under κ·FLOPs: SD has its draft's and γ+1 rows."""
    single = single_request(BASE)
    target, draft = llm("Llama-2-7B"), llm("TinyLlama-1.1B")
    tokens = INPUT_TOKENS + OUTPUT_TOKENS
    assert single.ad_bytes == 2 * 6738415616 + tokens * 524288
    both = 524288 + draft.kv_bytes_per_token
    assert single.sd_bytes == 2 * (6738415616 + 1100048384) + (tokens + 4) * both
    assert single.memory_percent == pytest.approx(100 * (single.sd_bytes / single.ad_bytes - 1))
    assert target.kv_bytes_per_token == 524288
    # weights alone: the 16.3 % of docs/model.md §8
    assert 100 * draft.weight_bytes / target.weight_bytes == pytest.approx(16.3, abs=0.05)


#: docs/model.md §8, row by row
PAPER = {
    "users": (37.9, 33.4),
    "deadline": (31.5, 27.3),
    "input length": (38.8, 23.9),
    "output length": (30.4, 27.3),
    "memory": (17.4, 35.4),
    "acceptance": (23.9, 41.3),
    "draft length": (24.4, 39.3),
    "users (TinyLlama/Llama-3.2-3B)": (39.4, 31.6),
    "memory (TinyLlama/Llama-3.2-3B)": (16.6, 38.2),
    "users (Llama-3.2-3B/Llama-2-7B)": (37.6, 34.7),
    "memory (Llama-3.2-3B/Llama-2-7B)": (17.0, 38.2),
}


class TestClaims:
    def stated(self, figure, baseline, x=None):
        found = [c.paper_percent for c in CLAIMS if (c.figure, c.baseline, c.x) == (figure, baseline, x)]
        assert len(found) == 1
        return found[0]

    def test_every_number_of_the_table_is_there(self):
        """All rows of §8 with the paper's values."""
        for figure, papers in PAPER.items():
            assert (self.stated(figure, "ad_only"), self.stated(figure, "sd_only")) == papers
        at_70 = [self.stated("users", baseline, 70.0) for baseline in (None, "ad_only", "sd_only")]
        at_1 = [self.stated("deadline", baseline, 1.0) for baseline in (None, "ad_only", "sd_only")]
        assert at_70 == [70.4, 30.4, 30.2]
        assert at_1 == [62.9, 22.9, 22.5]
        ablations = {"users": (5.6, 18.7, 23.7), "deadline": (9.0, 4.9, 18.4), "memory": (4.6, 15.3, 19.9)}
        for figure, papers in ablations.items():
            assert tuple(self.stated(figure, name) for name in ABLATIONS) == papers
        for where in ("noisy prediction", "noisy truth"):
            for what, papers in (("α CV 0.3", (-2.8, -4.3)), ("n CV 0.3", (-3.9, -3.6)), ("n log-t", (-3.8, -4.7))):
                names = [f"{axis}, prediction errors" for axis in ("users", "deadline")]
                assert tuple(self.stated(name, f"{what}, {where}, told") for name in names) == papers
        assert self.stated("exhaustive", "optimal") == -0.9

    def test_every_statement_has_its_point_in_a_sweep(self):
        """No comparison is lost because its setting is not simulated."""
        run = {
            (sweep.figure, x, scheme)
            for sweep in paper_sweeps(BASE)
            for x, _ in sweep.points
            for scheme in sweep.schemes
        }
        for claim in CLAIMS:
            for scheme in (claim.scheme, claim.baseline):
                assert scheme is None or any(
                    figure == claim.figure and claim.x in (None, x) and name == scheme for figure, x, name in run
                )

    def test_the_ranges_of_the_sweeps_are_those_declared(self):
        """K 20–70, T to 13 s from 1 s on, lengths to 1000, γ 1–8, α to 0.95, 24 GB; the search looks within them."""
        ends = {axis: (min(values), max(values)) for axis, (_, _, values) in AXES.items()}
        assert ends["users"] == (20, 70)
        assert ends["deadline"] == (1, 13)
        assert ends["input length"][1] == ends["output length"][1] == 1000
        assert ends["draft length"] == (1, 8)
        assert ends["acceptance"][1] == 0.95
        assert ends["memory"][1] == 24
        for axis, values in COARSE.items():
            assert ends[axis] == (min(values), max(values))

    def test_prediction_errors_have_the_paper_s_sizes(self):
        """α with CV 0.3; n with CV 0.3; log-t with ν = 3."""
        sizes = {(law.length_cv, law.acceptance_cv, law.degrees_of_freedom) for law in PREDICTIONS.values()}
        assert sizes == {(0.0, 0.3, None), (0.3, 0.0, None), (0.3, 0.0, 3.0)}


def runs(ours, baseline):
    rows = [
        ("users", x, scheme, replication, value)
        for scheme, table in (("balance", ours), ("ad_only", baseline))
        for x, values in zip((20.0, 70.0), table, strict=True)
        for replication, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["figure", "x", "scheme", "replication", "served"])


class TestArithmetic:
    def test_gain_in_both_readings(self):
        """Means 0.7 and 0.5: 40 % or 20 points; with a constant baseline the linearisation is exact: 20 % and 60 %."""
        relative, points = gain(pd.Series([0.6, 0.8]), pd.Series([0.5, 0.5]))
        assert relative[0] == pytest.approx(40.0)
        assert points[0] == pytest.approx(20.0)
        half = 12.7062 * np.std([20, 60], ddof=1) / math.sqrt(2)
        assert relative[1:] == pytest.approx((40 - half, 40 + half), abs=1e-3)

    def test_a_baseline_that_serves_nobody_has_no_relative_gain(self):
        """The points remain."""
        relative, points = gain(pd.Series([0.6, 0.8]), pd.Series([0.0, 0.0]))
        assert relative[0] == math.inf
        assert points[0] == pytest.approx(70.0)

    def test_sweeps_are_averaged_before_they_are_divided(self):
        """(0.9 + 0.5)/(0.8 + 0.2) − 1 = 40 %, not the mean of 12.5 % and 150 %; at x = 70 it is 150 %."""
        frame = runs([[0.9, 0.9], [0.5, 0.5]], [[0.8, 0.8], [0.2, 0.2]])
        over_all = list(compared(frame, Claim("users", "ad_only", 37.9)))
        assert [row[4] for row in over_all] == pytest.approx([40.0, 20.0])
        assert in_reading(frame, Claim("users", "ad_only", 30.4, 70.0), RELATIVE)[4] == pytest.approx(150.0)
        value = in_reading(frame, Claim("users", None, 70.4, 70.0), POINTS)
        assert value[:5] == ("users", "70", "served in time by balance, %", 70.4, pytest.approx(50.0))
        found = residuals(frame, [Claim("users", "ad_only", 37.9), Claim("users", None, 70.4, 70.0)], POINTS)
        assert found.tolist() == pytest.approx([20.0 - 37.9, 50.0 - 70.4])

    def test_what_was_not_run_is_an_error(self):
        """A statement never silently compares nothing."""
        with pytest.raises(ValueError, match="users: sd_only at x = any was not run"):
            list(compared(runs([[0.5], [0.5]], [[0.5], [0.5]]), Claim("users", "sd_only", 33.4)))

    def test_losses_are_judged_as_gains_of_the_other_sign(self):
        """−2.8 % in the paper: −4 is within 3 points, −9 has the sign, +9 has not."""
        loss = Claim("users", "optimal", -2.8)
        assert judged(loss, (-4.0, -5.0, -3.0)) == "met"
        assert judged(loss, (-9.0, -10.0, -8.0)) == "sign only"
        assert judged(loss, (9.0, 8.0, 10.0)) == "not met"

    def test_a_share_is_met_or_not(self):
        """70.4 % of the users: 68 is within 3 points; 57 is not, and has no sign to be right in."""
        share = Claim("users", None, 70.4, 70.0)
        assert judged(share, (68.0, 67.0, 69.0)) == "met"
        assert judged(share, (57.0, 56.0, 58.0)) == "not met"

    def test_the_better_of_two_batches_is_chosen_in_each_round(self):
        """AD+AD 0.5 and 0.7, SD+SD 0.6 and 0.4: 0.6 and 0.7, not the 0.6 of the better mean."""
        frame = runs([[0.5, 0.7], [0.5, 0.7]], [[0.6, 0.4], [0.6, 0.4]])
        frame["scheme"] = frame["scheme"].map({"balance": "ad_two_batches", "ad_only": "sd_two_batches"})
        found = with_two_batches(frame)
        assert found[found["scheme"] == TWO_BATCHES]["served"].tolist() == [0.6, 0.7, 0.6, 0.7]
        assert len(found) == len(frame) + 4

    def test_a_point_has_a_row_for_every_scheme_and_replication(self):
        """Rows are (figure, x, scheme, replication, share)."""
        sweep = next(s for s in law_sweeps(replace(BASE, users=10), "roofline") if s.figure == "deadline, roofline")
        rows = run_point(sweep, 1, [4, 5])
        assert [row[:4] for row in rows] == [
            ("deadline, roofline", 3.0, name, r) for r in (4, 5) for name in sweep.schemes
        ]
        assert all(0 <= row[4] <= 1 for row in rows)
        assert set(sweep.schemes) <= set(SCHEMES)


class TestStoredResults:
    def test_fitted_constants_lie_inside_their_declared_ranges(self):
        """The stored fits stay inside the ranges of the search; the best is first."""
        stored = json.loads(RESULT.read_text())
        scores = [fit["score_points"] for fit in stored["fits"]]
        assert scores == sorted(scores)
        assert {(fit["cost_form"], fit["reading"]) for fit in stored["fits"]} == {
            (form, reading) for form in ("padded", "per_user") for reading in (RELATIVE, POINTS)
        }
        for fit in stored["fits"]:
            setting(fit["values"], fit["cost_form"])
            assert list(fit["values"]) == list(RANGES)
            for name, (low, high) in RANGES.items():
                assert low * (1 - 1e-9) <= fit["values"][name] <= high * (1 + 1e-9)

    def test_the_stored_table_has_every_statement_with_the_papers_number(self):
        """Columns as promised; both readings of every statement."""
        table = pd.read_csv(CSV)
        assert list(table.columns) == COLUMNS
        for claim in CLAIMS:
            x = "all" if claim.x is None else f"{claim.x:g}"
            rows = table[
                (table["figure"] == claim.figure) & (table["x"] == x) & (table["paper"] == claim.paper_percent)
            ]
            start = (
                f"{claim.scheme} over {claim.baseline}, " if claim.baseline else f"served in time by {claim.scheme}, "
            )
            assert rows["quantity"].str.startswith(start).sum() == (2 if claim.baseline else 1)


@pytest.mark.slow
def test_the_whole_study_runs(tmp_path):
    """Two replications: table, text and figures are written, every verdict is there."""
    balance.main(["--seeds", "2", "--jobs", "1", "--out", str(tmp_path)])
    text = (tmp_path / "balance.md").read_text()
    assert text.count("| met |") + text.count("| sign only |") + text.count("| not met |") == len(CLAIMS)
    for axis in AXES:
        assert (tmp_path / f"balance_{axis.replace(' ', '_')}.png").stat().st_size > 10_000
    assert list(pd.read_csv(tmp_path / "balance.csv").columns) == COLUMNS
