"""Streams one table of a run to Parquet with bounded memory; the file appears in its place only when it is whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from balancesim.columns import Kind, Row, table_columns
from balancesim.tables import arrow_schema, arrow_table

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows kept before they are written as one row group: some 20 MB of Python objects.
ROWS_PER_GROUP = 32_768


class WriteError(OSError):
    """A result could not be written; the message is one line for the user."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a `WriteError` that names ``path`` and the reason."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        raise WriteError(f"cannot write {path}: {reason}") from error


class TableWriter:
    """Streams the rows of one table to a temporary file beside its place; `install` moves it there."""

    def __init__(self, table: str, path: Path) -> None:
        self._table = table
        self._path = path
        # a dot: readers of the folder pass over it; the process id: two runs never share it
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._rows: list[Row] = []
        self._count = 0
        self._parquet: pa.parquet.ParquetWriter | None = None

    def append(self, row: Row) -> None:
        """Take one row."""
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_GROUP:
            self._flush()

    def finish(self) -> dict[str, object]:
        """Write what is left; return the number of rows and the checksum of the file."""
        self._flush()
        with writing(self._path):
            self._parquet.close()  # type: ignore[union-attr]  # _flush opened it
            self._parquet = None
            with self._temporary.open("rb") as file:
                return {"rows": self._count, "sha256": file_digest(file, "sha256").hexdigest()}

    def install(self) -> None:
        """Move the finished file to its place, over an older one."""
        with writing(self._path):
            self._temporary.replace(self._path)

    def discard(self) -> None:
        """Remove the temporary file."""
        if self._parquet is not None:
            with suppress(OSError):
                self._parquet.close()
            self._parquet = None
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
        self._rows.clear()

    def _flush(self) -> None:
        with writing(self._path):
            if self._parquet is None:
                self._parquet = self._open()
            if self._rows:
                self._parquet.write_table(arrow_table(self._table, self._rows))
        self._count += len(self._rows)
        self._rows.clear()

    def _open(self) -> "pa.parquet.ParquetWriter":
        from pyarrow import parquet

        self._path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in self._path.parent.glob(f".{self._path.name}.*.tmp"):
            if not _alive(leftover):
                leftover.unlink(missing_ok=True)
        categories = [column.name for column in table_columns(self._table) if column.kind is Kind.CATEGORY]
        schema = arrow_schema(self._table)
        return parquet.ParquetWriter(self._temporary, schema, compression="zstd", use_dictionary=categories)


def _alive(temporary: Path) -> bool:
    """Return whether the process that a temporary file is named after still runs."""
    try:
        os.kill(int(temporary.name.split(".")[-2]), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True  # someone else's process, or not a file of ours
    return True
