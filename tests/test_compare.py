"""The comparison of policies: statistics, checks of what is read, and what is printed and written."""

import io
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from analysis import compare_policies, load
from balancesim.compare import Comparison, compare, render, student_interval, write_comparison
from balancesim.compare.render import answers, bounds, milliseconds, number, percent, points, signed
from balancesim.core.request import Mode, Outcome, RejectReason
from balancesim.manifest import ResultsError, manifest_path, table_path
from balancesim.metrics import Window
from balancesim.recorder import Recorder
from tests.result_folders import (
    NEVER_IN,
    SCENARIO,
    drawn_run,
    epoch_row,
    gpu_row,
    request_row,
    run_info,
    summary,
    three_policies,
)

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """Return a folder with three policies and three replications each; tests must not change it."""
    return three_policies(tmp_path_factory.mktemp("results") / "two_servers")


@pytest.fixture(scope="module")
def comparison(stored) -> Comparison:
    """Return its comparison."""
    return compare(stored)


def served_run(folder: Path, policy: str, replication: int, completed: int, arrival_s: float = 20.0) -> None:
    """Write a run that completes so many of 10 requests and rejects the others."""
    with Recorder(folder.parent, folder.name, run_info(policy, replication)) as recorder:
        for i in range(10):
            away = {} if i < completed else NEVER_IN | {"reject_reason": RejectReason.POLICY}
            outcome = Outcome.COMPLETED if i < completed else Outcome.REJECTED
            recorder.request(request_row(i, arrival_s + i, outcome, **away))
        recorder.close(summary(10))


def printed(comparison: Comparison, **options: object) -> str:
    """Return what render prints into a pipe."""
    console = Console(file=io.StringIO(), **options)  # type: ignore[arg-type]
    render(comparison, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_student_interval():
    """The interval of 1, 2, 3 is 2 ± 4.30265·1/√3 (t with 2 degrees of freedom at 97.5 %: 4.30265, NIST table)."""
    interval = student_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert pytest.approx(2 - 4.30265 / math.sqrt(3), abs=1e-5) == interval.low
    assert pytest.approx(2 + 4.30265 / math.sqrt(3), abs=1e-5) == interval.high
    assert interval.replications == 3


def test_undefined_values_are_left_out():
    """A replication without the value lowers the number of replications; none at all gives NaN."""
    assert student_interval([math.nan, 1.0, 3.0]).replications == 2
    assert student_interval([math.nan, 1.0, 3.0]).mean == 2.0
    assert math.isnan(student_interval([math.nan]).mean)
    assert math.isnan(student_interval([4.0]).low)


def test_interval_covers():
    """Over 2,000 sets of 5 normal values the 95 % interval holds the mean in 95 % of them (± 4 standard errors)."""
    rng = np.random.default_rng(1)
    intervals = [student_interval(rng.normal(3.0, 2.0, 5).tolist()) for _ in range(2000)]
    covered = np.mean([interval.low <= 3.0 <= interval.high for interval in intervals])
    assert pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 2000)) == float(covered)


def test_mean_and_paired_difference(tmp_path):
    """Means are over replications and differences replication by replication.

    balance serves 8, 7, 9 of 10, ad_only 6, 6, 7, sd_only 5, 5, 5: ad_only is best with 19/30, the differences are
    0.2, 0.1, 0.2 with mean 1/6 and s = 0.1/√3, so the half width is 4.30265 · 0.1/√3/√3 = 0.143422.
    """
    for policy, counts in {"balance": (8, 7, 9), "ad_only": (6, 6, 7), "sd_only": (5, 5, 5)}.items():
        for replication, count in enumerate(counts):
            served_run(tmp_path / "x", policy, replication, count)
    found = compare(tmp_path / "x")
    assert found.policies == ("balance", "ad_only", "sd_only")
    assert (found.baselines, found.best_baseline) == (("ad_only", "sd_only"), "ad_only")
    assert pytest.approx(0.8) == found.of("balance", "served_in_time").mean
    paired = found.difference("balance", "served_in_time")
    assert pytest.approx(1 / 6) == paired.mean
    assert pytest.approx(1 / 6 + 0.143422, abs=1e-6) == paired.high
    assert pytest.approx(0.8 - 0.5) == found.difference("balance", "served_in_time", "sd_only").mean
    assert "balance − ad_only (best single mode): +16.7 points served in time [+2.3, +31.0], 3 paired runs." in answers(
        found
    )
    assert pytest.approx(2 / 10) == found.of("balance", "rejected_policy_share").mean
    assert found.notes == ()


