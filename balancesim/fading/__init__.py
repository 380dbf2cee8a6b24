"""Small-scale fading: the power gain of a block of constant channel, with mean 1."""

from typing import ClassVar, Protocol

from balancesim.fading.none import NoFading
from balancesim.fading.rayleigh import Rayleigh
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray

__all__ = ["FADINGS", "Fading", "NoFading", "Rayleigh"]


class Fading(Protocol):
    """Block fading. A gain depends on the user and the number of the block alone."""

    name: ClassVar[str]
    varies: ClassVar[bool]  #: False = every gain is 1, so blocks need not be told apart

    def gains(self, stream: KeyedStream, user_id: int, chunk: int) -> FloatArray:
        """Return the gains of the blocks [chunk·CHUNK, (chunk+1)·CHUNK) of a user."""
        ...


#: every fading a scenario can name
FADINGS: tuple[type[Fading], ...] = (NoFading, Rayleigh)
