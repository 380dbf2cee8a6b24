"""Markov-modulated Poisson arrivals."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.arrivals.chunks import CHUNK, one_by_one
from balancesim.checks import not_negative, positive
from balancesim.units import FloatArray

_SOJOURNS = 256  # drawn at once


@dataclass(frozen=True)
class Mmpp:
    """Poisson process whose rate jumps between states (bursts): rates and mean sojourns of the states.

    A sojourn is exponential; the next state is any of the others with equal chance (two states alternate). So the share
    of time in state i is τ_i/Στ and the mean rate Σ r_i·τ_i / Σ τ_i. It starts in its stationary law.

    Arrivals are a Poisson process of rate 1 in operational time Λ(t) = ∫ rate, mapped back through the inverse of the
    piecewise linear Λ (Çınlar, "Introduction to stochastic processes", 1975, ch. 4.7).
    """

    name: ClassVar[str] = "mmpp"

    rates_hz: tuple[float, ...]
    sojourns_s: tuple[float, ...]  #: mean time spent in each state

    def __post_init__(self) -> None:
        if len(self.rates_hz) < 2:
            raise ValueError(f"rates_hz must have at least 2 states, got {len(self.rates_hz)}")
        if len(self.sojourns_s) != len(self.rates_hz):
            raise ValueError(f"sojourns_s must have {len(self.rates_hz)} entries, got {len(self.sojourns_s)}")
        for rate_hz, sojourn_s in zip(self.rates_hz, self.sojourns_s, strict=True):
            not_negative(rates_hz=rate_hz)
            positive(sojourns_s=sojourn_s)
        if not any(self.rates_hz):
            raise ValueError(f"rates_hz must have a positive rate, got {self.rates_hz}")

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second in the long run: Σ r_i·τ_i / Σ τ_i."""
        return float(np.dot(self.rates_hz, self.sojourns_s) / np.sum(self.sojourns_s))

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps between arrivals, the first from time 0."""
        return one_by_one(self._gaps(rng))

    def _gaps(self, rng: np.random.Generator) -> Iterator[FloatArray]:
        sojourns_s = np.asarray(self.sojourns_s)
        state = int(rng.choice(len(sojourns_s), p=sojourns_s / sojourns_s.sum()))
        # knots of Λ: times and expected arrivals at the jumps, from the last arrival on (kept small: no lost digits)
        times_s, expected = np.zeros(1), np.zeros(1)
        while True:
            targets = np.cumsum(rng.standard_exponential(CHUNK))
            while expected[-1] <= targets[-1]:
                states = self._walk(state, rng)
                state = int(states[-1])
                lengths_s = rng.standard_exponential(_SOJOURNS) * sojourns_s[states[:-1]]
                growth = lengths_s * np.asarray(self.rates_hz)[states[:-1]]
                times_s = np.concatenate([times_s, times_s[-1] + np.cumsum(lengths_s)])
                expected = np.concatenate([expected, expected[-1] + np.cumsum(growth)])
            arrivals_s = np.interp(targets, expected, times_s)
            yield np.diff(arrivals_s, prepend=0.0)
            passed = int(np.searchsorted(expected, targets[-1], side="right")) - 1
            times_s = np.concatenate([[0.0], times_s[passed + 1 :] - arrivals_s[-1]])
            expected = np.concatenate([[0.0], expected[passed + 1 :] - targets[-1]])

    def _walk(self, state: int, rng: np.random.Generator) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Return the next states, beginning with ``state``; the last one begins the next walk."""
        steps = rng.integers(1, len(self.rates_hz), _SOJOURNS)
        return (state + np.concatenate([[0], np.cumsum(steps)])) % len(self.rates_hz)
