"""Readers of aiconfigurator and LLMServingSim v0 files, and shipped tables beside rows of their sources."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from balancesim.catalog import llm
from balancesim.profile_formats import aiconfigurator, canonical, llmservingsim
from balancesim.profile_formats.__main__ import main
from balancesim.profile_formats.points import DecodePoints, PrefillPoints, Shape
from balancesim.profiles import Curve, Surface, pair_table, table_from_rows

GEMM_SIZES = (1024, 4096, 8192, 16384, 32768)


def write_aiconfigurator(folder):
    """Products take 1 µs + n·k·(1 + m/100) ps, decoding 2 µs + 1 ns a KV token and head, prefill 3 µs + s² ps."""
    gemm = [
        ("bfloat16", m, n, k, 1e-3 + n * k * (1 + m / 100) * 1e-9)
        for m in (1, 16, 128, 1024)
        for n in GEMM_SIZES
        for k in GEMM_SIZES
    ]
    gemm += [("fp8", m, n, k, 1e-6) for _, m, n, k, _ in gemm]
    columns = ["gemm_dtype", "m", "n", "k", "latency"]
    pd.DataFrame(gemm, columns=columns).to_parquet(folder / "gemm.parquet")
    columns = ["batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "latency"]
    decode = [
        (b, 1, c - 1, heads, 8, 128, dtype, 2e-3 + b * c * 8 * 1e-6 * scale)
        for b in (1, 2, 4, 8, 16, 32, 64)
        for c in (16, 64, 256, 1024, 4096)
        for heads in (8, 32)
        for dtype, scale in (("bfloat16", 1.0), ("fp8", 0.5))
    ]
    pd.DataFrame(decode, columns=columns).to_parquet(folder / "generation.parquet")
    prefill = [
        (b, s, 0, 32, kv, 128, "bfloat16", 3e-3 + b * s * s * 1e-9)
        for b in (1, 2, 4)
        for s in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
        for kv in (8, 32)
    ]
    pd.DataFrame(prefill, columns=columns).to_parquet(folder / "context.parquet")


def test_products_are_read_at_the_models_sizes(tmp_path):
    """Llama-3.1-8B: QKV 6144×4096, output 4096², up and gate 28672×4096, down 4096×14336; linear between sizes."""
    write_aiconfigurator(tmp_path)
    line = aiconfigurator.dense(tmp_path / "gemm.parquet", Shape(llm("Llama-3.1-8B")))
    weights = 4096 * (6144 + 4096 + 28672 + 14336)
    assert line.x.tolist() == [1, 16, 128, 1024]
    assert line.seconds == pytest.approx([4e-6 + weights * (1 + m / 100) * 1e-12 for m in line.x])


def test_the_head_extends_beyond_the_largest_product(tmp_path):
    """128,256 × 4,096, while the largest n is 32,768: the last slope goes on."""
    write_aiconfigurator(tmp_path)
    line = aiconfigurator.head(tmp_path / "gemm.parquet", Shape(llm("Llama-3.1-8B")))
    assert line.seconds == pytest.approx([1e-6 + 128256 * 4096 * (1 + m / 100) * 1e-12 for m in line.x])


def test_more_kv_heads_than_measured_are_more_sequences(tmp_path):
    """Llama-2-7B has 32 KV heads, the file 8: 4 sequences of 8 heads stand for one, with one query head a KV head."""
    write_aiconfigurator(tmp_path)
    points = aiconfigurator.decode(tmp_path / "generation.parquet", Shape(llm("Llama-2-7B")))
    context, seconds = points.row(2.0)
    assert context.tolist() == [16, 64, 256, 1024, 4096]
    assert seconds == pytest.approx(2e-6 + 2 * context * 32 * 1e-9)


def test_an_aiconfigurator_system_becomes_a_table(tmp_path):
    """All four parts from parquet files; fp8 rows are left out."""
    write_aiconfigurator(tmp_path)
    files = {"dense": "gemm", "head": "gemm", "decode": "generation", "prefill": "context"}
    given = [
        word for part, file in files.items() for word in (f"--{part}", f"aiconfigurator:{tmp_path}/{file}.parquet")
    ]
    assert main(["--model", "Llama-3.1-8B", *given, "--out", str(tmp_path / "table.csv")]) == 0
    table = table_from_rows("table", read_rows(tmp_path / "table.csv"))
    assert table.decode_s(8.0, 8 * 1024.0) == pytest.approx(2e-6 + 8 * 1024 * 8e-9, rel=1e-5)
    assert table.prefill_s(1024.0, 1024.0**2) == pytest.approx(3e-6 + 1024**2 * 1e-12, rel=1e-5)
    assert table.prefill_s(2048.0, 2 * 1024.0**2) == pytest.approx(3e-6 + 2 * 1024**2 * 1e-12, rel=0.06)
    assert table.overhead_s(1.0) == 0.0


def read_rows(path):
    frame = pd.read_csv(path, comment="#")
    return list(frame[["part", "x", "y", "seconds"]].itertuples(index=False, name=None))


def test_a_model_of_other_heads_is_refused(tmp_path):
    """TinyLlama's heads are 64 wide: no row."""
    write_aiconfigurator(tmp_path)
    for reader, file in ((aiconfigurator.decode, "generation"), (aiconfigurator.prefill, "context")):
        with pytest.raises(ValueError, match="no rows for 32 query heads"):
            reader(tmp_path / f"{file}.parquet", Shape(llm("TinyLlama-1.1B")))


