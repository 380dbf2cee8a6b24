"""Canonical profile tables: one CSV file for a GPU and a model.

Columns ``part, x, y, seconds, origin``; lines that begin with ``#`` say where the numbers come from. Parts and axes:

| part              | x                | y               | seconds of                                                |
|-------------------|------------------|-----------------|-----------------------------------------------------------|
| dense             | tokens           |                 | one layer without attention, tokens = rows of the batch   |
| attention_decode  | sequences        | kv_tokens       | one layer's attention, one new row a sequence; Σ contexts |
| attention_prefill | new_tokens       | attention_pairs | one layer's attention over prompts; Σ s, Σ s²             |
| head              | head_rows        |                 | LM head and sampler, once a pass                          |
| overhead          | sequences        |                 | host time of the engine, once a pass (optional part)      |

The attention axes are sums, not means: measured decode attention hardly depends on how the cached tokens are shared
out among sequences, so the table stays monotone in each sum of a pass. ``origin`` is ``measured`` (a node of the
source, perhaps smoothed) or ``derived`` (interpolated, completed or rescaled; the comments say how).
"""

import csv
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from balancesim.profiles.grid import Curve, Surface, peak
from balancesim.units import Numeric

#: parts with their axes, in the order of the file
AXES: dict[str, tuple[str, ...]] = {
    "dense": ("tokens",),
    "attention_decode": ("sequences", "kv_tokens"),
    "attention_prefill": ("new_tokens", "attention_pairs"),
    "head": ("head_rows",),
    "overhead": ("sequences",),
}
OPTIONAL_PARTS = frozenset({"overhead"})

Row = tuple[str, float, float, float]


class ExtrapolationWarning(UserWarning):
    """A pass lies outside a measured table; its time is extrapolated (`Curve`, `Surface`)."""


@dataclass(frozen=True, slots=True, eq=False)
class ProfileTable:
    """Measured times of one model on one GPU."""

    name: str
    dense: Curve
    decode: Surface
    prefill: Surface
    head: Curve
    overhead: Curve | None = None
    #: axes already warned about, so that each is named once however often a simulation leaves the table
    _warned: set[tuple[str, int]] = field(default_factory=set, repr=False)

    def dense_s(self, tokens: Numeric) -> Numeric:
        """Return the time of one layer without attention for this many rows."""
        self._watch("dense", 0, tokens, self.dense.last)
        return self.dense.at(tokens)

    def decode_s(self, sequences: Numeric, kv_tokens: Numeric) -> Numeric:
        """Return the attention time of one layer, one row a sequence over ``kv_tokens`` cached tokens in all."""
        self._watch("attention_decode", 0, sequences, self.decode.last[0])
        self._watch("attention_decode", 1, kv_tokens, self.decode.last[1])
        return self.decode.at(sequences, kv_tokens)

    def prefill_s(self, new_tokens: Numeric, attention_pairs: Numeric) -> Numeric:
        """Return the attention time of one layer over prompts with the given Σ s and Σ s²."""
        self._watch("attention_prefill", 0, new_tokens, self.prefill.last[0])
        self._watch("attention_prefill", 1, attention_pairs, self.prefill.last[1])
        return self.prefill.at(new_tokens, attention_pairs)

    def head_s(self, head_rows: Numeric) -> Numeric:
        """Return the time of the LM head and the sampler for this many rows."""
        self._watch("head", 0, head_rows, self.head.last)
        return self.head.at(head_rows)

    def overhead_s(self, sequences: Numeric) -> Numeric:
        """Return the host time of one pass; 0 when the table has none."""
        return 0.0 if self.overhead is None else self.overhead.at(sequences)

    def _watch(self, part: str, axis: int, value: Numeric, last: float) -> None:
        largest = peak(value)
        if largest <= last or (part, axis) in self._warned:
            return
        self._warned.add((part, axis))
        first = self._first_node(part, axis)
        warnings.warn(
            f"profile {self.name}: {part} is measured for {AXES[part][axis]} {first:g} to {last:g}, "
            f"got {largest:g}: extrapolated",
            ExtrapolationWarning,
            stacklevel=4,
        )

    def _first_node(self, part: str, axis: int) -> float:
        curves, surfaces = {"dense": self.dense, "head": self.head}, {"attention_decode": self.decode}
        if part in curves:
            return float(curves[part].axis[0])
        surface = surfaces.get(part, self.prefill)
        return float((surface.first, surface.second)[axis][0])