def test_loss_is_printed_too(tmp_path):
    """BALANCE minus the best single mode is printed when it is negative."""
    for policy, count in {"balance": 4, "ad_only": 5, "sd_only": 6}.items():
        served_run(tmp_path / "x", policy, 0, count)
    found = compare(tmp_path / "x")
    assert found.best_baseline == "sd_only"
    line = "balance − sd_only (best single mode): -20.0 points served in time (no interval), 1 paired run."
    assert line in printed(found)
    assert "Note: one replication gives no interval" in printed(found)


def test_without_single_modes_every_policy_is_a_baseline(tmp_path):
    """Without the baselines asked for, the best policy is what the others are compared with."""
    served_run(tmp_path / "x", "first", 0, 4)
    served_run(tmp_path / "x", "second", 0, 7)
    found = compare(tmp_path / "x")
    assert found.best_baseline == "second"
    assert answers(found) == [
        "first − second (best baseline): -30.0 points served in time (no interval), 1 paired run."
    ]


def test_one_policy_alone(tmp_path):
    """A folder with one policy is shown without differences."""
    served_run(tmp_path / "x", "balance", 0, 4)
    found = compare(tmp_path / "x")
    assert answers(found) == []
    assert "Difference to" not in printed(found)


def test_only_common_replications_are_paired(tmp_path):
    """With different sets of replications only the common ones are paired, and it is said."""
    for replication, count in enumerate((8, 7, 9)):
        served_run(tmp_path / "x", "balance", replication, count)
    served_run(tmp_path / "x", "ad_only", 1, 6)
    served_run(tmp_path / "x", "ad_only", 7, 6)
    found = compare(tmp_path / "x")
    paired = found.difference("balance", "served_in_time")
    assert (pytest.approx(0.7 - 0.6), 1) == (paired.mean, paired.replications)
    assert any("1 of 4 are common to all" in note for note in found.notes)


def test_no_common_replication(tmp_path):
    """Without a common replication there is no difference."""
    served_run(tmp_path / "x", "balance", 0, 8)
    served_run(tmp_path / "x", "ad_only", 1, 6)
    found = compare(tmp_path / "x")
    assert math.isnan(found.difference("balance", "served_in_time").mean)
    assert found.best_baseline == "ad_only"


def test_different_requests_are_told(tmp_path):
    """When two policies of one replication met different requests, their differences are not paired, and it is said."""
    served_run(tmp_path / "x", "balance", 0, 8)
    served_run(tmp_path / "x", "ad_only", 0, 6, arrival_s=21.0)
    assert any("met different requests" in note for note in compare(tmp_path / "x").notes)


def test_policies_stand_in_the_order_of_the_scenario(tmp_path):
    """Policies come in the order of run.policies, by label, name or class; others after them by name."""
    policies = [{"kind": "balance", "label": "fine"}, "own.py:Mine", {"kind": "ad_only"}, "not_run"]
    scenario = SCENARIO | {"run": {"horizon_s": 100.0, "policies": policies}}
    for policy in ("ad_only", "extra", "fine", "Mine"):
        with Recorder(tmp_path, "x", run_info(policy, scenario=scenario)) as recorder:
            recorder.request(request_row(0, 20.0, Outcome.COMPLETED))
            recorder.close(summary(1))
    assert compare(tmp_path / "x").policies == ("fine", "Mine", "ad_only", "extra")


def test_nobody_arrived(tmp_path):
    """A run whose window is empty is told, not hidden."""
    served_run(tmp_path / "x", "balance", 0, 8, arrival_s=200.0)
    found = compare(tmp_path / "x")
    assert any("offered no request" in note for note in found.notes)
    assert "–" in printed(found)


def test_what_is_printed(comparison):
    """Piped output is plain, at most 100 columns wide, and has every part of the comparison."""
    text = printed(comparison)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    for part in (
        "Served in time",
        "What became of them",
        "by policy",
        "TTFT target %",
        "Delays",
        "Where the time",
        "GPU seconds",
        "decision ms mean",
        "Difference to ad_only",
        "balance − ad_only (best single mode): +",
    ):
        assert part in text


def test_terminal_has_frames(comparison):
    """On a terminal the same tables have rules and the width of the terminal."""
    text = printed(comparison, force_terminal=True, width=120)
    assert "\x1b[1m" in text
    assert "─" in text


def test_window_and_targets_come_from_the_scenario(comparison):
    """The observed window and the targets are those of the scenario, in the policies' order there."""
    assert comparison.window == Window(10.0, 100.0)
    assert "ttft_attainment" in comparison.units
    assert "tpot_attainment" not in comparison.units
    assert comparison.policies == ("balance", "ad_only", "sd_only")
    # 0.25 s in 100 decisions
    assert comparison.of("balance", "decision_wall_mean_s").mean == 0.0025
    assert comparison.of("balance", "wall_s").mean == 0.5


