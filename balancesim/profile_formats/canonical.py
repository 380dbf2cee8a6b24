"""Measured points -> the grid of a canonical table: interpolate, complete, smooth."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from balancesim.profile_formats.points import DecodePoints, Line, PrefillPoints
from balancesim.units import BoolArray, FloatArray

MEASURED, DERIVED = "measured", "derived"

#: (sequences, context) -> seconds of one layer's decode attention
DecodeTime = Callable[[float, float], float]

#: nodes of dense and head, as far as the source reaches: powers of two and, above 16, 3, 5, 7 eighths between them
LINE_NODES = tuple(
    sorted({2**i for i in range(15)} | {m * 2**i for i in range(3, 11) for m in (3, 5, 6, 7) if m * 2**i <= 8192})
)
KV_NODES = tuple(2.0**i for i in range(4, 21))
SEQUENCE_NODES = tuple(2.0**i for i in range(9))
PROMPT_NODES = tuple(2.0**i for i in range(4, 15))
PAIR_NODES = tuple(2.0**i for i in range(4, 29))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Nodes of one part of a table, before smoothing: times of shape (n,) or (n, m) and where they come from."""

    first: FloatArray
    second: FloatArray | None
    seconds: FloatArray
    measured: BoolArray

    def smoothed(self) -> "Part":
        """Return the same nodes with monotone times; derived nodes are first held between their measured neighbours."""
        lower = _running_maximum(np.where(self.measured, self.seconds, -np.inf))
        upper = _running_minimum(np.where(self.measured, self.seconds, np.inf))
        held = np.clip(self.seconds, lower, np.maximum(lower, upper))
        return Part(self.first, self.second, monotone(np.where(self.measured, self.seconds, held)), self.measured)


def monotone(times: FloatArray) -> FloatArray:
    """Return times that do not fall along any axis: mean of the running maximum and the reversed running minimum.

    Both are monotone, so their mean is; times that already are monotone stay as they are.
    """
    upper, lower = _running_maximum(times), _running_minimum(times)
    # Written so that equal bounds give exactly that value, and rounding cannot break the order.
    result: FloatArray = np.where(upper == lower, upper, 0.5 * upper + 0.5 * lower)
    return result


def _running_maximum(times: FloatArray) -> FloatArray:
    for axis in range(times.ndim):
        times = np.maximum.accumulate(times, axis=axis)
    return times


def _running_minimum(times: FloatArray) -> FloatArray:
    """Return at each node the least time of the nodes at or above it in every axis."""
    flipped = np.flip(times)
    for axis in range(times.ndim):
        flipped = np.minimum.accumulate(flipped, axis=axis)
    return np.flip(flipped)


def line(points: Line) -> Part:
    """Return dense or head nodes within the measured range, linear between measured ones."""
    nodes = np.array([node for node in LINE_NODES if points.x[0] <= node <= points.x[-1]], dtype=float)
    return Part(nodes, None, np.interp(nodes, points.x, points.seconds), np.isin(nodes, points.x))


def decode(points: DecodePoints) -> Part:
    """Return decode attention over (sequences, kv_tokens).

    A batch of b sequences over K cached tokens is read off at the mean context K/b: held below the smallest measured
    context, extended with the slope of the upper half beyond the largest. The KV axis ends at the largest measured
    b·context.
    """
    largest = float(np.max(points.sequences * points.context))
    kv = np.array([node for node in KV_NODES if node <= largest])
    batches = np.array([node for node in SEQUENCE_NODES if np.any(points.sequences == node)])
    rows, measured = [], []
    for batch in batches:
        context, seconds = points.row(batch)
        rows.append(extended(kv / batch, context, seconds))
        measured.append(np.isin(kv / batch, context))
    return Part(batches, kv, np.array(rows), np.array(measured))


