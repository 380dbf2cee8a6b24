"""The fading ``none``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.fading.chunk import CHUNK
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class NoFading:
    """No small-scale fading: every gain is 1."""

    name: ClassVar[str] = "none"
    varies: ClassVar[bool] = False

    def gains(self, stream: KeyedStream, user_id: int, chunk: int) -> FloatArray:  # noqa: ARG002  # always 1
        """Return ones."""
        return np.ones(CHUNK)
