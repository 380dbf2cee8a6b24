"""Deadlines, end to end and counted from the arrival."""

# ruff: noqa: ARG002 (some laws of a family do not need all of the contract's arguments)

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.checks import not_negative, ordered, positive
from balancesim.lengths.sizes import Sizes
from balancesim.units import FloatArray


@dataclass(frozen=True)
class NoDeadline:
    """Requests wait for ever."""

    name: ClassVar[str] = "none"

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return infinity for each request."""
        return np.full(len(sizes), np.inf)


@dataclass(frozen=True)
class FixedDeadline:
    """The same deadline for all requests."""

    name: ClassVar[str] = "fixed"

    deadline_s: float

    def __post_init__(self) -> None:
        positive(deadline_s=self.deadline_s)

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return the deadline of each request in seconds."""
        return np.full(len(sizes), self.deadline_s)


@dataclass(frozen=True)
class UniformDeadline:
    """Deadlines uniform between two bounds, independent of the lengths."""

    name: ClassVar[str] = "uniform"

    min_s: float
    max_s: float

    def __post_init__(self) -> None:
        positive(min_s=self.min_s, max_s=self.max_s)
        ordered("min_s", self.min_s, "max_s", self.max_s)

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return the deadline of each request in seconds."""
        return self.min_s + (self.max_s - self.min_s) * rng.random(len(sizes))


@dataclass(frozen=True)
class PerTokenDeadline:
    """Deadlines that grow with the request: base + per prompt token·s + per output token·n, lengths as drawn."""

    name: ClassVar[str] = "per_token"

    base_s: float
    per_prompt_token_s: float
    per_output_token_s: float

    def __post_init__(self) -> None:
        not_negative(
            base_s=self.base_s, per_prompt_token_s=self.per_prompt_token_s, per_output_token_s=self.per_output_token_s
        )
        if self.base_s + self.per_prompt_token_s + self.per_output_token_s == 0:
            raise ValueError("base_s must be positive when both per-token times are 0, got 0")

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return the deadline of each request in seconds."""
        prompt_s = self.per_prompt_token_s * sizes.prompt_tokens
        return self.base_s + prompt_s + self.per_output_token_s * sizes.output_tokens
