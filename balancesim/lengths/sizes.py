"""Prompt and answer lengths of a run of requests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancesim.units import IntArray


@dataclass(frozen=True)
class Sizes:
    """Lengths (≥ 1) and, where known, tasks and hashes of prompt blocks of consecutive requests, as columns."""

    prompt_tokens: IntArray
    output_tokens: IntArray
    task: NDArray[np.object_] | None = None
    prefix_blocks: NDArray[np.object_] | None = None  #: tuples of hashes

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def take(self, rows: IntArray | slice) -> "Sizes":
        """Return some of the rows."""
        task, blocks = (None if column is None else column[rows] for column in (self.task, self.prefix_blocks))
        return Sizes(self.prompt_tokens[rows], self.output_tokens[rows], task, blocks)
