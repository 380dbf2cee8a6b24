"""Azure LLM inference traces (Patel et al., Splitwise, ISCA 2024; the 2024 files have the same columns)."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from balancesim.trace_formats.tables import (
    Source,
    header_of,
    numbers,
    read_bytes,
    read_delimited,
    whole_number,
    with_numbers,
)

if TYPE_CHECKING:
    import pyarrow as pa


def _instant(text: str) -> float:
    # datetime keeps six digits of a second; the seventh (100 ns) does not matter when a line is only to be named
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True)
class AzureCsv:
    """Azure's csv: TIMESTAMP (wall clock), ContextTokens, GeneratedTokens."""

    name: ClassVar[str] = "azure"

    def matches(self, head: bytes) -> bool:
        """Return whether the first line has Azure's column names."""
        return bool({"TIMESTAMP", "ContextTokens", "GeneratedTokens"} & set(header_of(head)))

    def read(self, path: Path) -> "pa.Table":
        """Return the canonical columns; arrivals count from the first request. Raises TraceError.

        Azure's own file ends without a line break, so a cut inside the digits of the last number cannot be told.
        """
        data = read_bytes(path)
        table = read_delimited(
            path,
            data.replace(b"+00:00,", b","),  # the 2024 files name the zone, UTC, on every line
            {
                "TIMESTAMP": Source("arrival_s", "time", _instant),
                "ContextTokens": Source("prompt_tokens", "int", whole_number),
                "GeneratedTokens": Source("output_tokens", "int", whole_number),
            },
        )
        times_ns = numbers(table, "arrival_s")
        seconds, left_ns = np.divmod(times_ns - times_ns[0], 1_000_000_000)
        return with_numbers(table, "arrival_s", seconds + left_ns / 1e9)  # as pandas rounds it
