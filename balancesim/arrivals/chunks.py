"""Fast iteration: random numbers are drawn by the thousand and handed out one by one."""

from collections.abc import Callable, Iterator
from itertools import chain

from balancesim.units import FloatArray

#: Numbers drawn at once. It is part of what a seed means where a process draws two kinds of numbers from one stream.
CHUNK = 4096


def one_by_one(chunks: Iterator[FloatArray]) -> Iterator[float]:
    """Return the numbers of the arrays in order."""
    return chain.from_iterable(chunk.tolist() for chunk in chunks)


def endless(draw: Callable[[int], FloatArray]) -> Iterator[float]:
    """Return numbers for ever; ``draw(count)`` makes the next ones."""
    return one_by_one(draw(CHUNK) for _ in iter(int, 1))
