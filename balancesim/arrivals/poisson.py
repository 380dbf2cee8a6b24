"""Poisson arrivals."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.arrivals.chunks import endless
from balancesim.checks import positive


@dataclass(frozen=True)
class Poisson:
    """Poisson process: independent exponential gaps of mean 1/rate."""

    name: ClassVar[str] = "poisson"

    rate_hz: float

    def __post_init__(self) -> None:
        positive(rate_hz=self.rate_hz)

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second."""
        return self.rate_hz

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps between arrivals, the first from time 0."""
        return endless(lambda count: rng.exponential(1.0 / self.rate_hz, count))
