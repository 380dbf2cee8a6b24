"""Length laws: how many tokens prompts and answers have."""

from collections.abc import Iterator
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from balancesim.lengths.laws import FixedLengths, LognormalLengths, UniformLengths
from balancesim.lengths.sizes import Sizes
from balancesim.lengths.trace import RecordedLengths, TraceLengths


class LengthSource(Protocol):
    """What a run needs of a length law."""

    def batches(self, rng: np.random.Generator, count: int) -> Iterator[Sizes]:
        """Return the sizes of the requests in order, ``count`` at a time; may end."""
        ...


class Lengths(LengthSource, Protocol):
    """A length law."""

    name: ClassVar[str]


@runtime_checkable
class BesideArrivals(Protocol):
    """A length law that may take what was recorded with the arrivals."""

    def beside(self, arrivals: object) -> LengthSource | None:
        """Return the recorded lengths, or None when the law draws its own."""
        ...


LENGTHS: tuple[type[Lengths], ...] = (TraceLengths, UniformLengths, LognormalLengths, FixedLengths)

__all__ = ["LENGTHS", "BesideArrivals", "LengthSource", "Lengths", "Sizes"]
__all__ += ["FixedLengths", "LognormalLengths", "RecordedLengths", "TraceLengths", "UniformLengths"]
