"""Measurements in their original formats become canonical tables."""

import pandas as pd
import pytest

from balancesim.catalog import llm
from balancesim.profile_formats import vidur
from balancesim.profile_formats.__main__ import all_reduce_s, main
from balancesim.profile_formats.points import Shape
from balancesim.profiles import read_table

TOKENS = (1, 8, 16, 64, 128, 512, 2048)


def write_llmservingsim(folder):
    """Files of the LLMServingSim format with times that are linear: what the table must give back is known."""
    operators = ("qkv_proj", "rotary_emb", "o_proj", "layernorm", "gate_up_proj", "act_fn", "down_proj")
    dense = [(name, t, 10.0 + 0.5 * t) for name in operators for t in TOKENS]
    pd.DataFrame(dense, columns=["layer", "tokens", "time_us"]).to_csv(folder / "dense.csv", index=False)
    attention = [(0, 0, n, kv, 5.0 + 0.01 * n * kv) for n in (1, 8, 64) for kv in (16, 128, 1024, 4096)]
    attention += [(s, 0, 0, 0, 5.0 + 1e-4 * s * s) for s in TOKENS if s >= 16]
    columns = ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"]
    pd.DataFrame(attention, columns=columns).to_csv(folder / "attention.csv", index=False)
    head = [(name, n, 100.0 + n) for name in ("lm_head", "sampler") for n in (1, 16, 256)]
    pd.DataFrame(head, columns=["layer", "sequences", "time_us"]).to_csv(folder / "per_sequence.csv", index=False)


def arguments(folder, *more):
    parts = {"dense": "dense.csv", "decode": "attention.csv", "prefill": "attention.csv", "head": "per_sequence.csv"}
    given = [word for part, file in parts.items() for word in (f"--{part}", f"llmservingsim:{folder / file}")]
    return ["--model", "Llama-3.1-8B", *given, "--out", str(folder / "table.csv"), *more]


def test_a_measured_engine_becomes_a_table(tmp_path):
    """LLMServingSim's files: a layer is 8 operators (two norms) of 10 µs + 0.5 µs a token."""
    write_llmservingsim(tmp_path)
    assert main(arguments(tmp_path, "--overhead-s", "0.001", "--note", "made by a test")) == 0
    table = read_table(str(tmp_path / "table.csv"))
    for tokens in (1, 64, 512):
        assert table.dense_s(float(tokens)) == pytest.approx(8 * (10 + 0.5 * tokens) * 1e-6, rel=1e-6)
    assert table.decode_s(8.0, 8 * 1024.0) == pytest.approx((5 + 0.01 * 8 * 1024) * 1e-6, rel=0.02)
    assert table.prefill_s(512.0, 512.0**2) == pytest.approx((5 + 1e-4 * 512**2) * 1e-6, rel=0.02)
    assert table.head_s(16.0) == pytest.approx(2 * 116e-6)
    assert table.overhead_s(4.0) == pytest.approx(1e-3)
    assert "# made by a test" in (tmp_path / "table.csv").read_text(encoding="utf-8")


def test_a_slower_card_takes_longer(tmp_path):
    """A ratio on one part stretches what exceeds its launch time; less bandwidth stretches decode attention."""
    write_llmservingsim(tmp_path)
    borrowed = arguments(tmp_path)
    borrowed[borrowed.index("--dense") + 1] += "*2.0"
    assert main(borrowed) == 0
    table = read_table(str(tmp_path / "table.csv"))
    launch = 8 * 10.5e-6  # the time at one token stays
    assert table.dense_s(512.0) == pytest.approx(launch + 2 * (8 * (10 + 256) * 1e-6 - launch), rel=1e-6)
    slow = tmp_path / "slow.csv"
    again = arguments(tmp_path, "--bandwidth-ratio", "1.5")
    again[again.index("--out") + 1] = str(slow)
    assert main(again) == 0
    assert read_table(str(slow)).decode_s(8.0, 8192.0) > table.decode_s(8.0, 8192.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "dense.csv").write_text("layer,tokens\n"), "missing"),
        (lambda f: (f / "dense.csv").unlink(), "No such file"),
        (
            lambda f: (f / "attention.csv").write_text("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"),
            "no rows",
        ),
    ],
)
def test_bad_measurements_end_with_one_line(tmp_path, capsys, change, message):
    """A missing column, file or part: exit status 1, one line, no table."""
    write_llmservingsim(tmp_path)
    change(tmp_path)
    assert main(arguments(tmp_path)) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "table.csv").exists()


def test_a_ratio_below_one_or_a_missing_link_is_refused(tmp_path, capsys):
    """Options that make no sense together are named."""
    write_llmservingsim(tmp_path)
    assert main(arguments(tmp_path, "--bandwidth-ratio", "0.5")) == 1
    assert "bandwidth ratio must be at least 1" in capsys.readouterr().err
    assert main(arguments(tmp_path, "--tensor-parallel", "2")) == 1
    assert "--link-gb-s must be given" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--model", "Llama-3.1-8B", "--dense", "excel:file"])


def test_two_gpus_pay_two_all_reduces_a_layer():
    """p = 2, 100 tokens, h = 4096 at 300 GB/s: 2·(10 µs + 2·½·100·4096·2 B / 300 GB/s)."""
    shape = Shape(llm("Llama-3.1-8B"), 2)
    expected = 2 * (1e-5 + 2 * 0.5 * 100 * 4096 * 2 / 300e9)
    assert all_reduce_s(100.0, shape, 300e9) == pytest.approx(expected)


def test_vidurs_files_are_milliseconds_a_layer(tmp_path):
    """A layer is the sum of its operators' medians; attention rows are chosen by heads."""
    names = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "input_layernorm", "mlp_act")
    frame = pd.DataFrame({"num_tokens": [1, 64], "num_tensor_parallel_workers": [1, 1]})
    for name in names:
        frame[f"time_stats.{name}.median"] = [0.01, 0.05]
    frame.to_csv(tmp_path / "mlp.csv", index=False)
    shape = Shape(llm("Llama-2-7B"))
    line = vidur.dense(tmp_path / "mlp.csv", shape)
    assert line.seconds.tolist() == pytest.approx([6 * 1e-5, 6 * 5e-5])
    # rescaled to the same model nothing changes: norm and activation, 0.02 and 0.1 ms
    assert vidur.elementwise(tmp_path / "mlp.csv", shape).seconds.tolist() == pytest.approx([2e-5, 1e-4])
    attention = pd.DataFrame(
        {
            "batch_size": [1, 4],
            "prefill_chunk_size": [128, 0],
            "kv_cache_size": [0, 256],
            "is_prefill": [True, False],
            "n_q_head": [32, 32],
            "n_kv_head": [32, 32],
            "num_tensor_parallel_workers": [1, 1],
            "time_stats.attn_prefill.median": [0.2, 0.0],
            "time_stats.attn_decode.median": [0.0, 0.03],
        }
    )
    attention.to_csv(tmp_path / "attention.csv", index=False)
    decode = vidur.decode(tmp_path / "attention.csv", shape)
    assert decode.seconds.tolist() == pytest.approx([3e-5])
    prefill = vidur.prefill(tmp_path / "attention.csv", shape)
    assert prefill.seconds.tolist() == pytest.approx([2e-4])
    with pytest.raises(ValueError, match="no rows for 32 query and 8 KV heads"):
        vidur.decode(tmp_path / "attention.csv", Shape(llm("Llama-3.1-8B")))
