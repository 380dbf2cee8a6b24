"""Mooncake's traces (Qin et al., Mooncake, FAST 2025): one JSON object a line."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from balancesim.trace_formats.errors import TraceError
from balancesim.trace_formats.tables import bad_rows, broken_rule, check_text, numbers, read_bytes, with_numbers

if TYPE_CHECKING:
    import pyarrow as pa

_TICK_MS = 3000
_ROUNDING_MS = 1  # the ticks stand in the file rounded, as 5999 or 6001
_KEYS = {"timestamp": "arrival_s", "input_length": "prompt_tokens", "output_length": "output_tokens"}


@dataclass(frozen=True)
class MooncakeJsonl:
    """Mooncake's jsonl: timestamp (ms), input_length, output_length, hash_ids (512-token prefix blocks)."""

    name: ClassVar[str] = "mooncake"

    def matches(self, head: bytes) -> bool:
        """Return whether the first line begins a JSON object."""
        return head.lstrip()[:1] == b"{"

    def read(self, path: Path) -> "pa.Table":
        """Return the canonical columns and ``block_hashes``. Raises TraceError.

        The conversation file knows arrivals to 3 s only. Where all times of a file are multiples of 3 s, the table's
        metadata say ``tick_s`` = 3.0, and a replay spreads the requests of a tick over it; times here stay as filed.
        """
        data = read_bytes(path)
        try:
            table = _parse(data)
        except ValueError as error:
            raise _first_fault(path, data, str(error).splitlines()[0]) from error
        if bad_rows(table).any():
            raise _first_fault(path, data, "a value breaks a rule")
        ticks_ms = np.unique(np.rint(numbers(table, "arrival_s") * 1e3))
        off_ms = np.abs(ticks_ms - _TICK_MS * np.rint(ticks_ms / _TICK_MS))
        if len(ticks_ms) > 1 and np.all(off_ms <= _ROUNDING_MS):
            table = table.replace_schema_metadata({"tick_s": str(_TICK_MS / 1e3)})
        return table


def _parse(data: bytes) -> "pa.Table":
    import pyarrow as pa
    from pyarrow import json as arrow_json

    hashes = pa.list_(pa.int64())
    fields = [("timestamp", pa.float64()), ("input_length", pa.int64()), ("output_length", pa.int64())]
    options = arrow_json.ParseOptions(
        explicit_schema=pa.schema([*fields, ("hash_ids", hashes)]), unexpected_field_behavior="ignore"
    )
    # a line must fit into a block of the reader: whole lines of 200,000 hashes do
    read = arrow_json.ReadOptions(block_size=1 << 24)
    table = arrow_json.read_json(io.BytesIO(data), parse_options=options, read_options=read)
    for name, _ in fields:
        if table[name].null_count:
            raise ValueError(f"{name} is missing")
    columns = {canonical: table[name] for name, canonical in _KEYS.items()}
    if table["hash_ids"].null_count < len(table):
        columns["block_hashes"] = table["hash_ids"]
    named = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    return with_numbers(named, "arrival_s", numbers(named, "arrival_s") / 1e3)


def _first_fault(path: Path, data: bytes, otherwise: str) -> TraceError:
    """Return the error for the first line that breaks a rule."""
    check_text(path, data)
    lines = data.decode("utf-8").splitlines()
    before: float | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            cut = "; the file looks cut" if number == len(lines) else ""
            return TraceError(f"{path}: line {number}: must be a JSON object, got {line[:40]!r}{cut}")
        problem = _problem(record, before)
        if problem:
            return TraceError(f"{path}: line {number}: {problem}")
        before = record["timestamp"] / 1e3
    return TraceError(f"{path}: {otherwise}")


def _problem(record: Any, before: float | None) -> str:
    if not isinstance(record, dict):
        return f"must be a JSON object, got {str(record)[:40]!r}"
    for key in _KEYS:
        if key not in record:
            return f"{key} is missing, got {', '.join(record)}"
        value = record[key]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole or (key == "timestamp" and isinstance(value, float))):
            return f"{key} must be a whole number, got {value!r}"
    cells = {canonical: record[key] for key, canonical in _KEYS.items()}
    cells["arrival_s"] /= 1e3
    return broken_rule(cells, before)
