"""Radio links as columns, spectral efficiency from tables, and transfers over a rate that changes block by block."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True)
class RadioLinks:
    """User-to-site links as columns: what a channel may ask for."""

    user_id: IntArray
    distance_2d_m: FloatArray  #: in the plane
    carrier_hz: float | None = None
    site_height_m: float | None = None
    user_height_m: float | None = None

    def __len__(self) -> int:
        return len(self.user_id)

    def distance_3d_m(self) -> FloatArray:
        """Distance between the antennas: sqrt(d_2D² + (h_BS − h_UT)²)."""
        return np.hypot(self.distance_2d_m, self.heights_m()[0] - self.heights_m()[1])

    def heights_m(self) -> tuple[float, float]:
        """Return h_BS and h_UT; raise where a channel needs them and the scenario does not give them."""
        if self.site_height_m is None or self.user_height_m is None:
            raise ValueError("network.site_height_m and network.user_height_m are needed by this channel, got none")
        return self.site_height_m, self.user_height_m

    def carrier_ghz(self) -> float:
        """Return the carrier in GHz; raise where a channel needs it and the scenario does not give it."""
        if self.carrier_hz is None:
            raise ValueError("radio.carrier_ghz is needed by this channel, got none")
        return self.carrier_hz * 1e-9


def table_efficiency(sinr: FloatArray, threshold_db: FloatArray, efficiency_bps_hz: FloatArray) -> FloatArray:
    """Return the efficiency of the highest table row whose threshold the SINR reaches; 0 below the first.

    ``threshold_db`` ascending, one per row (TS 38.214 clause 5.2.2.1: CQI 0 = out of range).
    """
    with np.errstate(divide="ignore"):
        row = np.searchsorted(threshold_db, 10.0 * np.log10(sinr), side="right")
    return np.concatenate(([0.0], efficiency_bps_hz))[row]


def transfer_end_s(
    start_s: float, bits: float, block_s: float, rate_bps: Callable[[int], float], most_blocks: int
) -> float:
    """Return when the integral of a rate that is constant in each block [k·T, (k+1)·T) reaches ``bits``.

    inf when ``most_blocks`` blocks do not suffice (lasting outage).
    """
    block = int(start_s / block_s + 1e-9)
    at_s = start_s
    for index in range(block, block + most_blocks):
        end_s = (index + 1) * block_s
        rate = rate_bps(index)
        if rate * (end_s - at_s) >= bits:
            return at_s + bits / rate
        bits -= rate * (end_s - at_s)
        at_s = end_s
    return float("inf")
