"""LLMServingSim: ``dense.csv``, ``attention.csv``, ``per_sequence.csv`` (microseconds), v0 ``layers.csv`` (ns)."""

from pathlib import Path

import numpy as np

from balancesim.core.llm import LlmSpec
from balancesim.profile_formats.points import DecodePoints, Line, PrefillPoints, Shape, require_columns, require_rows

MICROSECOND = 1e-6
NANOSECOND = 1e-9

#: operators of one layer and how often each runs; embedding and final norm (once a pass, below 0.1 %) are left out
LAYER = {"qkv_proj": 1, "rotary_emb": 1, "o_proj": 1, "layernorm": 2, "gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
LAYER_V0 = (
    *("input_layernorm", "q_proj", "k_proj", "v_proj", "rope", "o_proj"),
    *("post_layernorm", "gate_proj", "up_proj", "act_fn", "down_proj"),
)


def dense(path: Path, shape: Shape) -> Line:
    """Return one layer without attention against tokens, from ``dense.csv`` or a v0 ``layers.csv``."""
    import pandas as pd

    frame = pd.read_csv(path)
    if "layer_name" in frame.columns:
        return _sum_v0(frame, shape, LAYER_V0)
    require_columns(path, frame.columns, ("layer", "tokens", "time_us"))
    table = frame.pivot_table(index="tokens", columns="layer", values="time_us", aggfunc="median")
    require_columns(path, table.columns, tuple(LAYER))
    seconds = sum(table[name].to_numpy(float) * count for name, count in LAYER.items())
    return Line(table.index.to_numpy(float), np.asarray(seconds) * MICROSECOND)


def decode(path: Path, shape: Shape) -> DecodePoints:  # noqa: ARG001 - one signature for all formats
    """Return decode attention: rows of ``attention.csv`` without a prefill chunk."""
    import pandas as pd

    frame = pd.read_csv(path)
    require_columns(path, frame.columns, ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"))
    frame = frame[frame["prefill_chunk"] == 0]
    require_rows(path, len(frame), "decode alone")
    return DecodePoints(
        frame["n_decode"].to_numpy(float),
        frame["kv_decode"].to_numpy(float),
        frame["time_us"].to_numpy(float) * MICROSECOND,
    )


def prefill(path: Path, shape: Shape) -> PrefillPoints:
    """Return prefill attention: rows of ``attention.csv`` without decodes, or ``attn`` of a v0 ``layers.csv``."""
    import pandas as pd

    frame = pd.read_csv(path)
    if "layer_name" in frame.columns:
        line = _sum_v0(frame, shape, ("attn",))
        return PrefillPoints(np.ones_like(line.x), line.x, np.zeros_like(line.x), line.seconds)
    require_columns(path, frame.columns, ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"))
    frame = frame[(frame["n_decode"] == 0) & (frame["prefill_chunk"] > 0)]
    require_rows(path, len(frame), "prefill alone")
    return PrefillPoints(
        np.ones(len(frame)),
        frame["prefill_chunk"].to_numpy(float),
        frame["kv_prefill"].to_numpy(float),
        frame["time_us"].to_numpy(float) * MICROSECOND,
    )


def head(path: Path, shape: Shape) -> Line:
    """Return LM head and sampler against rows, from ``per_sequence.csv``, or ``lm_head`` of a v0 ``layers.csv``."""
    import pandas as pd

    frame = pd.read_csv(path)
    if "layer_name" in frame.columns:
        return _sum_v0(frame, shape, ("lm_head",))
    require_columns(path, frame.columns, ("layer", "sequences", "time_us"))
    table = frame.pivot_table(index="sequences", columns="layer", values="time_us", aggfunc="median")
    require_columns(path, table.columns, ("lm_head", "sampler"))
    return Line(table.index.to_numpy(float), (table["lm_head"] + table["sampler"]).to_numpy(float) * MICROSECOND)


def _sum_v0(frame: object, shape: Shape, names: tuple[str, ...]) -> Line:
    import pandas as pd

    assert isinstance(frame, pd.DataFrame)
    table = frame.pivot_table(index="input", columns="layer_name", values="latency(ns)", aggfunc="median")
    require_columns(Path("layers.csv"), table.columns, names)
    measured = shape.measured or shape.llm
    seconds = sum(table[name].to_numpy(float) * size(name, shape.llm) / size(name, measured) for name in names)
    return Line(table.index.to_numpy(float), np.asarray(seconds) * NANOSECOND)


def size(operator: str, llm: LlmSpec) -> int:
    """Return the weights of a matrix product, or the width of an elementwise operator: time is proportional to it."""
    hidden, query, kv = llm.hidden, llm.query_width, llm.kv_width
    sizes = {
        "q_proj": hidden * query,
        "k_proj": hidden * kv,
        "v_proj": hidden * kv,
        "o_proj": hidden * query,
        "gate_proj": hidden * llm.ffn,
        "up_proj": hidden * llm.ffn,
        "down_proj": hidden * llm.ffn,
        "lm_head": hidden * llm.vocab,
        "act_fn": llm.ffn,
        "attn": query,
    }
    return sizes.get(operator, hidden)
