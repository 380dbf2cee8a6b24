"""Renewal arrivals with Gamma gaps."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.arrivals.chunks import endless
from balancesim.checks import positive


@dataclass(frozen=True)
class Gamma:
    """Renewal process with Gamma gaps of a given rate and coefficient of variation (CV 1 = Poisson).

    Gap mean 1/rate and CV c: shape 1/c², scale c²/rate. The first gap has the same law as the others, so the process
    starts at a renewal and is stationary only after a while.
    """

    name: ClassVar[str] = "gamma"

    rate_hz: float
    cv: float

    def __post_init__(self) -> None:
        positive(rate_hz=self.rate_hz, cv=self.cv)

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second in the long run."""
        return self.rate_hz

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps between arrivals, the first from time 0."""
        squared = self.cv**2
        return endless(lambda count: rng.gamma(1.0 / squared, squared / self.rate_hz, count))
