"""aiconfigurator profiles: ``gemm_perf``, ``context_attention_perf``, ``generation_attention_perf`` (parquet, ms)."""

from pathlib import Path

import numpy as np

from balancesim.profile_formats.points import DecodePoints, Line, PrefillPoints, Shape, require_columns, require_rows
from balancesim.units import MS, FloatArray

DTYPE = "bfloat16"


def dense(path: Path, shape: Shape) -> Line:
    """Return the matrix products of one layer against tokens: QKV, output, up (and gate), down (model.md §3).

    n and k between the measured sizes are interpolated linearly. Elementwise operators are not in this format.
    """
    llm, share = shape.llm, shape.tensor_parallel
    query, kv, ffn = shape.heads * llm.head_dim, shape.kv_heads * llm.head_dim, llm.ffn / share
    products = (
        (query + 2 * kv, llm.hidden),
        (llm.hidden, query),
        ((llm.ffn_matrices - 1) * ffn, llm.hidden),
        (llm.hidden, ffn),
    )
    grid = _Gemm(path)
    return Line(grid.m, np.sum([grid.at(n, k) for n, k in products], axis=0))


def head(path: Path, shape: Shape) -> Line:
    """Return the LM head, a product of n = vocabulary and k = h, against rows."""
    grid = _Gemm(path)
    return Line(grid.m, grid.at(shape.llm.vocab / shape.tensor_parallel, shape.llm.hidden))


def decode(path: Path, shape: Shape) -> DecodePoints:
    """Return decode attention; context = isl + step.

    The files have at most 8 KV heads. Heads are independent work, so b sequences of g·8 KV heads are read off as g·b
    sequences of 8, with the same number of query heads a KV head.
    """
    import pandas as pd

    frame = pd.read_parquet(path)
    columns = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "latency")
    require_columns(path, frame.columns, columns)
    kv_heads = min(shape.kv_heads, int(frame["num_key_value_heads"].max()))
    groups = shape.kv_heads / kv_heads
    frame = frame[
        (frame["num_key_value_heads"] == kv_heads)
        & (frame["num_heads"] == round(shape.heads / groups))
        & (frame["head_dim"] == shape.llm.head_dim)
        & (frame["kv_cache_dtype"] == DTYPE)
    ]
    require_rows(path, len(frame), f"{shape.heads} query heads on {shape.kv_heads} KV heads of {shape.llm.head_dim}")
    return DecodePoints(
        frame["batch_size"].to_numpy(float) / groups,
        (frame["isl"] + frame["step"]).to_numpy(float),
        frame["latency"].to_numpy(float) * MS,
    )


def prefill(path: Path, shape: Shape) -> PrefillPoints:
    """Return prefill attention of batches of equal prompts."""
    import pandas as pd

    frame = pd.read_parquet(path)
    columns = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "latency")
    require_columns(path, frame.columns, columns)
    frame = frame[
        (frame["num_key_value_heads"] == shape.kv_heads)
        & (frame["num_heads"] == shape.heads)
        & (frame["head_dim"] == shape.llm.head_dim)
        & (frame["kv_cache_dtype"] == DTYPE)
    ]
    require_rows(path, len(frame), f"{shape.heads} query heads on {shape.kv_heads} KV heads of {shape.llm.head_dim}")
    return PrefillPoints(
        frame["batch_size"].to_numpy(float),
        frame["isl"].to_numpy(float),
        frame["step"].to_numpy(float),
        frame["latency"].to_numpy(float) * MS,
    )


class _Gemm:
    """Times of m × n × k products, in seconds."""

    def __init__(self, path: Path) -> None:
        import pandas as pd

        frame = pd.read_parquet(path)
        require_columns(path, frame.columns, ("gemm_dtype", "m", "n", "k", "latency"))
        frame = frame[frame["gemm_dtype"] == DTYPE]
        require_rows(path, len(frame), DTYPE)
        table = frame.pivot_table(index="m", columns=["n", "k"], values="latency", aggfunc="median")
        self.m: FloatArray = table.index.to_numpy(float)
        self._n = np.unique(frame["n"].to_numpy(float))
        self._k = np.unique(frame["k"].to_numpy(float))
        self._times = {
            (n, k): table[n, k].to_numpy(float) * MS
            for n, k in zip(*(table.columns.get_level_values(level) for level in (0, 1)), strict=True)
        }

    def at(self, n: float, k: float) -> FloatArray:
        """Return the times for all m; beyond the largest n or k the last slope is kept."""
        total = np.zeros_like(self.m)
        for near_n, weight_n in _bracket(self._n, n):
            for near_k, weight_k in _bracket(self._k, k):
                total = total + weight_n * weight_k * self._times[near_n, near_k]
        return total


def _bracket(axis: FloatArray, value: float) -> tuple[tuple[float, float], ...]:
    index = min(max(int(np.searchsorted(axis, value)), 1), len(axis) - 1)
    low, high = float(axis[index - 1]), float(axis[index])
    weight = (value - low) / (high - low)
    return tuple(node for node in ((low, 1 - weight), (high, weight)) if node[1] != 0)
