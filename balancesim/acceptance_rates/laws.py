"""Acceptance rates α of requests: the chance that a drafted token is kept."""

# ruff: noqa: ARG002 (some laws of a family do not need all of the contract's arguments)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.acceptance_rates.beta_law import concentration, draw_beta
from balancesim.acceptance_rates.published import published_rate
from balancesim.checks import not_negative, ordered, share
from balancesim.lengths.sizes import Sizes
from balancesim.units import FloatArray

#: Entry of a table by task for requests without a task or with one that is not listed.
DEFAULT_TASK = "default"


@dataclass(frozen=True)
class FixedAcceptanceRate:
    """The same acceptance rate for all requests."""

    name: ClassVar[str] = "fixed"

    acceptance_rate: float

    def __post_init__(self) -> None:
        share(acceptance_rate=self.acceptance_rate)

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return α of each request."""
        return np.full(len(sizes), self.acceptance_rate)


@dataclass(frozen=True)
class UniformAcceptanceRate:
    """Acceptance rates uniform between two bounds."""

    name: ClassVar[str] = "uniform"

    min: float
    max: float

    def __post_init__(self) -> None:
        share(min=self.min, max=self.max)
        ordered("min", self.min, "max", self.max)

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return α of each request."""
        return self.min + (self.max - self.min) * rng.random(len(sizes))


@dataclass(frozen=True)
class BetaAcceptanceRate:
    """Acceptance rates from a Beta law with a given mean and coefficient of variation."""

    name: ClassVar[str] = "beta"

    mean: float
    cv: float

    def __post_init__(self) -> None:
        if not 0 < self.mean < 1:
            raise ValueError(f"mean must lie in (0, 1), got {self.mean}")
        not_negative(cv=self.cv)
        if self.cv > 0 and concentration(np.array(self.mean), self.cv) < 1:
            most = ((1 - self.mean) / (2 * self.mean)) ** 0.5
            raise ValueError(f"cv must be at most {most:.3g} for a Beta law of mean {self.mean}, got {self.cv}")

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return α of each request."""
        return draw_beta(rng, np.full(len(sizes), self.mean), self.cv)


@dataclass(frozen=True)
class AcceptanceRateByTask:
    """Acceptance rates by the trace's task, from a table; spread around them by a Beta law if ``cv`` is given.

    The entry ``default`` is for requests without a task or with one that is not listed.
    """

    name: ClassVar[str] = "by_task"

    rates: Mapping[str, float]
    cv: float = 0.0

    def __post_init__(self) -> None:
        if not self.rates:
            raise ValueError("rates must have at least one entry, got none")
        for task, rate in self.rates.items():
            if not 0 <= rate <= 1:
                raise ValueError(f"rates must lie in [0, 1], got {rate} for {task!r}")
        not_negative(cv=self.cv)

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return α of each request. Raises ValueError for a task that has no entry."""
        return draw_beta(rng, by_task("acceptance_rate.rates", self.rates, sizes), self.cv)


@dataclass(frozen=True)
class PublishedAcceptanceRate:
    """Published acceptance rates of a draft and a target, by task; spread around them by a Beta law if ``cv`` is given.

    ``tasks`` says which published task stands for a trace's task; ``default`` is for requests without a task or with
    one that is not listed.
    """

    name: ClassVar[str] = "published"

    draft: str
    target: str
    draft_length: int  #: γ: of records with several the nearest counts
    tasks: Mapping[str, str]
    temperature: float | None = None  #: None = any
    cv: float = 0.0

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"tasks must have at least one entry, got none; one for all is {{{DEFAULT_TASK} = ...}}")
        if self.draft_length < 1:
            raise ValueError(f"draft_length must be at least 1, got {self.draft_length}")
        not_negative(cv=self.cv)
        for task in self.tasks.values():
            self._rate(task)

    def _rate(self, task: str) -> float:
        return published_rate(self.draft, self.target, task, self.draft_length, self.temperature)

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return α of each request. Raises ValueError for a task that has no entry."""
        rates = {task: self._rate(published) for task, published in self.tasks.items()}
        return draw_beta(rng, by_task("acceptance_rate.tasks", rates, sizes), self.cv)


def by_task(field: str, table: Mapping[str, float], sizes: Sizes) -> FloatArray:
    """Return the table's value for each request; raises ValueError for a task that has no entry."""
    if sizes.task is None:
        return np.full(len(sizes), _entry(field, table, ""))
    tasks, place = np.unique(sizes.task.astype(str), return_inverse=True)
    return np.array([_entry(field, table, str(task)) for task in tasks])[place]


def _entry(field: str, table: Mapping[str, float], task: str) -> float:
    value = table.get(task, table.get(DEFAULT_TASK))
    if value is None:
        raise ValueError(f"{field} has no entry for task {task!r}; add it, or an entry {DEFAULT_TASK!r}")
    return value