def test_an_older_profile_is_rescaled_to_another_model(tmp_path):
    """v0, Llama-3.1-8B: every operator 1,000 ns; products of Llama-2-7B in proportion to their weights."""
    names = [*llmservingsim.LAYER_V0, "lm_head", "attn"]
    frame = pd.DataFrame([(name, n, 1000.0) for name in names for n in (1, 16, 64)])
    frame.columns = ["layer_name", "input", "latency(ns)"]
    frame.to_csv(tmp_path / "layers.csv", index=False)
    same = llmservingsim.dense(tmp_path / "layers.csv", Shape(llm("Llama-3.1-8B")))
    assert same.seconds == pytest.approx([11e-6] * 3)
    other = Shape(llm("Llama-2-7B"), measured=llm("Llama-3.1-8B"))
    # k and v: 4 times the KV heads; gate, up, down and activation: 11008/14336; the other 5 equal.
    expected = (5 + 2 * 4 + 4 * 11008 / 14336) * 1e-6
    assert llmservingsim.dense(tmp_path / "layers.csv", other).seconds == pytest.approx([expected] * 3)
    assert llmservingsim.head(tmp_path / "layers.csv", other).seconds == pytest.approx([32000 / 128256 * 1e-6] * 3)
    assert llmservingsim.prefill(tmp_path / "layers.csv", other).seconds == pytest.approx([1e-6] * 3)


def test_monotone_leaves_rising_times_alone_and_never_falls():
    """1, 3, 2, 4 becomes 1, 2.5, 2.5, 4; a rising grid stays."""
    assert canonical.monotone(np.array([1.0, 3.0, 2.0, 4.0])).tolist() == [1.0, 2.5, 2.5, 4.0]
    rising = np.add.outer(np.arange(3.0), np.arange(4.0))
    assert canonical.monotone(rising).tolist() == rising.tolist()


def test_completed_nodes_give_way_to_measured_ones():
    """A derived 9 between a measured 1 and 2 becomes 2; the measured ones stay."""
    part = canonical.Part(np.array([1.0, 2.0, 3.0]), None, np.array([1.0, 9.0, 2.0]), np.array([True, False, True]))
    assert part.smoothed().seconds.tolist() == [1.0, 2.0, 2.0]


def test_decode_points_beyond_the_contexts_follow_the_upper_half():
    """Contexts 16, 32, 64 at 1, 2, 4 s: at 128 the slope from 32 to 64 gives 8 s; below 16 the first time is held."""
    points = DecodePoints(np.array([1.0, 1, 1, 8]), np.array([16.0, 32, 64, 64]), np.array([1.0, 2, 4, 30]))
    part = canonical.decode(points)
    assert part.second is not None
    assert part.second.tolist() == [16, 32, 64, 128, 256, 512]
    assert part.seconds[0, :4].tolist() == [1.0, 2.0, 4.0, 8.0]
    assert part.measured[0].tolist() == [True, True, True, False, False, False]


def test_a_single_prompt_anchors_prefill_attention():
    """Prompts of 16 to 64 at s² seconds: two of 32 lie between one of √(2·32²) and one of 64, a chunk at its pairs."""
    points = PrefillPoints(np.ones(3), np.array([16.0, 32, 64]), np.zeros(3), np.array([256.0, 1024, 4096]))
    part = canonical.prefill(points, lambda _sequences, _context: 0.0).smoothed()
    assert part.second is not None
    at = {(n, p): part.seconds[i, j] for i, n in enumerate(part.first) for j, p in enumerate(part.second)}
    assert at[64.0, 4096.0] == 4096.0
    assert 1024 < at[64.0, 2048.0] < 4096
    assert at[32.0, 4096.0] <= 4096.0


