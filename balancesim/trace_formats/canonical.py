"""balancesim's own columns, as csv or Parquet (traces/README.md)."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from balancesim.trace_formats.errors import TraceError
from balancesim.trace_formats.tables import (
    LOWEST,
    Source,
    check_rows,
    header_of,
    number,
    read_bytes,
    read_delimited,
    whole_number,
)

if TYPE_CHECKING:
    import pyarrow as pa

_SOURCES = {
    "arrival_s": Source("arrival_s", "float", number),
    "prompt_tokens": Source("prompt_tokens", "int", whole_number),
    "output_tokens": Source("output_tokens", "int", whole_number),
}
_OPTIONAL = {"task": "text", "session": "text"}


@dataclass(frozen=True)
class CanonicalCsv:
    """Own csv: arrival_s, prompt_tokens, output_tokens; optional task, session."""

    name: ClassVar[str] = "canonical_csv"

    def matches(self, head: bytes) -> bool:
        """Return whether the first line has the canonical column names."""
        return bool(set(_SOURCES) & set(header_of(head)))

    def read(self, path: Path) -> "pa.Table":
        """Return the canonical columns. Raises TraceError, also when the last line has no line break (a cut file)."""
        data = read_bytes(path)
        table = read_delimited(path, data, _SOURCES, _OPTIONAL)
        if not data.endswith(b"\n"):
            line = data.count(b"\n") + 1
            raise TraceError(f"{path}: line {line}: the last line must end with a line break; the file looks cut")
        return table


@dataclass(frozen=True)
class CanonicalParquet:
    """Own Parquet: arrival_s, prompt_tokens, output_tokens; any further columns are kept."""

    name: ClassVar[str] = "canonical_parquet"

    def matches(self, head: bytes) -> bool:
        """Return whether the file begins as Parquet does."""
        return head[:4] == b"PAR1"

    def read(self, path: Path) -> "pa.Table":
        """Return the canonical columns. Raises TraceError."""
        import pyarrow as pa
        from pyarrow import parquet

        data = read_bytes(path)
        try:
            table = parquet.read_table(io.BytesIO(data))
        except (pa.ArrowException, OSError) as error:
            first = str(error).splitlines()[0]
            raise TraceError(f"{path}: the Parquet file is cut or damaged: {first}") from error
        for column in LOWEST:
            if column not in table.column_names:
                raise TraceError(f"{path}: column {column} is missing, got {', '.join(table.column_names)}")
            kind = table.schema.field(column).type
            whole = pa.types.is_integer(kind)
            if not (whole or (column == "arrival_s" and pa.types.is_floating(kind))):
                raise TraceError(f"{path}: column {column} must hold {_holds(column)}, got {kind}")
            if table[column].null_count:
                raise TraceError(f"{path}: column {column} must have no nulls, got {table[column].null_count}")
        for column, kind in (("arrival_s", pa.float64()), ("prompt_tokens", pa.int64()), ("output_tokens", pa.int64())):
            table = table.set_column(table.column_names.index(column), column, table[column].cast(kind))
        return check_rows(path, table)


def _holds(column: str) -> str:
    return "numbers" if column == "arrival_s" else "whole numbers"
