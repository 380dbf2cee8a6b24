"""Poisson arrivals whose rate varies over the day."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.arrivals.chunks import CHUNK, one_by_one
from balancesim.checks import not_negative, positive, share
from balancesim.units import FloatArray


def thinned(
    rng: np.random.Generator, rate_hz: Callable[[FloatArray], FloatArray], peak_hz: float
) -> Iterator[FloatArray]:
    """Return the gaps of a Poisson process of varying rate, by thinning (Lewis and Shedler, 1979).

    Candidates come at the peak rate; the one at t is kept with probability rate(t)/peak.
    """
    start_s = 0.0
    last_s = 0.0
    while True:
        times_s = start_s + np.cumsum(rng.exponential(1.0 / peak_hz, CHUNK))
        kept = times_s[rng.random(CHUNK) * peak_hz < rate_hz(times_s)]
        start_s = float(times_s[-1])
        yield np.diff(kept, prepend=last_s)
        last_s = float(kept[-1]) if len(kept) else last_s


@dataclass(frozen=True)
class Diurnal:
    """Poisson process with a sinusoidal rate: mean·(1 + amplitude·sin(2π·(t/period + phase)))."""

    name: ClassVar[str] = "diurnal"

    mean_hz: float
    amplitude: float  #: 0 to 1: peak rate over the mean, less 1
    period_s: float
    phase: float  #: in periods; 0 = at the mean and rising, 0.25 = at the peak

    def __post_init__(self) -> None:
        positive(mean_hz=self.mean_hz, period_s=self.period_s)
        share(amplitude=self.amplitude)
        if not math.isfinite(self.phase):
            raise ValueError(f"phase must be finite, got {self.phase}")

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second over whole periods."""
        return self.mean_hz

    def rate_hz(self, time_s: FloatArray) -> FloatArray:
        """Return the rate at each time."""
        cycles = time_s / self.period_s + self.phase
        return self.mean_hz * (1.0 + self.amplitude * np.sin(2 * np.pi * cycles))

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps between arrivals, the first from time 0."""
        return one_by_one(thinned(rng, self.rate_hz, self.mean_hz * (1.0 + self.amplitude)))


@dataclass(frozen=True)
class RateTable:
    """Poisson process with a table of rates, each for ``step_s`` (3600 = hourly), repeated from its start."""

    name: ClassVar[str] = "rate_table"

    rates_hz: tuple[float, ...]
    step_s: float

    def __post_init__(self) -> None:
        positive(step_s=self.step_s)
        for rate_hz in self.rates_hz:
            not_negative(rates_hz=rate_hz)
        if not any(self.rates_hz):
            raise ValueError(f"rates_hz must have a positive rate, got {self.rates_hz}")

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second over whole tables."""
        return float(np.mean(self.rates_hz))

    def rate_hz(self, time_s: FloatArray) -> FloatArray:
        """Return the rate at each time."""
        rates_hz = np.asarray(self.rates_hz)
        return rates_hz[np.floor(time_s / self.step_s).astype(np.int64) % len(rates_hz)]

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps between arrivals, the first from time 0."""
        return one_by_one(thinned(rng, self.rate_hz, max(self.rates_hz)))
