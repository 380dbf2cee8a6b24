"""Deadline laws: until when an answer is useful."""

from typing import ClassVar, Protocol

import numpy as np

from balancesim.deadlines.laws import FixedDeadline, NoDeadline, PerTokenDeadline, UniformDeadline
from balancesim.lengths.sizes import Sizes
from balancesim.units import FloatArray


class Deadlines(Protocol):
    """A deadline law."""

    name: ClassVar[str]

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> FloatArray:
        """Return the end-to-end deadline of each request in seconds from its arrival; inf = none.

        ``sizes`` are the requests' own lengths, before any cut to the model's context.
        """
        ...


DEADLINES: tuple[type[Deadlines], ...] = (FixedDeadline, UniformDeadline, PerTokenDeadline, NoDeadline)

__all__ = ["DEADLINES", "Deadlines", "FixedDeadline", "NoDeadline", "PerTokenDeadline", "UniformDeadline"]
