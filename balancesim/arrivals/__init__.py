"""Arrival processes: when requests come."""

from collections.abc import Iterator
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from balancesim.arrivals.deterministic import AtOnce, Deterministic
from balancesim.arrivals.diurnal import Diurnal, RateTable
from balancesim.arrivals.gamma import Gamma
from balancesim.arrivals.mmpp import Mmpp
from balancesim.arrivals.poisson import Poisson
from balancesim.arrivals.trace import RecordedArrivals, TraceReplay
from balancesim.arrivals.weibull import Weibull
from balancesim.streams import Streams


class BoundArrivals(Protocol):
    """What a run needs of an arrival process."""

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second in the long run; 0 when there is no long run."""
        ...

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps between arrivals in seconds, the first from time 0; may end."""
        ...


class Arrivals(BoundArrivals, Protocol):
    """An arrival process. One that sets ``distinct_users = True`` draws users without repetition."""

    name: ClassVar[str]


@runtime_checkable
class PerReplication(Protocol):
    """An arrival process that differs by replication beyond its random numbers, as the windows of a trace do."""

    def for_replication(self, streams: Streams, horizon_s: float) -> BoundArrivals:
        """Return the process of one replication."""
        ...


ARRIVALS: tuple[type[Arrivals], ...] = (
    Poisson,
    Gamma,
    Weibull,
    Mmpp,
    Diurnal,
    RateTable,
    Deterministic,
    AtOnce,
    TraceReplay,
)

__all__ = ["ARRIVALS", "Arrivals", "BoundArrivals", "PerReplication", "RecordedArrivals"]
__all__ += ["AtOnce", "Deterministic", "Diurnal", "Gamma", "Mmpp", "Poisson", "RateTable", "TraceReplay", "Weibull"]
