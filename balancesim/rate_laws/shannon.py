"""The rate law ``shannon``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class Shannon:
    """η = log2(1 + SINR) [P1, P2]: the limit; no real system reaches it."""

    name: ClassVar[str] = "shannon"

    def spectral_efficiency_bps_hz(self, sinr: FloatArray) -> FloatArray:
        """Return log2(1 + SINR)."""
        return np.log2(1.0 + sinr)
