"""Predictors: what a policy is told of a request's answer length and acceptance rate."""

from typing import ClassVar, Protocol

import numpy as np

from balancesim.lengths.sizes import Sizes
from balancesim.predictors.forecast import Forecast
from balancesim.predictors.laws import ClassMean, Exact, Noisy, NoisyTruth
from balancesim.units import FloatArray, IntArray


class Predictor(Protocol):
    """A predictor. Both methods have a random stream of their own."""

    name: ClassVar[str]

    def output_tokens(self, rng: np.random.Generator, sizes: Sizes) -> Forecast[IntArray]:
        """Return true and predicted answer lengths (≥ 1) for requests whose lengths were drawn as ``sizes``."""
        ...

    def acceptance_rate(self, rng: np.random.Generator, rates: FloatArray, sizes: Sizes) -> Forecast[FloatArray]:
        """Return true and predicted α for requests whose rates were drawn as ``rates``."""
        ...


PREDICTORS: tuple[type[Predictor], ...] = (Exact, Noisy, NoisyTruth, ClassMean)

__all__ = ["PREDICTORS", "ClassMean", "Exact", "Forecast", "Noisy", "NoisyTruth", "Predictor"]
