"""The rate law ``attenuated_shannon``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.checks import positive
from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class AttenuatedShannon:
    """η = attenuation·log2(1 + SINR) up to a cap (TR 36.942 Annex A: downlink 0.6 and 4.4, uplink 0.4 and 2.0)."""

    name: ClassVar[str] = "attenuated_shannon"
    attenuation: float
    cap_bps_hz: float
    lowest_sinr_db: float = -10.0  #: no transmission below it

    def __post_init__(self) -> None:
        positive(attenuation=self.attenuation, cap_bps_hz=self.cap_bps_hz)

    def spectral_efficiency_bps_hz(self, sinr: FloatArray) -> FloatArray:
        """Return the attenuated and truncated Shannon rate; 0 below the lowest SINR."""
        efficiency = np.minimum(self.attenuation * np.log2(1.0 + sinr), self.cap_bps_hz)
        return np.where(sinr >= 10.0 ** (self.lowest_sinr_db / 10.0), efficiency, 0.0)