def test_tpot_target(tmp_path):
    """A TPOT target of the scenario gives its attainment: all but the rejected."""
    scenario = SCENARIO | {"requests": {"tpot_target_s": 0.3}}
    with Recorder(tmp_path, "x", run_info(scenario=scenario)) as recorder:
        recorder.request(request_row(0, 20.0, Outcome.COMPLETED))
        recorder.request(request_row(1, 20.0, Outcome.REJECTED, **NEVER_IN))
        recorder.close(summary(2, decisions=0))
    found = compare(tmp_path / "x")
    assert found.of("ad_only", "tpot_attainment").mean == 0.5
    assert math.isnan(found.of("ad_only", "decision_wall_mean_s").mean)


def test_files_hold_what_was_compared(comparison, tmp_path):
    """comparison.csv and comparison.json hold every mean and difference; undefined values are empty or null."""
    csv, text = write_comparison(comparison, tmp_path)
    frame = pd.read_csv(csv).set_index(["policy", "metric"])
    served = comparison.of("balance", "served_in_time")
    row = frame.loc[("balance", "served_in_time")]
    assert (served.mean, served.low, served.high) == pytest.approx((row["mean"], row["low"], row["high"]))
    assert pytest.approx(comparison.difference("balance", "served_in_time").mean) == row["difference"]
    assert math.isnan(frame.loc[("ad_only", "acceptance_ratio"), "mean"])
    document = json.loads(text.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert document["best_baseline"] == "ad_only"
    assert len(document["runs"]) == 9
    assert document["runs"][0]["acceptance_ratio"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["comparison.csv", "comparison.json"]


def copied(stored: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder that a test may damage."""
    return Path(shutil.copytree(stored, tmp_path / "copy"))


def test_partial_and_orphaned_runs_are_left_out(stored, tmp_path):
    """Partial runs and tables without a manifest are left out with a note."""
    folder = copied(stored, tmp_path)
    with Recorder(folder.parent, folder.name, run_info("balance", 5)) as recorder:
        recorder.request(request_row(0, 20.0, Outcome.COMPLETED))
    manifest_path(folder, "sd_only", 2).unlink()
    found = compare(folder)
    assert found.replications("balance") == (0, 1, 2)
    assert found.replications("sd_only") == (0, 1)
    assert any("policy balance, replication 5 was cut (not closed)" in note for note in found.notes)
    assert any("policy=sd_only/replication=2 has no finished manifest" in note for note in found.notes)


def rewrite(path: Path, **changes: object) -> None:
    """Change keys of a manifest."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def test_changed_table_is_an_error(stored, tmp_path):
    """A table that differs from its manifest stops the comparison with one line."""
    folder = copied(stored, tmp_path)
    path = table_path(folder, "gpu", "balance", 1)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ResultsError, match=r"gpu/policy=balance/replication=1/part-0.parquet differs from its manifest"
    ):
        compare(folder)
    path.unlink()
    with pytest.raises(ResultsError, match="cannot be read"):
        compare(folder)


def test_wrong_row_count_is_an_error(stored, tmp_path):
    """A number of rows that differs from the manifest stops the comparison."""
    folder = copied(stored, tmp_path)
    path = manifest_path(folder, "balance", 0)
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"]
    rewrite(path, tables=tables | {"epochs": tables["epochs"] | {"rows": 99}})
    with pytest.raises(ResultsError, match="must have 99 rows as its manifest says, got 100"):
        compare(folder)


def test_mixed_worlds_and_commits(stored, tmp_path):
    """Different commits give a note, different scenarios an error."""
    folder = copied(stored, tmp_path)
    rewrite(manifest_path(folder, "balance", 0), git_commit="another")
    assert any("different commits" in note for note in compare(folder).notes)
    rewrite(manifest_path(folder, "balance", 0), world_sha256="another")
    with pytest.raises(ResultsError, match="mixes runs of different scenarios or seeds"):
        compare(folder)


def test_empty_folder_is_an_error(tmp_path):
    """A folder without a finished run says so."""
    with pytest.raises(ResultsError, match="holds no finished run"):
        compare(tmp_path)


def test_scenario_without_a_window_is_an_error(tmp_path):
    """A manifest whose scenario has no horizon cannot be compared."""
    with Recorder(tmp_path, "x", run_info(scenario={"requests": {}})) as recorder:
        recorder.close(summary(0))
    with pytest.raises(ResultsError, match=r"no run\.horizon_s"):
        compare(tmp_path / "x")


@pytest.mark.parametrize(
    ("requests", "epoch", "span", "offered", "message"),
    [
        ({}, {}, {}, 3, "the source made 3 requests, but 2 have an outcome"),
        ({"request_id": 1}, {}, {}, 2, "the source made 2 requests, but 2 have an outcome"),
        ({"tokens_out": 10}, {}, {}, 2, "a completed request lacks tokens"),
        ({}, {"kv_peak_bytes": 4.1e9}, {}, 2, "KV memory was above its capacity"),
        ({}, {}, {"decode_s": 120.0, "switch_s": 1.0}, 2, "a GPU worked 121 s by 119 s"),
    ],
)
def test_run_that_breaks_an_identity_is_an_error(tmp_path, requests, epoch, span, offered, message):
    """Lost or doubled requests, missing tokens, too much memory or GPU time stop the comparison."""
    with Recorder(tmp_path, "x", run_info()) as recorder:
        recorder.request(request_row(0, 20.0, Outcome.COMPLETED)._replace(**requests))
        recorder.request(request_row(1, 20.0, Outcome.COMPLETED, truncated=True, tokens_out=5))
        recorder.epoch(epoch_row(0.0, **epoch))
        recorder.gpu(gpu_row(0.0, 119.0, mode=Mode.AD, **span))
        recorder.close(summary(offered))
    with pytest.raises(ResultsError, match=f"policy ad_only, replication 0: {message}"):
        compare(tmp_path / "x")


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (percent, 0.5, "50.0"),
        (points, -0.012, "-1.2"),
        (points, math.nan, "–"),
        (number, 1234.5, "1,234"),
        (number, 99.94, "99.9"),
        (number, 12.34, "12.3"),
        (number, 9.99, "9.99"),
        (number, 0.1234, "0.123"),
        (signed, 0.0001, "0"),
        (signed, 0.25, "+0.250"),
        (signed, -1.5, "-1.50"),
        (signed, math.nan, "–"),
        (milliseconds, 0.0421, "42.1"),
    ],
)
def test_numbers_as_printed(form, value, text):
    """Numbers show the digits that count; what is not defined is a dash."""
    assert text == form(value)


