"""Lengths from a recorded trace."""

# ruff: noqa: ARG002 (some laws of a family do not need all of the contract's arguments)

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from balancesim.lengths.sizes import Sizes
from balancesim.trace_formats import load_trace


@runtime_checkable
class HasSizes(Protocol):
    """Arrivals that come with the sizes of their requests."""

    sizes: Sizes


@dataclass(frozen=True)
class RecordedLengths:
    """The sizes of recorded requests, in their order."""

    sizes: Sizes

    def batches(self, rng: np.random.Generator, count: int) -> Iterator[Sizes]:
        """Return the sizes, ``count`` at a time; ends with the record."""
        for first in range(0, len(self.sizes), count):
            yield self.sizes.take(slice(first, first + count))


@dataclass(frozen=True)
class TraceLengths:
    """Pairs of prompt and answer length from a trace: the replayed requests' own, or rows of ``file`` drawn at random.

    Without ``file`` the arrivals must be a replay, and each request keeps its recorded pair. With ``file`` pairs are
    drawn from all its rows with replacement (bootstrap), so that any dependence within a pair is kept.
    """

    name: ClassVar[str] = "trace"

    file: str | None = None  #: a trace's name (traces/README.md) or a path

    def beside(self, arrivals: object) -> RecordedLengths | None:
        """Return the lengths recorded with ``arrivals``, or None when they are drawn from ``file``.

        Raises:
            ValueError: no ``file`` and arrivals that record no lengths.
        """
        if self.file is not None:
            return None
        if isinstance(arrivals, HasSizes):
            return RecordedLengths(arrivals.sizes)
        raise ValueError('file is needed unless the arrivals are of kind "trace": say whose lengths to draw')

    def batches(self, rng: np.random.Generator, count: int) -> Iterator[Sizes]:
        """Return sizes drawn from the rows of ``file``, ``count`` at a time. Reads the file."""
        if self.file is None:
            raise ValueError('file is needed unless the arrivals are of kind "trace": say whose lengths to draw')
        rows = load_trace(self.file)
        sizes = Sizes(rows.prompt_tokens, rows.output_tokens, rows.task, rows.prefix_blocks)
        while True:
            yield sizes.take(rng.integers(0, len(sizes), count))
