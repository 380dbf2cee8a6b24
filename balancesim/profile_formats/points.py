"""What every format is read into: measured points, and the model they belong to."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from balancesim.core.llm import LlmSpec
from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class Shape:
    """The model whose times are wanted, as one GPU of a tensor-parallel group sees it."""

    llm: LlmSpec
    tensor_parallel: int = 1
    #: model that the file measured when it is not ``llm``: its matrix products are rescaled by their sizes
    measured: LlmSpec | None = None

    @property
    def heads(self) -> int:
        """Query heads on one GPU."""
        return self.llm.heads // self.tensor_parallel

    @property
    def kv_heads(self) -> int:
        """KV heads on one GPU."""
        return max(self.llm.kv_heads // self.tensor_parallel, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Times against one axis: tokens (dense) or rows (head)."""

    x: FloatArray
    seconds: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class DecodePoints:
    """Decode attention of one layer: ``sequences`` requests at ``context`` cached tokens each."""

    sequences: FloatArray
    context: FloatArray
    seconds: FloatArray

    def row(self, sequences: float) -> tuple[FloatArray, FloatArray]:
        """Return contexts, rising, and times of one batch."""
        return _rising(self.context, self.seconds, self.sequences == sequences)


@dataclass(frozen=True, slots=True, eq=False)
class PrefillPoints:
    """Prefill attention of one layer: ``sequences`` prompts of ``tokens`` rows behind ``prior`` cached tokens."""

    sequences: FloatArray
    tokens: FloatArray
    prior: FloatArray
    seconds: FloatArray

    def row(self, sequences: float) -> tuple[FloatArray, FloatArray]:
        """Return prompt lengths, rising, and times of one batch without prior context."""
        return _rising(self.tokens, self.seconds, (self.sequences == sequences) & (self.prior == 0))

    def chunk_row(self, tokens: float) -> tuple[FloatArray, FloatArray]:
        """Return prior contexts, rising, and times of one chunk of this size."""
        return _rising(self.prior, self.seconds, (self.sequences == 1) & (self.tokens == tokens))


def _rising(x: FloatArray, seconds: FloatArray, mask: np.typing.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    nodes = np.unique(x[mask])
    medians = np.array([np.median(seconds[mask & (x == node)]) for node in nodes])
    return nodes, medians


def require_columns(path: Path, columns: object, needed: tuple[str, ...]) -> None:
    """Raise ValueError naming the file and the columns that it lacks."""
    absent = [name for name in needed if name not in list(columns)]  # type: ignore[call-overload]
    if absent:
        raise ValueError(f"{path.name}: column(s) {', '.join(absent)} missing; is it of another format?")


def require_rows(path: Path, count: int, what: str) -> None:
    """Raise ValueError when a file has no row of what is asked for."""
    if count == 0:
        raise ValueError(f"{path.name}: no rows for {what}")
