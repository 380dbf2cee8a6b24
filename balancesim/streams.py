"""Named random streams: one seed, one stream per purpose and replication, so that every policy meets the same world.

A *sequential* stream (arrivals, lengths, placement, ...) is read in order by the one component that owns it.
A *keyed* stream (fading, acceptance) is addressed by integers (user and block, or request): its value depends on
the key alone, never on who asked first. It is the Philox counter-based generator with the key in the upper words of
the counter (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
"""

from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class Streams:
    """All random streams of one replication."""

    seed: int
    replication: int

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        if self.replication < 0:
            raise ValueError(f"replication must be at least 0, got {self.replication}")

    def _sequence(self, name: str) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(self.replication, crc32(name.encode())))

    def sequential(self, name: str) -> np.random.Generator:
        """Return the generator of the stream called ``name``, at its start."""
        return np.random.Generator(np.random.PCG64(self._sequence(name)))

    def keyed(self, name: str) -> "KeyedStream":
        """Return the keyed stream called ``name``."""
        words = self._sequence(name).generate_state(2, np.uint64)
        return KeyedStream((int(words[0]), int(words[1])))


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """Random numbers addressed by up to two integer keys, whatever the order of the calls."""

    key: tuple[int, int]
    #: the one generator that `_at` winds to a key: setting its state takes a quarter of the time of making another
    _own: np.random.Generator = field(init=False, repr=False, compare=False)
    _state: dict[str, Any] = field(init=False, repr=False, compare=False)  #: of its Philox, as it starts

    def __post_init__(self) -> None:
        own = self.generator(0)
        object.__setattr__(self, "_own", own)
        object.__setattr__(self, "_state", own.bit_generator.state)

    def generator(self, first: int, second: int = 0) -> np.random.Generator:
        """Return a fresh generator for the key ``(first, second)``; each key has 2^128 numbers of its own."""
        return np.random.Generator(np.random.Philox(key=self.key, counter=(0, 0, first, second)))

    def uniforms(self, first: int, count: int, second: int = 0) -> FloatArray:
        """Return ``count`` uniforms on [0, 1) for the key ``(first, second)``; a longer call extends a shorter one."""
        return self._at(first, second).random(count)

    def exponentials(self, first: int, count: int, second: int = 0) -> FloatArray:
        """Return ``count`` exponential variates of mean 1 for the key ``(first, second)``."""
        return self._at(first, second).standard_exponential(count)

    def _at(self, first: int, second: int) -> np.random.Generator:
        """Return the stream's own generator, as `generator` would begin; valid until the next call."""
        self._state["state"]["counter"][2:] = (first, second)
        self._own.bit_generator.state = self._state
        return self._own
