"""The fading ``rayleigh``."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.fading.chunk import CHUNK
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class Rayleigh:
    """Rayleigh block fading: the power gain is exponential with mean 1, independent from block to block."""

    name: ClassVar[str] = "rayleigh"
    varies: ClassVar[bool] = True

    def gains(self, stream: KeyedStream, user_id: int, chunk: int) -> FloatArray:
        """Return exponential gains, so that P(SNR < θ) = 1 − exp(−θ/mean SNR)."""
        return stream.exponentials(user_id, CHUNK, chunk)
