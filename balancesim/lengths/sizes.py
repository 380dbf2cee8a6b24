"""Prompt and answer lengths of a run of requests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancesim.units import IntArray


@dataclass(frozen=True)
class Sizes:
    """Lengths (≥ 1) and, where known, the tasks of consecutive requests, as columns."""

    prompt_tokens: IntArray
    output_tokens: IntArray
    task: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def take(self, rows: IntArray | slice) -> "Sizes":
        """Return some of the rows."""
        task = None if self.task is None else self.task[rows]
        return Sizes(self.prompt_tokens[rows], self.output_tokens[rows], task)
