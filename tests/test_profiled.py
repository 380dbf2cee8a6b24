"""Measured cost tables: what was measured, what lies between, what lies beyond, and what is refused."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim.catalog import gpu, llm
from balancesim.core.work import Phase, decode_pass, prefill_pass, verify_pass
from balancesim.latency_laws import LATENCY_LAWS, Profiled
from balancesim.profiles import ExtrapolationWarning, pair_table, pairs, read_table, table_from_rows

LLAMA2, LLAMA31 = llm("Llama-2-7B"), llm("Llama-3.1-8B")


def rows(**changed):
    """A small good table: dense 1 ms + 0.1 ms a token, attention 1 µs a KV token, head 2 ms."""
    good = {
        "dense": [("dense", x, float("nan"), 1e-3 + 1e-4 * x) for x in (1.0, 8.0, 64.0)],
        "attention_decode": [
            ("attention_decode", b, kv, 1e-6 * kv + 1e-5 * b) for b in (1.0, 8.0) for kv in (16.0, 1024.0)
        ],
        "attention_prefill": [
            ("attention_prefill", s, p, 1e-8 * p + 1e-7 * s) for s in (16.0, 256.0) for p in (256.0, 65536.0)
        ],
        "head": [("head", x, float("nan"), 2e-3) for x in (1.0, 64.0)],
    }
    return [row for part in (good | changed).values() for row in part]


@pytest.mark.parametrize(
    ("card", "model", "tokens", "layer_ms"),
    [
        ("A100-80 SXM", LLAMA2, 1, 0.290),
        ("A100-80 SXM", LLAMA2, 512, 1.042),
        ("H100 SXM", LLAMA2, 1024, 0.657),
        ("H100 SXM", LLAMA2, 2048, 1.266),
        ("A40", LLAMA2, 256, 1.393),
        ("RTX 4090", LLAMA31, 1, 15.3 / 32),
        ("RTX 4090", LLAMA31, 512, 46.1 / 32),
    ],
)
def test_dense_times_are_the_measured_ones(card, model, tokens, layer_ms):
    """One layer without attention as docs/facts.md §6 lists it, to 2 %: tables are smoothed to rise."""
    assert pair_table(card, model.name).dense_s(float(tokens)) * 1e3 == pytest.approx(layer_ms, rel=0.02)


@pytest.mark.parametrize(("sequences", "context", "layer_us"), [(8, 1024, 56), (32, 1024, 181), (64, 4096, 1185)])
def test_decode_attention_is_the_measured_one(sequences, context, layer_us):
    """RTX 4090, Llama-3.1-8B, µs a layer as docs/facts.md §6 lists them."""
    table = pair_table("RTX 4090", "Llama-3.1-8B")
    assert table.decode_s(float(sequences), float(sequences * context)) * 1e6 == pytest.approx(layer_us, rel=0.02)


def test_a_pass_is_the_sum_of_its_parts():
    """By hand from a small table: 22 layers of TinyLlama, decode of 8 requests at 128 tokens each, host time 1 ms."""
    table = table_from_rows("hand", rows())
    assert table.dense_s(8.0) == pytest.approx(1.8e-3)
    assert table.decode_s(8.0, 1024.0) == pytest.approx(1.024e-3 + 8e-5)
    assert table.overhead_s(8.0) == 0.0


def test_the_law_reads_a_users_own_table(tmp_path):
    """J·(dense + attention) + head + overhead, with a table from a file."""
    text = "part,x,y,seconds,origin\n" + "".join(
        f"{part},{x},{'' if math.isnan(y) else y},{seconds},measured\n" for part, x, y, seconds in rows()
    )
    path = tmp_path / "mine.csv"
    path.write_text("# by hand\n" + text, encoding="utf-8")
    law = Profiled(table=str(path), step_overhead_s=1e-3, sequence_overhead_s=1e-5)
    tiny = llm("TinyLlama-1.1B")
    expected = 22 * (1.8e-3 + 1.024e-3 + 8e-5) + 2e-3 + 1e-3 + 8e-5
    assert law.forward_s(tiny, gpu("L4"), Phase.DECODE, decode_pass(8.0, 1024.0)) == pytest.approx(expected)
    prefill = 22 * (1e-3 + 1e-4 * 32 + 1e-8 * 1024 + 1e-7 * 32) + 2e-3 + 1e-3 + 1e-5
    assert law.forward_s(tiny, gpu("L4"), Phase.PREFILL, prefill_pass(32.0, 1024.0, 1.0)) == pytest.approx(prefill)


def test_between_nodes_times_are_linear_below_the_first_held():
    """Half-way between 8 and 64 tokens; at half a token the time of the first node."""
    table = table_from_rows("hand", rows())
    assert table.dense_s(36.0) == pytest.approx((1.8e-3 + 7.4e-3) / 2)
    assert table.dense_s(0.5) == pytest.approx(1.1e-3)


def test_beyond_the_table_one_warning_and_the_last_slope():
    """The warning names table, part, axis, range and value, once however often the table is left."""
    table = table_from_rows("hand", rows())
    with pytest.warns(ExtrapolationWarning, match="profile hand: dense is measured for tokens 1 to 64, got 128"):
        assert table.dense_s(128.0) == pytest.approx(1e-3 + 1e-4 * 128)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.dense_s(256.0)
    with pytest.warns(ExtrapolationWarning, match="attention_decode is measured for kv_tokens 16 to 1024"):
        table.decode_s(1.0, 5000.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dense": []}, "part dense is missing"),
        ({"dense": [("dense", 1.0, float("nan"), 1e-3)]}, "dense"),
        ({"dense": [("dense", x, float("nan"), 1e-3) for x in (8.0, 1.0)]}, "dense"),
        ({"dense": [("dense", x, float("nan"), t) for x, t in ((1.0, 1e-3), (8.0, -1e-3))]}, "dense"),
        ({"dense": [("dense", x, float("nan"), t) for x, t in ((1.0, 1e-3), (8.0, float("nan")))]}, "dense"),
        ({"dense": [("dense", x, float("nan"), t) for x, t in ((1.0, 2e-3), (8.0, 1e-3))]}, "dense"),
        (
            {"attention_decode": [("attention_decode", 1.0, 16.0, 1e-3), ("attention_decode", 8.0, 1024.0, 1e-3)]},
            "grid",
        ),
        ({"attention_decode": [("attention_decode", 1.0, float("nan"), 1e-3)]}, "must have two numbers"),
        ({"other": [("other", 1.0, 1.0, 1e-3)]}, "unknown part 'other'"),
    ],
)
def test_bad_tables_are_refused_in_one_line(changed, message):
    """Missing part, one point, unsorted, negative, NaN, falling, gaps, unknown part."""
    with pytest.raises(ValueError, match=message) as caught:
        table_from_rows("bad", rows(**changed))
    assert str(caught.value).startswith("profile bad: ")
    assert "\n" not in str(caught.value)


def test_unsorted_grids_are_refused():
    """All nodes are there, in another order."""
    nodes = [("attention_decode", b, kv, 1e-3) for kv in (16.0, 1024.0) for b in (1.0, 8.0)]
    with pytest.raises(ValueError, match="must rise in sequences, then in kv_tokens"):
        table_from_rows("bad", rows(attention_decode=nodes))


def test_bad_files_name_the_line(tmp_path):
    """A missing file, a missing column, a word for a number."""
    with pytest.raises(ValueError, match="no such file"):
        read_table(str(tmp_path / "none.csv"))
    path = tmp_path / "short.csv"
    path.write_text("part,x,y\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"column\(s\) seconds missing"):
        read_table(str(path))
    path = tmp_path / "word.csv"
    path.write_text("# note\npart,x,y,seconds\ndense,1,,fast\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 3: x, y and seconds must be numbers"):
        read_table(str(path))


def test_a_pair_without_a_table_lists_those_with_one():
    """The error names the pair and the choices."""
    with pytest.raises(ValueError, match=r"no measured profile of this pair .*A40/Llama-2-7B"):
        pair_table("L4", "Llama-2-7B")
    with pytest.raises(ValueError, match="step_overhead_s must be finite and at least 0"):
        Profiled(step_overhead_s=-1.0)
    assert Profiled in LATENCY_LAWS


@pytest.mark.parametrize("pair", sorted(pairs()))
def test_every_shipped_table_is_sound(pair):
    """It loads, and its law is monotone in batch and context and equal for scalars and arrays."""
    card, model = gpu(pair[0]), llm(pair[1])
    law = Profiled()
    contexts = np.array([128.0, 512.0, 2048.0])
    together = law.forward_s(model, card, Phase.DECODE, decode_pass(4.0, 4.0 * contexts))
    alone = [law.forward_s(model, card, Phase.DECODE, decode_pass(4.0, 4.0 * c)) for c in contexts]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert all(np.diff(together) >= 0)
    more = law.forward_s(model, card, Phase.VERIFY, verify_pass(4.0, 4.0 * contexts, 4))
    assert np.all(more >= together)


@given(st.lists(st.floats(1, 2000), min_size=4, max_size=4), st.integers(0, 3), st.floats(1, 3))
def test_times_never_fall_when_a_sum_rises(sums, which, factor):
    """The contract of a cost law, on the shipped RTX 4090 table."""
    table = pair_table("RTX 4090", "Llama-3.1-8B")
    parts = (
        table.dense_s,
        lambda x: table.decode_s(min(x, 256.0), 4e4),
        lambda x: table.decode_s(8.0, 10 * x),
        table.head_s,
    )
    value = sums[which] if which != 3 else min(sums[which], 200.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        assert parts[which](value * factor) >= parts[which](value) * (1 - 1e-12)


@pytest.mark.parametrize("card", sorted({card for card, _ in pairs()}))
def test_the_rooflines_efficiencies_are_those_of_the_tables(card):
    """One layer of P weights: 2·P bytes at 1 token against the bandwidth, 2·P·2,048 FLOPs at 2,048 against the peak.

    To 5 %: the published values are rounded, and the A100-40's are those of the A100-80, whose table is scaled.
    """
    model = next(llm(name) for gpu_name, name in sorted(pairs()) if gpu_name == card)
    table, spec, weights = pair_table(card, model.name), gpu(card), model.nonembedding_parameters / model.layers
    assert spec.bandwidth_efficiency == pytest.approx(
        2 * weights / (spec.bandwidth_bytes_s * table.dense_s(1.0)), rel=0.05
    )
    assert spec.compute_efficiency == pytest.approx(
        2 * weights * 2048 / (spec.peak_flops * table.dense_s(2048.0)), rel=0.05
    )