@pytest.mark.parametrize(
    ("pair", "sequences", "context", "microseconds"),
    [
        (("H100 SXM", "Llama-3-8B"), 64, 1024, 102.6),
        (("H100 SXM", "Llama-3-8B"), 256, 512, 202.8),
        (("H100 SXM", "Llama-2-7B"), 8, 1024, 58.8),
        (("A100-80 SXM", "Llama-3-8B"), 64, 2048, 356.4),
        (("A100-80 SXM", "Llama-2-7B"), 64, 2048, 1216.0),
        (("A800-80", "Llama-2-7B"), 1, 1024, 25.0),
        (("RTX 4090", "Llama-3.1-8B"), 16, 256, 36.5953),
    ],
)
def test_decode_attention_rows_of_the_sources_are_in_the_tables(pair, sequences, context, microseconds):
    """Rows of the published files, to 8 %: smoothing moves a node by less than that here."""
    ours = pair_table(*pair).decode_s(float(sequences), float(sequences * context))
    assert ours * 1e6 == pytest.approx(microseconds, rel=0.08)


@pytest.mark.parametrize(
    ("gpu", "length", "microseconds", "tolerance"),
    [("H100 SXM", 1024, 44.9, 0.02), ("H100 SXM", 1536, 77.0, 0.2), ("H100 SXM", 3072, 203.0, 0.2),
     ("A100-80 SXM", 2048, 272.9, 0.02), ("A100-80 SXM", 1536, 175.3, 0.2), ("A100-80 SXM", 3072, 544.0, 0.2)],
)  # fmt: skip
def test_prefill_attention_at_and_between_the_nodes(gpu, length, microseconds, tolerance):
    """Llama-3-8B, one prompt: nodes to 2 %; lengths of the source that the table leaves out to 20 %."""
    ours = pair_table(gpu, "Llama-3-8B").prefill_s(float(length), float(length**2))
    assert ours * 1e6 == pytest.approx(microseconds, rel=tolerance)


def test_a_surface_is_bilinear_and_follows_the_ray_beyond():
    """t = x + y on a 2×2 grid; beyond, r times the time at the border on the ray; numbers and arrays agree.

    (6, 20): r = 2, 2·(3 + 10). (6, 40): 2·(3 + 20), twice the work in twice the time. (2, 40): 2·(1 + 20). (6, 10):
    2·t(3, 5), held at y = 10: 2·(3 + 10). (12, 40): r = 4, 4·(3 + 10).
    """
    surface = Surface("s", np.array([1.0, 3.0]), np.array([10.0, 20.0]), np.array([[11.0, 21.0], [13.0, 23.0]]))
    x = np.array([1.0, 2.0, 3.0, 6.0, 0.5, 6.0, 2.0, 6.0, 12.0])
    y = np.array([10.0, 15.0, 20.0, 20.0, 5.0, 40.0, 40.0, 10.0, 40.0])
    expected = [11.0, 17.0, 23.0, 26.0, 11.0, 46.0, 42.0, 26.0, 52.0]
    assert surface.at(x, y).tolist() == expected
    assert [surface.at(float(a), float(b)) for a, b in zip(x, y, strict=True)] == expected
    with pytest.raises(ValueError, match="shape"):
        Surface("s", np.array([1.0, 3.0]), np.array([10.0, 20.0]), np.ones((2, 3)))