def test_bounds_without_interval():
    """One replication has no bounds."""
    assert bounds(student_interval([0.5]), percent) == "–"


def test_script_prints_and_writes(stored, tmp_path):
    """The script prints the comparison into a pipe and writes it beside the results."""
    folder = copied(stored, tmp_path)
    command = [sys.executable, "-m", "analysis.compare_policies", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "balance − ad_only (best single mode)" in done.stdout
    assert (folder / "comparison.csv").exists()
    assert len(pd.read_parquet(folder / "requests")) == 9 * 200


def test_script_refuses_in_one_line(tmp_path):
    """Without folders, or with an empty one, the script returns 2 after one line."""
    for folders, text in (([], "usage:"), ([str(tmp_path)], "error:")):
        console = Console(file=io.StringIO())
        assert compare_policies.main(folders, console) == 2
        said = console.file.getvalue()  # type: ignore[attr-defined]
        assert said.startswith(text)
        assert said.count("\n") == 1


def test_loaded_tables_have_plain_types(stored):
    """Loaded tables have policies in the scenario's order, integer replications and all fixed categories."""
    frame = load.requests(stored)
    assert frame["policy"].cat.categories.tolist() == ["balance", "ad_only", "sd_only"]
    assert frame["outcome"].cat.categories.tolist() == [outcome.value for outcome in Outcome]
    assert frame["replication"].dtype == "int64"
    assert len(frame) == 9 * 200
    first = frame[(frame["policy"] == "balance") & (frame["replication"] == 0)]
    assert first["request_id"].tolist() == list(range(200))
    phases = frame[["upload_s", "wait_s", "prefill_s", "decode_s", "downlink_s"]].sum(axis=1, skipna=False)
    pd.testing.assert_series_equal(phases, frame["e2e_s"], check_names=False)
    assert frame["server_ttft_s"].dropna().round(9).unique().tolist() == [1.0]
    assert load.window(stored) == Window(10.0, 100.0)
    assert load.manifests(stored)["offered"].tolist() == [200] * 9
    assert len(load.table(stored, "epochs")) == 9 * 100


def test_only_finished_runs_are_loaded(stored, tmp_path):
    """Tables of a run without a finished manifest are not loaded."""
    folder = copied(stored, tmp_path)
    manifest_path(folder, "sd_only", 2).unlink()
    assert len(load.table(folder, "gpu")) == 3 * 200 + 3 * 100 + 2 * 100


def test_drawn_policies_share_their_luck(tmp_path):
    """The two runs of the fixture meet the same arrivals, as paired differences require."""
    for policy in ("balance", "ad_only"):
        drawn_run(tmp_path / "x", policy, 0, 0.7)
    assert compare(tmp_path / "x").difference("balance", "offered").mean == 0.0
