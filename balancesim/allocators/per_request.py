"""The allocator ``per_request``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class PerRequest:
    """Every request has the given bandwidth to itself [P1]."""

    name: ClassVar[str] = "per_request"
    coupled: ClassVar[bool] = False

    def allocate(
        self,
        bits: FloatArray,
        spectral_efficiency_bps_hz: FloatArray,  # noqa: ARG002  # does not matter here
        total_hz: float,
    ) -> FloatArray:
        """Return the full bandwidth for each."""
        return np.full(len(bits), total_hz)
