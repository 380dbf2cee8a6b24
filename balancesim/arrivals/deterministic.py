"""Arrivals without randomness."""

# ruff: noqa: ARG002 (some laws of a family do not need all of the contract's arguments)

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

import numpy as np

from balancesim.arrivals.chunks import CHUNK, one_by_one
from balancesim.checks import at_least_one, positive
from balancesim.units import FloatArray


@dataclass(frozen=True)
class Deterministic:
    """One arrival every 1/rate seconds, the first after 1/rate."""

    name: ClassVar[str] = "deterministic"

    rate_hz: float

    def __post_init__(self) -> None:
        positive(rate_hz=self.rate_hz)

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second."""
        return self.rate_hz

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return gaps that add up to k/rate without drift."""
        return one_by_one(self._gaps())

    def _gaps(self) -> Iterator[FloatArray]:
        # Differences of neighbouring multiples are exact in floating point (Sterbenz), so that their running sum is
        # k/rate as rounded once, and meets epochs at multiples of a period exactly.
        first = 0
        while True:
            yield np.diff(np.arange(first, first + CHUNK + 1) / self.rate_hz)
            first += CHUNK


@dataclass(frozen=True)
class AtOnce:
    """All users at once: ``users`` requests at time 0, and again every ``period_s`` if that is given.

    The round of the paper's study. Users are drawn without repetition: with as many users as in the scenario, each
    sends one request a round.
    """

    name: ClassVar[str] = "at_once"
    distinct_users: ClassVar[bool] = True

    users: int
    period_s: float | None = None  #: None = one round

    def __post_init__(self) -> None:
        at_least_one(users=self.users)
        if self.period_s is not None:
            positive(period_s=self.period_s)

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second in the long run: users/period, and 0 for a single round."""
        return 0.0 if self.period_s is None else self.users / self.period_s

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return zeros within a round and the period between rounds, without drift."""
        yield from repeat(0.0, self.users)
        period_s, round_number = self.period_s, 0
        while period_s is not None:
            yield (round_number + 1) * period_s - round_number * period_s
            yield from repeat(0.0, self.users - 1)
            round_number += 1
