"""Readers of request traces: one for each original format, all with the same columns (traces/README.md)."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from balancesim.trace_formats.azure import AzureCsv
from balancesim.trace_formats.canonical import CanonicalCsv, CanonicalParquet
from balancesim.trace_formats.errors import TraceError
from balancesim.trace_formats.locate import TRACES_DIR, trace_names, trace_path
from balancesim.trace_formats.mooncake import MooncakeJsonl
from balancesim.trace_formats.tables import check_text, header_of, numbers, read_bytes
from balancesim.trace_formats.vidur import VidurCsv
from balancesim.units import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "TRACES_DIR",
    "TRACE_FORMATS",
    "TraceError",
    "TraceFormat",
    "TraceRows",
    "load_trace",
    "read_table",
    "read_trace",
]
__all__ += ["trace_names", "trace_path"]

_HEAD_BYTES = 65536


class TraceFormat(Protocol):
    """A file format of traces."""

    name: ClassVar[str]

    def matches(self, head: bytes) -> bool:
        """Return whether a file that begins with these (unpacked) bytes has this format."""
        ...

    def read(self, path: Path) -> "pa.Table":
        """Return ``arrival_s`` (s, from the trace's start, ascending), ``prompt_tokens`` and ``output_tokens`` (≥ 1).

        Optional columns: ``task``, ``session``, ``block_hashes``. Metadata ``tick_s``: the grain of the times, where
        it is coarse. Raises TraceError for whatever is wrong with the file.
        """
        ...


TRACE_FORMATS: tuple[type[TraceFormat], ...] = (AzureCsv, MooncakeJsonl, VidurCsv, CanonicalCsv, CanonicalParquet)


def read_trace(path: Path) -> "pd.DataFrame":
    """Return a trace as pandas has it; ``attrs["tick_s"]`` is the grain of its times where it is coarse.

    Raises TraceError.
    """
    import pandas as pd
    import pyarrow as pa

    table = read_table(path)
    # lists stay with Arrow: as Python objects a trace's block hashes take gigabytes
    frame: pd.DataFrame = table.to_pandas(
        types_mapper=lambda kind: pd.ArrowDtype(kind) if pa.types.is_list(kind) else None
    )
    if _tick_s(table):
        frame.attrs["tick_s"] = _tick_s(table)
    return frame


def _tick_s(table: "pa.Table") -> float:
    return float((table.schema.metadata or {}).get(b"tick_s", 0.0))


def read_table(path: Path) -> "pa.Table":
    """Return the trace in the file ``path``, whose first bytes tell its format. Raises TraceError."""
    head = read_bytes(path)[:_HEAD_BYTES]
    for cls in TRACE_FORMATS:
        if cls().matches(head):
            return cls().read(path)
    # a multi-byte character may straddle the end of the head
    check_text(path, head[: head.rfind(b"\n") + 1] or head)
    known = ", ".join(cls.name for cls in TRACE_FORMATS)
    header = ", ".join(header_of(head))[:80]
    raise TraceError(f"{path}: line 1: must be the header of a known format ({known}), got {header!r}")


@dataclass(frozen=True)
class TraceRows:
    """The columns that a workload uses, as read-only arrays."""

    path: Path
    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    task: NDArray[np.object_] | None
    tick_s: float  #: grain of the arrival times; 0 = fine
    prefix_blocks: NDArray[np.object_] | None = None  #: tuples of hashes

    def __post_init__(self) -> None:
        for column in (self.arrival_s, self.prompt_tokens, self.output_tokens):
            column.flags.writeable = False

    @property
    def duration_s(self) -> float:
        """Time from the trace's start to its last arrival, or to the end of the last tick."""
        return float(self.arrival_s[-1]) + self.tick_s


def load_trace(file: str) -> TraceRows:
    """Return the rows of a trace by name or path. The last two files stay in memory until they change on disk."""
    path = trace_path(file)
    stat = path.stat()
    return _load(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=2)
def _load(path: Path, _mtime_ns: int, _size: int) -> TraceRows:
    table = read_table(path)
    return TraceRows(
        path=path,
        arrival_s=np.array(numbers(table, "arrival_s")),
        prompt_tokens=np.array(numbers(table, "prompt_tokens")),
        output_tokens=np.array(numbers(table, "output_tokens")),
        task=np.array([task or "" for task in table["task"].to_pylist()], dtype=object)
        if "task" in table.column_names
        else None,
        tick_s=_tick_s(table),
        prefix_blocks=_prefix_blocks(table),
    )


def _prefix_blocks(table: "pa.Table") -> NDArray[np.object_] | None:
    if "block_hashes" not in table.column_names:
        return None
    blocks = np.empty(len(table), dtype=object)
    blocks[:] = [tuple(hashes or ()) for hashes in table["block_hashes"].to_pylist()]
    return blocks
