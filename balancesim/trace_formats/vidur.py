"""Request traces of Vidur (microsoft/vidur; also read by Frontier and others)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from balancesim.trace_formats.tables import Source, header_of, number, read_bytes, read_delimited, whole_number

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class VidurCsv:
    """Vidur's csv: arrived_at (s), num_prefill_tokens, num_decode_tokens."""

    name: ClassVar[str] = "vidur"

    def matches(self, head: bytes) -> bool:
        """Return whether the first line has Vidur's column names."""
        return bool({"arrived_at", "num_prefill_tokens", "num_decode_tokens"} & set(header_of(head)))

    def read(self, path: Path) -> "pa.Table":
        """Return the canonical columns. Raises TraceError."""
        return read_delimited(
            path,
            read_bytes(path),
            {
                "arrived_at": Source("arrival_s", "float", number),
                "num_prefill_tokens": Source("prompt_tokens", "int", whole_number),
                "num_decode_tokens": Source("output_tokens", "int", whole_number),
            },
        )
