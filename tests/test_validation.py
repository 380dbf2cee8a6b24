"""Published measurements beside ours, and the small engine that runs a batch of equal requests."""

import csv
import re
from dataclasses import replace

import numpy as np
import pytest

from analysis.validation import argonne, specbench
from analysis.validation.__main__ import main
from analysis.validation.checks import COLUMNS, Check, write_csv
from analysis.validation.whole_batch import Engine, run_batch
from balancesim import catalog
from balancesim.core.work import decode_pass, prefill_pass
from balancesim.latency_laws import Affine


class PassLaw:
    """1 s for each prompt token of a prefill, 1 s a decode step."""

    name = "passes"

    def forward_s(self, llm, gpu, phase, work):
        return work.new_tokens if phase == "prefill" else np.ones_like(np.asarray(work.kv_tokens))


def engine(kv_tokens, law=None, token_budget=1000):
    return Engine(catalog.llm("Llama-2-7B"), catalog.gpu("H100 SXM"), law or PassLaw(), kv_tokens, token_budget)


def test_a_batch_that_fits_prefills_once_and_decodes_together():
    """2 requests of 10 in, 10 out: 20 s of prompts, 9 steps of 2 sequences, 2 more in the prefill."""
    run = run_batch(engine(1000), batch=2, length=10)
    assert (run.seconds, run.sequence_steps, run.at_once) == (29.0, 20, True)


def test_prompts_beyond_the_token_budget_take_more_passes():
    """Budget 10 tokens: two passes of 10, the same seconds under a law without a cost a pass; both decode together."""
    assert run_batch(engine(1000, token_budget=10), batch=2, length=10) == run_batch(engine(1000), batch=2, length=10)


def test_a_batch_that_does_not_fit_runs_in_waves():
    """24 tokens hold two prompts of 10, grown to 12 each; the youngest then waits and is computed again.

    Both have 1 token out after 20 s (22 held); one more step (24 held), the next does not fit. The second gives up with
    2 tokens out. The first needs 8 more steps, then the second 12 s for its prompt and 2 tokens, which emits its third,
    and 7 steps: 20 + 1 + 8 + 12 + 7.
    """
    run = run_batch(engine(24), batch=2, length=10)
    assert (run.seconds, run.at_once) == (48.0, False)


def test_a_request_beyond_the_memory_is_refused():
    """20 tokens in a memory of 19."""
    with pytest.raises(ValueError, match="must fit in the KV memory of 19 tokens"):
        run_batch(engine(19), batch=1, length=10)


def test_contexts_grow_by_one_token_a_step():
    """The time of one request is its prefill and the decode steps at contexts L+1 … 2L−1, added one by one."""
    law = Affine(s_per_flop=1e-14, fixed_s=1e-3)
    target = engine(1000, law)
    steps = [law.forward_s(target.llm, target.gpu, "decode", decode_pass(1.0, float(c))) for c in range(33, 64)]
    expected = law.forward_s(target.llm, target.gpu, "prefill", prefill_pass(32.0, 1024.0, 1.0)) + sum(steps)
    assert run_batch(target, batch=1, length=32).seconds == pytest.approx(expected, rel=1e-12)


def test_a_check_is_within_its_limit_or_not():
    """11 against 10 is +10 %; a mean error is taken as given; NaN is never within a limit."""
    assert Check("a", 10.0, 11.0, 10.1).ok
    assert not Check("a", 10.0, 11.0, 9.9).ok
    assert Check("a", 10.0, 30.0, 5.0, given_error_percent=-4.0).ok
    assert not Check("a", 10.0, float("nan"), 5.0).ok


def test_checks_are_written_once_each(tmp_path):
    """The columns of docs/validation.csv; a repeated name is an error."""
    check = Check("a, b", 10.0, 11.0, 5.0)
    write_csv([check], tmp_path / "v.csv")
    with (tmp_path / "v.csv").open(newline="") as stream:
        header, row = csv.reader(stream)
    assert tuple(header) == COLUMNS
    assert row == ["a, b", "10", "11", "10", "5", "no"]
    with pytest.raises(ValueError, match="unique"):
        write_csv([check, check], tmp_path / "v.csv")


@pytest.fixture(scope="module")
def rows():
    return argonne.rows()


def test_argonne_has_every_batch_and_length_once(rows):
    """2 GPUs, 2 models, 4 batches, 5 lengths; 0.9326443687983555 s for Llama-2-7B, H100, 128, batch 1."""
    keys = {(row.gpu, row.model, row.length, row.batch) for row in rows}
    assert len(rows) == len(keys) == 80
    first = next(
        row for row in rows if (row.gpu, row.model, row.length, row.batch) == ("H100 SXM", "Llama-2-7B", 128, 1)
    )
    assert first.measured_s == 0.9326443687983555


def test_whole_requests_are_within_the_goals(rows):
    """Mean absolute error at most 10 % on the H100, 15 % on the A100, on each model alone too."""
    assert [check.name for check in argonne.checks(rows) if not check.ok] == []


