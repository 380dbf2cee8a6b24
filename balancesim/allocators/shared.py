"""The allocator ``shared``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class Shared:
    """The cell's bandwidth is shared equally among the transfers under way."""

    name: ClassVar[str] = "shared"
    coupled: ClassVar[bool] = True

    def allocate(
        self,
        bits: FloatArray,
        spectral_efficiency_bps_hz: FloatArray,  # noqa: ARG002  # equal shares whatever the channel
        total_hz: float,
    ) -> FloatArray:
        """Return total/n for each of n."""
        return np.full(len(bits), total_hz / max(1, len(bits)))
