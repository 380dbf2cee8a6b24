"""Rate laws: spectral efficiency from SINR."""

from typing import ClassVar, Protocol

from balancesim.rate_laws.attenuated_shannon import AttenuatedShannon
from balancesim.rate_laws.cqi import CqiTable1, CqiTable2, CqiTable3
from balancesim.rate_laws.shannon import Shannon
from balancesim.units import FloatArray

__all__ = ["RATE_LAWS", "AttenuatedShannon", "CqiTable1", "CqiTable2", "CqiTable3", "RateLaw", "Shannon"]


class RateLaw(Protocol):
    """How many bits per second and hertz a link carries."""

    name: ClassVar[str]

    def spectral_efficiency_bps_hz(self, sinr: FloatArray) -> FloatArray:
        """Return η ≥ 0 for linear SINRs; 0 = outage. Must not fall when the SINR rises."""
        ...


#: every rate law a scenario can name
RATE_LAWS: tuple[type[RateLaw], ...] = (Shannon, CqiTable1, CqiTable2, CqiTable3, AttenuatedShannon)