def table_from_rows(name: str, rows: Iterable[Row]) -> ProfileTable:
    """Build a table from rows ``(part, x, y, seconds)``, y = NaN for parts with one axis.

    Raises:
        ValueError: one line that names table, part and fault: unknown or missing part, one point, unsorted or repeated
            nodes, gaps in a grid, NaN, negative or falling times.
    """
    by_part: dict[str, list[tuple[float, float, float]]] = {}
    for part, x, y, seconds in rows:
        if part not in AXES:
            raise ValueError(f"profile {name}: unknown part {part!r} (choices: {', '.join(AXES)})")
        by_part.setdefault(part, []).append((x, y, seconds))
    missing = [part for part in AXES if part not in by_part and part not in OPTIONAL_PARTS]
    if missing:
        raise ValueError(f"profile {name}: part {missing[0]} is missing")
    try:
        return ProfileTable(
            name=name,
            dense=_curve("dense", by_part["dense"]),
            decode=_surface("attention_decode", by_part["attention_decode"]),
            prefill=_surface("attention_prefill", by_part["attention_prefill"]),
            head=_curve("head", by_part["head"]),
            overhead=_curve("overhead", by_part["overhead"]) if "overhead" in by_part else None,
        )
    except ValueError as error:
        raise ValueError(f"profile {name}: {error}") from None


def _curve(part: str, rows: list[tuple[float, float, float]]) -> Curve:
    columns = np.array(rows, dtype=float)
    return Curve(part, columns[:, 0].copy(), columns[:, 2].copy())


def _surface(part: str, rows: list[tuple[float, float, float]]) -> Surface:
    columns = np.array(rows, dtype=float)
    if np.any(np.isnan(columns[:, :2])):
        raise ValueError(f"{part} must have two numbers, {' and '.join(AXES[part])}, in every row")
    first, second = np.unique(columns[:, 0]), np.unique(columns[:, 1])
    expected = [(x, y) for x in first for y in second]
    got = [(x, y) for x, y, _ in rows]
    gaps = [node for node in expected if node not in set(got)]
    if gaps:
        x, y = gaps[0]
        raise ValueError(f"{part} must be a full grid, {len(gaps)} node(s) are missing, first ({x:g}, {y:g})")
    if got != expected:
        raise ValueError(f"{part} rows must rise in {AXES[part][0]}, then in {AXES[part][1]}, each node once")
    return Surface(part, first, second, columns[:, 2].reshape(len(first), len(second)))


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a canonical CSV file; ValueError names file and line of a bad number or column."""
    with path.open(encoding="utf-8", newline="") as stream:
        lines = [(number, line) for number, line in enumerate(stream, 1) if line.strip() and not line.startswith("#")]
    reader = csv.DictReader(line for _, line in lines)
    absent = {"part", "x", "y", "seconds"} - set(reader.fieldnames or ())
    if absent:
        raise ValueError(f"profile {path.name}: column(s) {', '.join(sorted(absent))} missing")
    rows = []
    for (number, _), row in zip(lines[1:], reader, strict=True):
        try:
            rows.append((row["part"], float(row["x"]), float(row["y"] or math.nan), float(row["seconds"])))
        except (TypeError, ValueError):
            raise ValueError(f"profile {path.name}, line {number}: x, y and seconds must be numbers") from None
    return rows


@cache
def read_table(path: str) -> ProfileTable:
    """Return the table in a canonical CSV file, read once."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"profile {path}: no such file; make one with python -m balancesim.profile_formats")
    return table_from_rows(file.stem, read_rows(file))


@cache
def pairs() -> dict[tuple[str, str], str]:
    """Return the shipped tables: (GPU, model) -> file name. Models of one architecture share a table."""
    index = files("balancesim") / "data" / "profiles" / "index.csv"
    with index.open(encoding="utf-8") as stream:
        return {(row["gpu"], row["model"]): row["file"] for row in csv.DictReader(stream)}


@cache
def pair_table(gpu_name: str, llm_name: str) -> ProfileTable:
    """Return the shipped table of a GPU and a model; ValueError lists what is there."""
    file = pairs().get((gpu_name, llm_name))
    if file is None:
        known = ", ".join(sorted(f"{gpu}/{model}" for gpu, model in pairs()))
        raise ValueError(
            f"table must be given for {gpu_name}/{llm_name}: no measured profile of this pair (there are: {known}); "
            "convert your own with python -m balancesim.profile_formats"
        )
    return read_table(str(files("balancesim") / "data" / "profiles" / file))
