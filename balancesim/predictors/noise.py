"""Multiplicative noise on lengths."""

import math
from dataclasses import dataclass

import numpy as np

from balancesim.checks import not_negative
from balancesim.units import FloatArray, IntArray

#: Factors are held within e^±20 (5·10⁸): a log-t law has no moments, and whole tokens must fit an integer.
_LARGEST_LOG = 20.0


@dataclass(frozen=True)
class LengthNoise:
    """A positive factor: log-normal of mean 1, or log-t of median 1.

    σ² = ln(1+c²) for a CV of c. Log-normal: exp(σ·Z − σ²/2). Log-t with ν > 2 degrees of freedom:
    exp(σ·sqrt((ν−2)/ν)·T_ν), so that the logarithm has the same standard deviation σ and only the tail is heavier;
    the factor itself has no mean, hence no CV of its own [A].
    """

    cv: float
    degrees_of_freedom: float | None = None  #: ν; None = log-normal

    def __post_init__(self) -> None:
        not_negative(length_cv=self.cv)
        if self.degrees_of_freedom is not None and not 2 < self.degrees_of_freedom < math.inf:
            raise ValueError(f"degrees_of_freedom must be above 2, got {self.degrees_of_freedom}")

    def apply(self, rng: np.random.Generator, tokens: IntArray) -> IntArray:
        """Return ``tokens`` times a factor each, rounded, at least 1."""
        sigma = math.sqrt(math.log1p(self.cv**2))
        logs: FloatArray
        if self.degrees_of_freedom is None:
            logs = sigma * rng.standard_normal(len(tokens)) - sigma**2 / 2
        else:
            freedom = self.degrees_of_freedom
            logs = sigma * math.sqrt((freedom - 2) / freedom) * rng.standard_t(freedom, len(tokens))
        factors = np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG))
        return np.maximum(1, np.rint(tokens * factors)).astype(np.int64)
