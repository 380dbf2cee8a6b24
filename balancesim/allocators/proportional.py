"""The allocator ``proportional``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class Proportional:
    """All transfers under way end together: b_k = B·(D_k/η_k) / Σ_j (D_j/η_j), the optimum of [P2]."""

    name: ClassVar[str] = "proportional"
    coupled: ClassVar[bool] = True

    def allocate(self, bits: FloatArray, spectral_efficiency_bps_hz: FloatArray, total_hz: float) -> FloatArray:
        """Return the closed form; T* = (1/B)·Σ D_j/η_j. Transfers in outage (η = 0) get nothing, done ones neither."""
        reachable = (spectral_efficiency_bps_hz > 0) & (bits > 0)
        need = np.where(reachable, bits / np.where(reachable, spectral_efficiency_bps_hz, 1.0), 0.0)
        total = need.sum()
        return total_hz * need / total if total > 0 else np.zeros(len(bits))