@pytest.mark.parametrize("gpu", ["H100 SXM", "A100-80 SXM"])
@pytest.mark.parametrize(("part", "count", "median", "worst"), [
    ("attention_prefill", 36, 0.05, 0.15), ("attention_decode", 21, 0.21, 0.31),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::balancesim.profiles.ExtrapolationWarning")
def test_attention_beyond_the_table_is_near_the_published_rows(gpu, part, count, median, worst):
    """Published rows that no table was made from, up to 8 times beyond: growing each axis by itself was 2.4-2.8 times
    too slow in the median of prefill, 8 times at worst, and 5 times at worst in decoding."""
    frame = pd.read_csv(Path(__file__).parent / "data" / "attention_beyond_tables.csv", comment="#")
    frame = frame[(frame["gpu"] == gpu) & (frame["part"] == part)]
    batch, tokens = frame["sequences"].to_numpy(float), frame["tokens_each"].to_numpy(float)
    table = pair_table(gpu, "Llama-3-8B")
    if part == "attention_prefill":
        ours = table.prefill_s(batch * tokens, batch * tokens**2)
    else:
        ours = table.decode_s(batch, batch * tokens)
    errors = np.abs(ours * 1e3 / frame["latency_ms"].to_numpy() - 1)
    assert len(errors) == count
    assert np.median(errors) < median
    assert errors.max() < worst


@st.composite
def grids(draw):
    """Any non-decreasing table, flat, steep (growing faster than in proportion) or both."""
    axes = [np.cumsum(draw(st.lists(st.integers(1, 50), min_size=2, max_size=4))).astype(float) for _ in range(2)]
    rises = draw(st.lists(st.integers(0, 9), min_size=16, max_size=16))
    times = np.array(rises[: len(axes[0]) * len(axes[1])], dtype=float).reshape(len(axes[0]), len(axes[1]))
    return Surface("any", *axes, np.cumsum(np.cumsum(times, axis=0), axis=1))


@given(grids(), *(st.floats(0.01, 5) for _ in range(2)), *(st.floats(1, 3) for _ in range(2)))
@example(Surface("steep", np.array([1.0, 2]), np.array([1.0, 10]), np.array([[0.0, 9], [0.0, 9]])), 1.0, 0.9, 1.5, 1.0)
def test_beyond_a_surface_times_rise_in_both_and_join_at_the_border(surface, x, y, more_x, more_y):
    """A cost law must not fall; the largest on the way along the ray, found by search; no jump at the border."""
    last = np.array(surface.last)
    x, y = float(x * last[0]), float(y * last[1])
    time = surface.at(x, y)
    for other in ((x * more_x, y), (x, y * more_y), (x * more_x, y * more_y)):
        assert surface.at(*other) >= time * (1 - 1e-12) - 1e-12
    ratio = max(x / last[0], y / last[1], 1.0)
    rho = np.linspace(1.0, ratio, 200)
    search = rho * surface.at(np.minimum(x / rho, last[0]), np.minimum(y / rho, last[1]))
    assert search.max() <= time * (1 + 1e-12)
    assert time <= search.max() * (1 + 4 * (ratio - 1) / 199) + 1e-12
    scale = 1e-9 * surface.times.max() * max(*last, 1.0)
    for edge in ((last[0], min(y, last[1])), (min(x, last[0]), last[1])):
        beyond = surface.at(edge[0] * (1 + 1e-12), edge[1] * (1 + 1e-12))
        assert beyond == pytest.approx(surface.at(*edge), rel=1e-9, abs=scale)
    arrays = surface.at(np.array([x, x / 9]), np.array([y, y / 9]))
    np.testing.assert_allclose(arrays, [time, surface.at(x / 9, y / 9)], rtol=1e-9, atol=1e-12)


def test_beyond_a_curve_the_slope_is_that_of_its_upper_half():
    """Times 10, 20, 28 at 2, 4, 8: slope (28 − 20)/4; with noise in the last node's neighbour the same slope."""
    for axis, times in (([2.0, 4, 8], [10.0, 20, 28]), ([2.0, 4, 7.9, 8], [10.0, 20, 20, 28])):
        curve = Curve("c", np.array(axis), np.array(times))
        assert curve.at(10.0) == pytest.approx(28 + 2 * 2)
        assert curve.at(np.array([8.0, 10.0])).tolist() == pytest.approx([28, 32])


@pytest.mark.parametrize(
    "pair", [("H100 SXM", "Llama-2-7B"), ("A100-80 SXM", "Llama-3-8B"), ("RTX 4090", "Llama-3-8B")]
)
def test_curves_predict_the_nodes_that_are_left_out(pair):
    """Measured dense times at the last node, from tables cut anywhere in their upper half: within 15 %.

    The slope of the last two nodes alone is wrong by up to 21 %, 34 % and 18 % there.
    """
    whole = pair_table(*pair).dense
    for cut in range(int(np.searchsorted(whole.axis, whole.last / 2)) + 1, len(whole.axis)):
        part = Curve("dense", whole.axis[:cut], whole.times[:cut])
        assert part.at(whole.last) == pytest.approx(whole.times[-1], rel=0.15)
