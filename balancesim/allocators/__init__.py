"""Bandwidth allocators: how the transfers of a cell share its bandwidth."""

from typing import ClassVar, Protocol

from balancesim.allocators.per_request import PerRequest
from balancesim.allocators.proportional import Proportional
from balancesim.allocators.shared import Shared
from balancesim.units import FloatArray

__all__ = ["ALLOCATORS", "Allocator", "PerRequest", "Proportional", "Shared"]


class Allocator(Protocol):
    """How bandwidth is given to the transfers under way."""

    name: ClassVar[str]
    coupled: ClassVar[bool]  #: False = a transfer's bandwidth does not depend on the others

    def allocate(self, bits: FloatArray, spectral_efficiency_bps_hz: FloatArray, total_hz: float) -> FloatArray:
        """Return hertz per transfer, from the bits left and η of each."""
        ...


#: every allocator a scenario can name
ALLOCATORS: tuple[type[Allocator], ...] = (PerRequest, Shared, Proportional)
