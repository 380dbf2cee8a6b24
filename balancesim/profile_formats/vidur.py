"""Vidur and Frontier profiles: ``*_mlp.csv`` (dense) and ``*_attention.csv``; milliseconds, medians are taken."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from balancesim.profile_formats.points import DecodePoints, Line, PrefillPoints, Shape, require_columns, require_rows
from balancesim.units import MS, FloatArray

if TYPE_CHECKING:
    import pandas as pd

#: matrix products of a layer; the rest is elementwise. The embedding (once a pass, below 0.1 %) is left out.
PRODUCTS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
ELEMENTWISE = ("input_layernorm", "attn_rope", "post_attention_layernorm", "mlp_act", "add")


def dense(path: Path, shape: Shape) -> Line:
    """Return one layer without attention against tokens: the sum of the medians of its operators."""
    tokens, times = _operators(path, shape)
    return Line(tokens, np.sum([times[name] for name in (*PRODUCTS, *ELEMENTWISE) if name in times], axis=0))


def elementwise(path: Path, shape: Shape) -> Line:
    """Return the operators of a layer that are no matrix products, rescaled from ``shape.measured`` to ``shape.llm``.

    Launch time (the time at one token) stays; what exceeds it grows with the width: f for the activation, h else.
    """
    measured = shape.measured or shape.llm
    tokens, times = _operators(path, shape)
    total = np.zeros_like(tokens)
    for name in ELEMENTWISE:
        if name in times:
            ratio = shape.llm.ffn / measured.ffn if name == "mlp_act" else shape.llm.hidden / measured.hidden
            total = total + times[name][0] + ratio * (times[name] - times[name][0])
    return Line(tokens, total)


def decode(path: Path, shape: Shape) -> DecodePoints:
    """Return decode attention; the column ``kv_cache_size`` is the context of each sequence."""
    frame = _attention(path, shape, prefill=False)
    return DecodePoints(
        frame["batch_size"].to_numpy(float),
        frame["kv_cache_size"].to_numpy(float),
        frame["time_stats.attn_decode.median"].to_numpy(float) * MS,
    )


def prefill(path: Path, shape: Shape) -> PrefillPoints:
    """Return prefill attention of single chunks without prior context (rows with one are sparse in these files)."""
    frame = _attention(path, shape, prefill=True)
    frame = frame[frame["kv_cache_size"] == 0]
    return PrefillPoints(
        frame["batch_size"].to_numpy(float),
        frame["prefill_chunk_size"].to_numpy(float),
        frame["kv_cache_size"].to_numpy(float),
        frame["time_stats.attn_prefill.median"].to_numpy(float) * MS,
    )


def _operators(path: Path, shape: Shape) -> tuple[FloatArray, dict[str, FloatArray]]:
    import pandas as pd

    frame = pd.read_csv(path)
    require_columns(path, frame.columns, ("num_tokens", "num_tensor_parallel_workers", "time_stats.mlp_up_proj.median"))
    frame = frame[frame["num_tensor_parallel_workers"] == shape.tensor_parallel]
    require_rows(path, len(frame), f"tensor parallel {shape.tensor_parallel}")
    medians = frame.groupby("num_tokens").median(numeric_only=True)
    present = {name: f"time_stats.{name}.median" for name in (*PRODUCTS, *ELEMENTWISE)}
    return medians.index.to_numpy(float), {
        name: medians[column].to_numpy(float) * MS for name, column in present.items() if column in medians
    }


def _attention(path: Path, shape: Shape, *, prefill: bool) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.read_csv(path)
    columns = ("batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill", "n_q_head", "n_kv_head")
    require_columns(path, frame.columns, columns)
    frame = frame[(frame["is_prefill"] == prefill) & (frame["num_tensor_parallel_workers"] == shape.tensor_parallel)]
    # Rows of the model itself, else of the one that the files measured (scale those with *RATIO).
    rows = frame[:0]
    for llm in (shape.llm, shape.measured):
        if llm is not None and rows.empty:
            rows = frame[(frame["n_q_head"] == llm.heads) & (frame["n_kv_head"] == llm.kv_heads)]
    require_rows(path, len(rows), f"{shape.llm.heads} query and {shape.llm.kv_heads} KV heads")
    return rows
