"""Renewal arrivals with Weibull gaps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.arrivals.chunks import endless
from balancesim.checks import positive

_SHAPES = (0.05, 200.0)


def weibull_cv(shape: float) -> float:
    """Return the coefficient of variation: c² = Γ(1+2/k)/Γ(1+1/k)² − 1."""
    return math.sqrt(math.expm1(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)))


def weibull_shape(cv: float) -> float:
    """Return the shape k with this coefficient of variation, by bisection (the CV falls as k rises)."""
    low, high = _SHAPES
    for _ in range(200):
        middle = math.sqrt(low * high)
        if weibull_cv(middle) > cv:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


@dataclass(frozen=True)
class Weibull:
    """Renewal process with Weibull gaps of a given rate and coefficient of variation (CV 1 = Poisson).

    The shape k solves c² = Γ(1+2/k)/Γ(1+1/k)² − 1; the scale is 1/(rate·Γ(1+1/k)). Starts at a renewal, as `Gamma`.
    """

    name: ClassVar[str] = "weibull"

    rate_hz: float
    cv: float

    def __post_init__(self) -> None:
        positive(rate_hz=self.rate_hz, cv=self.cv)
        high, low = (weibull_cv(shape) for shape in _SHAPES)
        if not low <= self.cv <= high:
            raise ValueError(f"cv must lie in [{low:.3g}, {high:.3g}] for a Weibull law, got {self.cv}")

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second in the long run."""
        return self.rate_hz

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps between arrivals, the first from time 0."""
        shape = weibull_shape(self.cv)
        scale_s = 1.0 / (self.rate_hz * math.gamma(1 + 1 / shape))
        return endless(lambda count: scale_s * rng.weibull(shape, count))