def prefill(points: PrefillPoints, decode_s: DecodeTime) -> Part:
    """Return prefill attention over (new_tokens n, attention_pairs P); s = P/n is the context a row attends to.

    - s ≤ n: n/s prompts of s tokens. Where the source lacks that batch, the nearest smaller one is scaled: launch time
      plus (time − launch time) in proportion to the batch.
    - s > n: one chunk of n behind s − n cached tokens. Without such rows in the source: the prompt alone, plus the
      further pairs at the cost of a pair in the longest prompt (counted twice, since half of a causal square is
      computed), but at least a decode step over the same cache.

    A single prompt (P = n²) is the anchor, since at fixed P or fixed n real times need not be monotone: chunks behind a
    cache take at most what one prompt of as many pairs takes, batches of short prompts lie between that and one
    prompt of as many tokens. So a few rows behind a very long cache come out too cheap.
    """
    reach = float(np.max(points.sequences * points.tokens))
    tokens = np.array([node for node in PROMPT_NODES if node <= reach and node <= points.tokens.max()])
    pairs = np.array([node for node in PAIR_NODES if node <= tokens[-1] ** 2])
    seconds = np.zeros((len(tokens), len(pairs)))
    measured = np.zeros(seconds.shape, dtype=bool)
    reader = _PrefillReader(points, decode_s)
    for i, new in enumerate(tokens):
        for j, pair in enumerate(pairs):
            raw, measured[i, j] = reader.at(new, pair / new)
            same_pairs, same_tokens = reader.alone(np.sqrt(pair)), reader.alone(new)
            bounds = (0.0, same_pairs) if pair > new**2 else (same_pairs, same_tokens)
            seconds[i, j] = min(max(raw, bounds[0]), bounds[1])
            measured[i, j] &= bool(seconds[i, j] == raw)
    return Part(tokens, pairs, seconds, measured)


def extended(x: FloatArray, axis: FloatArray, seconds: FloatArray) -> FloatArray:
    """Interpolate: held below the axis; beyond it the mean slope (at least 0) of its upper half, against noise."""
    inside: FloatArray = np.interp(x, axis, seconds)
    if len(axis) < 2:
        return inside
    half = min(axis[-1] / 2, axis[-2])
    slope = max((seconds[-1] - np.interp(half, axis, seconds)) / (axis[-1] - half), 0.0)
    beyond: FloatArray = inside + slope * np.maximum(x - axis[-1], 0.0)
    return beyond


class _PrefillReader:
    """Reads a prefill source at n new tokens with s attended tokens a row."""

    def __init__(self, points: PrefillPoints, decode_s: DecodeTime) -> None:
        self._decode_s = decode_s
        self._rows = {float(b): points.row(b) for b in np.unique(points.sequences)}
        self._chunks = {
            float(n): points.chunk_row(n)
            for n in np.unique(points.tokens)
            if np.any(points.prior[points.tokens == n] > 0)
        }
        lengths, seconds = self._rows[1.0]
        self._alone = Line(lengths, monotone(seconds))
        self._launch_s = float(seconds.min())
        self._s_per_pair = 2 * float(seconds[-1] / lengths[-1] ** 2)

    def alone(self, length: float) -> float:
        """Return seconds of one prompt of this length, monotone."""
        return float(extended(np.array([length]), self._alone.x, self._alone.seconds)[0])

    def at(self, new: float, attended: float) -> tuple[float, bool]:
        """Return seconds and whether the source has this very node."""
        if attended > new:
            return self._chunk(new, attended - new)
        return self._batch(new / max(attended, 1.0), max(attended, 1.0))

    def _chunk(self, new: float, prior: float) -> tuple[float, bool]:
        if new in self._chunks:
            priors, seconds = self._chunks[new]
            return float(extended(np.array([prior]), priors, seconds)[0]), bool(np.any(priors == prior))
        alone, _ = self._batch(1.0, new)
        return max(alone + self._s_per_pair * new * prior, self._decode_s(1.0, new + prior)), False

    def _batch(self, prompts: float, length: float) -> tuple[float, bool]:
        # The largest measured batch not above `prompts` whose row reaches this length.
        usable = [b for b, (lengths, _) in self._rows.items() if b <= prompts and lengths[-1] >= length]
        if not usable:
            usable = [min(self._rows)]
        batch = max(usable)
        lengths, times = self._rows[batch]
        seconds = float(extended(np.array([length]), lengths, times)[0])
        if batch == prompts:
            return seconds, bool(np.any(lengths == length))
        return self._launch_s + (seconds - self._launch_s) * prompts / batch, False
