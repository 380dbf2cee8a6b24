"""Laws of the acceptance rate over requests (the draws of single tokens are the family ``acceptance``)."""

from typing import ClassVar, Protocol

import numpy as np

from balancesim.acceptance_rates.laws import (
    AcceptanceRateByTask,
    BetaAcceptanceRate,
    FixedAcceptanceRate,
    PublishedAcceptanceRate,
    UniformAcceptanceRate,
)
from balancesim.lengths.sizes import Sizes
from balancesim.units import FloatArray


class AcceptanceRates(Protocol):
    """A law of the acceptance rate."""

    name: ClassVar[str]

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return α in [0, 1] for each request."""
        ...


ACCEPTANCE_RATES: tuple[type[AcceptanceRates], ...] = (
    FixedAcceptanceRate,
    UniformAcceptanceRate,
    BetaAcceptanceRate,
    AcceptanceRateByTask,
    PublishedAcceptanceRate,
)

__all__ = ["ACCEPTANCE_RATES", "AcceptanceRateByTask", "AcceptanceRates", "BetaAcceptanceRate"]
__all__ += ["FixedAcceptanceRate", "PublishedAcceptanceRate", "UniformAcceptanceRate"]
