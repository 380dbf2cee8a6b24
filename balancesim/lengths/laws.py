"""Lengths drawn from laws."""

# ruff: noqa: ARG002 (some laws of a family do not need all of the contract's arguments)

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.checks import at_least_one, not_negative, ordered, positive
from balancesim.lengths.sizes import Sizes
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True)
class FixedLengths:
    """The same prompt and answer length for all requests."""

    name: ClassVar[str] = "fixed"

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        at_least_one(prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens)

    def batches(self, rng: np.random.Generator, count: int) -> Iterator[Sizes]:
        """Return the sizes of the requests in order, ``count`` at a time."""
        while True:
            yield Sizes(np.full(count, self.prompt_tokens), np.full(count, self.output_tokens))


@dataclass(frozen=True)
class UniformLengths:
    """Prompt and answer lengths uniform over whole numbers, both ends included, independent of each other."""

    name: ClassVar[str] = "uniform"

    prompt_min: int
    prompt_max: int
    output_min: int
    output_max: int

    def __post_init__(self) -> None:
        at_least_one(prompt_min=self.prompt_min, output_min=self.output_min)
        ordered("prompt_min", self.prompt_min, "prompt_max", self.prompt_max)
        ordered("output_min", self.output_min, "output_max", self.output_max)

    def batches(self, rng: np.random.Generator, count: int) -> Iterator[Sizes]:
        """Return the sizes of the requests in order, ``count`` at a time."""
        # drawn as uniforms on [0, 1): a change of one range leaves the other draws as they are
        while True:
            prompt, output = rng.random((2, count))
            yield Sizes(
                _between(prompt, self.prompt_min, self.prompt_max), _between(output, self.output_min, self.output_max)
            )


def _between(uniforms: FloatArray, low: int, high: int) -> IntArray:
    return low + np.floor(uniforms * (high - low + 1)).astype(np.int64)


@dataclass(frozen=True)
class LognormalLengths:
    """Log-normal prompt and answer lengths with stated means and coefficients of variation.

    ln X is normal with σ² = ln(1+c²) and mean ln m − σ²/2; the logarithms of a pair have the stated correlation.
    Lengths are rounded to whole tokens and those below 1 set to 1, which raises the mean of very short lengths; there
    is no upper cut (``requests.context_overflow`` deals with what exceeds the model's context).
    """

    name: ClassVar[str] = "lognormal"

    prompt_mean: float
    prompt_cv: float
    output_mean: float
    output_cv: float
    correlation: float = 0.0  #: of the logarithms; near 0 within one service

    def __post_init__(self) -> None:
        positive(prompt_mean=self.prompt_mean, output_mean=self.output_mean)
        not_negative(prompt_cv=self.prompt_cv, output_cv=self.output_cv)
        if not -1 <= self.correlation <= 1:
            raise ValueError(f"correlation must lie in [-1, 1], got {self.correlation}")

    def batches(self, rng: np.random.Generator, count: int) -> Iterator[Sizes]:
        """Return the sizes of the requests in order, ``count`` at a time."""
        own = math.sqrt(1.0 - self.correlation**2)
        while True:
            prompt, other = rng.standard_normal((2, count))
            output = self.correlation * prompt + own * other
            yield Sizes(
                _lognormal(prompt, self.prompt_mean, self.prompt_cv),
                _lognormal(output, self.output_mean, self.output_cv),
            )


def _lognormal(normals: FloatArray, mean: float, cv: float) -> IntArray:
    sigma = math.sqrt(math.log1p(cv**2))
    values = mean * np.exp(sigma * normals - sigma**2 / 2)
    return np.maximum(1, np.rint(values)).astype(np.int64)