def test_queueing_starts_where_the_memory_ends(rows):
    """A100-40, Llama-2-7B: 32 requests of 1,024 tokens fit at once, of 2,048 not: the jump of the measurements."""
    held = {
        (row.length, row.batch): row.kernels.at_once for row in rows if row.gpu[:4] == "A100" and "2-7B" in row.model
    }
    assert held[512, 32]
    assert not held[1024, 32]


def test_nothing_is_calibrated_on_the_rows_it_is_judged_on(rows):
    """The host time of a row's sequences does not change when its own model's measurements do."""
    row = next(row for row in rows if (row.gpu, row.model) == ("H100 SXM", "Llama-3-8B"))
    others = [other for other in rows if other.gpu == "H100 SXM" and other.model == "Llama-2-7B"]
    assert row.sequence_s == argonne.sequence_overhead_s(others) > 0


def test_sequence_overhead_is_the_least_squares_one(rows):
    """No other constant gives a smaller sum of squared relative errors."""
    used = [row for row in rows if row.gpu == "H100 SXM" and row.model == "Llama-2-7B"]

    def squares(constant):
        fits = [row for row in used if row.kernels.at_once]
        return sum(row.error(row.kernels.seconds + constant * row.kernels.sequence_steps) ** 2 for row in fits)

    best = argonne.sequence_overhead_s(used)
    assert squares(best) < min(squares(best * 1.01), squares(best * 0.99))


@pytest.mark.parametrize(
    ("device", "section", "expected"),
    [("3090", "", (2.28, 1.79)), ("A100", "Vicuna-7B-v1.3", (2.28, 1.52)), ("A100", "Vicuna-33B-v1.3", (2.01, 1.57))],
)
def test_leaderboard_rows_are_read(device, section, expected):
    """Tokens per step and overall speed-up of SpS as they stand in the file."""
    assert specbench.leaderboard(device, section) == expected


def test_speedup_formula_and_its_inverse():
    """E = 2, T = V = 10, d = 1, o = 1: 2·11/(2·2 + 11) = 22/15, and back."""
    pair = specbench.Pair("gpu", "target", 2.0, 22 / 15, decode_s=10.0, verify_s=10.0, draft_s=1.0)
    assert pair.speedup(1.0) == pytest.approx(22 / 15)
    assert pair.host_s() == pytest.approx(1.0)


def test_spec_bench_speedups_are_within_the_goal():
    """Within 15 % on the 7B pair (A100, RTX 3090) and 33B; the pair that calibrates is not judged."""
    judged = [check for check in specbench.checks() if check.name.startswith("Spec-Bench")]
    assert len(judged) == 3
    assert all(check.ok for check in judged)
    assert not any("13B" in check.name for check in judged)


def test_the_context_hardly_matters(monkeypatch):
    """Half and twice the assumed context: the speed-ups move by less than 1 %."""
    base = [pair.speedup(0.004) for pair in specbench.pairs()]
    for context in (256.0, 1024.0):
        monkeypatch.setattr(specbench, "CONTEXT_TOKENS", context)
        moved = [pair.speedup(0.004) for pair in specbench.pairs.__wrapped__()]
        assert moved == pytest.approx(base, rel=0.01)


def test_speculation_gains_less_at_large_batches():
    """EAGLE, 8B, GSM8K: 15 % around the published 1.21 at batch 128, below the gain at batch 1; 70B falls by 32."""
    small, large = specbench.eagles()
    assert specbench.gsm8k_speedup(small.gain) == pytest.approx(1.21, rel=0.15)
    assert small.gain(128.0, 177.0) < small.gain(1.0, 177.0)
    assert specbench.fall_percent(large.gain) < 0


def test_host_work_for_each_token_takes_from_the_gain():
    """T/(V + d) with h seconds a token, E tokens a verification: (T + h·B)/(V + h·E·B + d).

    Without h it is as before, then it falls, to 1/E when there is nothing but host work.
    """
    plain = specbench.eagles()[0]
    gains = [replace(plain, host_s=host_s, tokens=2.5).gain(32.0, 719.0) for host_s in (0.0, 5e-5, 1e-4, 1e6)]
    assert gains[0] == plain.gain(32.0, 719.0)
    assert gains[-1] == pytest.approx(1 / 2.5, rel=1e-6)
    assert gains == sorted(gains, reverse=True)


def test_the_command_prints_and_writes(tmp_path, capsys):
    """Every check stands in the file and in the print; --strict fails when a limit is missed."""
    out = tmp_path / "validation.csv"
    assert main(["--out", str(out)]) == 0
    with out.open(newline="") as stream:
        table = list(csv.DictReader(stream))
    printed = capsys.readouterr().out
    document = (tmp_path / "validation.md").read_text(encoding="utf-8")
    assert all(row["check"] in printed and row["check"] in document for row in table)
    images = re.findall(r"!\[[^]]*\]\(([^)]*)\)", document)
    assert len(images) == 5
    assert all((tmp_path / name).stat().st_size > 10_000 for name in images)
    missed = [row for row in table if row["ok"] == "no"]
    assert f"**{len(table) - len(missed)} of {len(table)} checks" in document
    assert main(["--out", str(out), "--strict"]) == (1 if missed else 0)
