"""What the readers share: opening, fast parsing of delimited text, and finding the line that is wrong.

The fast way (pyarrow) parses and checks whole columns. Only when it fails is the file read again, line by line, to
name the first line that breaks a rule: good files pay nothing for good messages.
"""

import csv
import gzip
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from balancesim.trace_formats.errors import TraceError
from balancesim.units import FloatArray

if TYPE_CHECKING:
    import pyarrow as pa

#: Rules of the canonical columns: lowest value allowed.
LOWEST: Mapping[str, float] = {"arrival_s": 0.0, "prompt_tokens": 1, "output_tokens": 1}


@dataclass(frozen=True)
class Source:
    """A column of an original file: its canonical name, Arrow type, and how one cell is read."""

    canonical: str
    arrow: str
    parse: Callable[[str], float]


def whole_number(text: str) -> float:
    """Read one cell as an integer."""
    return int(text)


def number(text: str) -> float:
    """Read one cell as a finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def read_bytes(path: Path) -> bytes:
    """Return the whole file, unpacked when it is gzip; raises TraceError when it is missing, cut, empty or binary."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, ValueError) as error:
            raise TraceError(f"{path}: the gzip file is cut or damaged: {error}") from error
    if not data.strip():
        raise TraceError(f"{path}: must have requests, got an empty file")
    return data


def check_text(path: Path, data: bytes) -> None:
    """Raise TraceError when ``data`` is not UTF-8 text."""
    try:
        text = b"\0" not in data
        data.decode("utf-8")
    except UnicodeDecodeError:
        text = False
    if not text:
        raise TraceError(f"{path}: must be text or Parquet, got binary data")


def header_of(data: bytes) -> list[str]:
    """Return the cells of the first line."""
    first = data[:65536].split(b"\n", 1)[0].decode("utf-8", errors="replace").lstrip("\ufeff")
    return [cell.strip() for cell in first.strip().split(",")]


def read_delimited(
    path: Path, data: bytes, sources: Mapping[str, Source], optional: Mapping[str, str] | None = None
) -> "pa.Table":
    """Return the canonical columns of comma-separated text with a header line.

    ``sources`` are the required columns by original name; ``optional`` maps further original names to Arrow types and
    keeps them under their own name.
    """
    header = header_of(data)
    missing = [name for name in sources if name not in header]
    if missing:
        raise TraceError(f"{path}: line 1: column {missing[0]} is missing, got {', '.join(header)}")
    if len(set(header)) < len(header):
        raise TraceError(f"{path}: line 1: column names must differ, got {', '.join(header)}")
    extra = {name: arrow for name, arrow in (optional or {}).items() if name in header}
    try:
        table = _parse(data, {**{name: source.arrow for name, source in sources.items()}, **extra})
    except ValueError as error:
        raise _first_fault(path, data, sources, str(error).splitlines()[0]) from error
    named = {name: source.canonical for name, source in sources.items()}
    table = table.rename_columns([named.get(name, name) for name in table.column_names])
    if len(table) and bad_rows(table).any():
        raise _first_fault(path, data, sources, "a value breaks a rule")
    return check_rows(path, table)


def _parse(data: bytes, types: Mapping[str, str]) -> "pa.Table":
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    named = {"int": pa.int64(), "float": pa.float64(), "text": pa.string(), "time": pa.timestamp("ns")}
    convert = arrow_csv.ConvertOptions(
        column_types={name: named[kind] for name, kind in types.items()},
        include_columns=list(types),
        null_values=[],
        strings_can_be_null=False,
    )
    return arrow_csv.read_csv(io.BytesIO(data), convert_options=convert)


def numbers(table: "pa.Table", column: str) -> "np.ndarray[Any, np.dtype[Any]]":
    """Return a column without nulls as an array; times as nanoseconds. Arrow's own way would import pandas."""
    import pyarrow as pa

    whole = table[column].combine_chunks()
    return np.from_dlpack(whole.view(pa.int64()) if pa.types.is_timestamp(whole.type) else whole)


def with_numbers(table: "pa.Table", column: str, values: FloatArray) -> "pa.Table":
    """Return the table with floats in the place of a column."""
    import pyarrow as pa

    array = pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
    return table.set_column(table.column_names.index(column), column, array)


def bad_rows(table: "pa.Table") -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return the rows that break a rule: below the lowest value, not finite, or earlier than the row before."""
    bad = np.zeros(len(table), dtype=bool)
    for column, lowest in LOWEST.items():
        values = numbers(table, column)
        if column == "arrival_s":
            bad[1:] |= values[1:] < values[:-1]
        bad |= ~(np.isfinite(values) & (values >= lowest))
    return bad


def check_rows(path: Path, table: "pa.Table") -> "pa.Table":
    """Return ``table`` when it has rows that keep all rules, else raise TraceError naming the row."""
    if not len(table):
        raise TraceError(f"{path}: must have requests, got a header without rows")
    bad = bad_rows(table)
    if bad.any():
        row = int(np.argmax(bad))
        cells = {name: numbers(table, name)[row] for name in LOWEST}
        before = numbers(table, "arrival_s")[row - 1] if row else None
        raise TraceError(f"{path}: row {row + 1}: {broken_rule(cells, before)}")
    return table


def broken_rule(cells: Mapping[str, Any], before: Any) -> str:
    """Return the first rule that one row breaks, with its value; "" when it keeps all."""
    for name, lowest in LOWEST.items():
        value = cells[name]
        if isinstance(value, int | float | np.number) and not (math.isfinite(value) and value >= lowest):
            return f"{name} must be at least {lowest:g}, got {value}"
    if before is not None and cells["arrival_s"] < before:
        return f"arrivals must be sorted by time, got {cells['arrival_s']} after {before}"
    return ""


def _lines(data: bytes) -> Iterator[tuple[int, list[str]]]:
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    reader = csv.reader(text)
    for cells in reader:
        yield reader.line_num, cells


def _first_fault(path: Path, data: bytes, sources: Mapping[str, Source], otherwise: str) -> TraceError:
    """Return the error for the first line that breaks a rule; ``otherwise`` when no line does by itself."""
    check_text(path, data)
    lines = _lines(data)
    _, header = next(lines)
    places = {name.strip(): place for place, name in enumerate(header)}
    last = data.count(b"\n") + (not data.endswith(b"\n"))
    before: float | None = None
    for line, cells in lines:
        if not cells:
            continue
        problem = ""
        if len(cells) != len(header):
            cut = "; the file looks cut" if line == last and len(cells) < len(header) else ""
            problem = f"must have {len(header)} fields, got {len(cells)}{cut}"
        else:
            row, problem = _read_row(cells, places, sources)
            problem = problem or broken_rule(row, before)
            before = row.get("arrival_s", before)
        if problem:
            return TraceError(f"{path}: line {line}: {problem}")
    return TraceError(f"{path}: {otherwise}")


def _read_row(
    cells: list[str], places: Mapping[str, int], sources: Mapping[str, Source]
) -> tuple[dict[str, float], str]:
    row: dict[str, float] = {}
    for name, source in sources.items():
        text = cells[places[name]].strip()
        try:
            row[source.canonical] = source.parse(text)
        except ValueError:
            kind = {"int": "a whole number", "float": "a finite number", "time": "a date and time"}[source.arrow]
            return row, f"{name} must be {kind}, got {text!r}"
    return row, ""
