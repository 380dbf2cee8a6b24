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


def block_of(time_s: float, block_s: float) -> int:
    """Return the number k of the block [k·T, (k+1)·T) that holds at a time.

    An instant that rounding puts just before a boundary (1e-9 of a block, or a few units in the last place of a late
    time) belongs to the block that begins there, so the end of a block always lies ahead of a time in it.
    """
    block = int(time_s / block_s)
    return block + 1 if (block + 1) * block_s - time_s <= 1e-9 * block_s + 1e-15 * time_s else block


def transfer_end_s(
    start_s: float, bits: float, block_s: float, rates_bps: Callable[[int], FloatArray], most_blocks: int
) -> float:
    """Return when the integral of a rate that is constant in each block [k·T, (k+1)·T) reaches ``bits``.

    ``rates_bps(k)`` returns the rates of block k and of as many blocks after it as are at hand (at least one).
    ``start_s`` for no bits; inf when ``most_blocks`` blocks, and the rest of
    those at hand with the last of them, do not suffice (lasting outage).
    """
    if bits <= 0:
        return start_s
    at_s, block = start_s, block_of(start_s, block_s)
    last = block + most_blocks
    while block < last:
        rates = rates_bps(block)
        first = float(rates[0])
        room = first * ((block + 1) * block_s - at_s)
        if room >= bits:
            return at_s + bits / first
        carried = np.cumsum(rates) * block_s + (room - first * block_s)
        index = int(np.searchsorted(carried, bits))
        if index == len(carried):
            bits -= float(carried[-1])
            block += len(rates)
            at_s = block * block_s
        else:
            before = float(carried[index - 1]) if index else 0.0
            return (block + index) * block_s + (bits - before) / float(rates[index])
    return float("inf")
