"""What a policy is told of a request's answer length and acceptance rate."""

# ruff: noqa: ARG002 (some laws of a family do not need all of the contract's arguments)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.acceptance_rates.beta_law import draw_beta
from balancesim.acceptance_rates.laws import by_task
from balancesim.checks import not_negative
from balancesim.lengths.sizes import Sizes
from balancesim.predictors.forecast import Forecast
from balancesim.predictors.noise import LengthNoise
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True)
class Exact:
    """The policy knows the true answer length and acceptance rate (never the draws)."""

    name: ClassVar[str] = "exact"

    def output_tokens(self, rng: np.random.Generator, sizes: Sizes) -> Forecast[IntArray]:
        """Return the drawn lengths as truth and prediction."""
        return Forecast(sizes.output_tokens, sizes.output_tokens)

    def acceptance_rate(
        self,
        rng: np.random.Generator,
        rates: FloatArray,
        sizes: Sizes,
    ) -> Forecast[FloatArray]:
        """Return the drawn rates as truth and prediction."""
        return Forecast(rates, rates)


@dataclass(frozen=True)
class Noisy:
    """Predictions scatter around the truth; the world is that of `Exact`.

    Predicted length: the true one times `LengthNoise` (log-normal, or log-t with ``degrees_of_freedom``). Predicted α:
    Beta with mean α and the given CV, as far as a Beta law reaches (`draw_beta`).
    """

    name: ClassVar[str] = "noisy"

    length_cv: float
    acceptance_cv: float
    degrees_of_freedom: float | None = None  #: ν of the log-t; None = log-normal

    def __post_init__(self) -> None:
        LengthNoise(self.length_cv, self.degrees_of_freedom)
        not_negative(acceptance_cv=self.acceptance_cv)

    def output_tokens(self, rng: np.random.Generator, sizes: Sizes) -> Forecast[IntArray]:
        """Return the drawn lengths as truth and noisy ones as prediction."""
        noise = LengthNoise(self.length_cv, self.degrees_of_freedom)
        return Forecast(sizes.output_tokens, noise.apply(rng, sizes.output_tokens))

    def acceptance_rate(
        self,
        rng: np.random.Generator,
        rates: FloatArray,
        sizes: Sizes,
    ) -> Forecast[FloatArray]:
        """Return the drawn rates as truth and noisy ones as prediction."""
        return Forecast(rates, draw_beta(rng, rates, self.acceptance_cv))


@dataclass(frozen=True)
class NoisyTruth:
    """The truth scatters around what the policy is told: the drawn values are the predictions (the paper's study).

    "True values Beta (α), log-t (n)" of the paper's prediction-error study: true n = predicted n times `LengthNoise`,
    true α Beta around the predicted. The requests themselves change with the CVs; where they must not, use `Noisy`.
    """

    name: ClassVar[str] = "noisy_truth"

    length_cv: float
    acceptance_cv: float
    degrees_of_freedom: float | None = None  #: ν of the log-t; None = log-normal

    def __post_init__(self) -> None:
        LengthNoise(self.length_cv, self.degrees_of_freedom)
        not_negative(acceptance_cv=self.acceptance_cv)

    def output_tokens(self, rng: np.random.Generator, sizes: Sizes) -> Forecast[IntArray]:
        """Return noisy lengths as truth and the drawn ones as prediction."""
        noise = LengthNoise(self.length_cv, self.degrees_of_freedom)
        return Forecast(noise.apply(rng, sizes.output_tokens), sizes.output_tokens)

    def acceptance_rate(
        self,
        rng: np.random.Generator,
        rates: FloatArray,
        sizes: Sizes,
    ) -> Forecast[FloatArray]:
        """Return noisy rates as truth and the drawn ones as prediction."""
        return Forecast(draw_beta(rng, rates, self.acceptance_cv), rates)


@dataclass(frozen=True)
class ClassMean:
    """The policy knows only the mean of the request's task, from tables.

    The entry ``default`` is for requests without a task or with one that is not listed.
    """

    name: ClassVar[str] = "class_mean"

    mean_output_tokens: Mapping[str, float]
    mean_acceptance_rate: Mapping[str, float]

    def __post_init__(self) -> None:
        for task, tokens in self.mean_output_tokens.items():
            if not 1 <= tokens < np.inf:
                raise ValueError(f"mean_output_tokens must be at least 1, got {tokens} for {task!r}")
        for task, rate in self.mean_acceptance_rate.items():
            if not 0 <= rate <= 1:
                raise ValueError(f"mean_acceptance_rate must lie in [0, 1], got {rate} for {task!r}")

    def output_tokens(self, rng: np.random.Generator, sizes: Sizes) -> Forecast[IntArray]:
        """Return the drawn lengths as truth and the task's mean, rounded, as prediction."""
        means = by_task("prediction.mean_output_tokens", self.mean_output_tokens, sizes)
        return Forecast(sizes.output_tokens, np.rint(means).astype(np.int64))

    def acceptance_rate(
        self,
        rng: np.random.Generator,
        rates: FloatArray,
        sizes: Sizes,
    ) -> Forecast[FloatArray]:
        """Return the drawn rates as truth and the task's mean as prediction."""
        return Forecast(rates, by_task("prediction.mean_acceptance_rate", self.mean_acceptance_rate, sizes))
