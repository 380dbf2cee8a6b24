"""A request inside a continuous lane: what it has emitted, when it ends, how far its reservation reaches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from balancesim.processes.visit import Visit
from balancesim.units import IntArray


@dataclass(frozen=True, slots=True)
class Freed:
    """State of the KV memory when a request was preempted."""

    taken_bytes: float = 0.0  #: ever reserved until then
    free_bytes: float = 0.0  #: before its own blocks became free
    size_bytes: float = 0.0  #: of its own

    def cached_tokens(self, taken_bytes: float, token_bytes: float, block_tokens: int) -> int:
        """Return the tokens at the front of its cache that nobody has overwritten when so much was ever reserved.

        Free blocks are used again in the order in which they became free, and a request gives its last blocks up first:
        those free before it go first, then its own from the back.
        """
        overwritten = max(0.0, taken_bytes - self.taken_bytes - self.free_bytes)
        tokens = int(max(0.0, self.size_bytes - overwritten) / token_bytes + 1e-6)
        return tokens // block_tokens * block_tokens


@dataclass(slots=True, eq=False)
class Resident:
    """State of one admitted request; positions count the lane's steps (AD) or rounds (SD)."""

    visit: Visit
    order: int  #: of admission: the youngest has the highest
    reserved_tokens: int  #: answer tokens that the reservation covers
    emitted: IntArray | None  #: SD: answer tokens out after 1, 2, … rounds, prefill's token included
    tokens_out: int = 0  #: at ``joined_step``
    steps_done: int = 0  #: SD rounds done before ``joined_step``
    joined_step: int = 0
    prefilled: bool = False
    gone: bool = False  #: left the lane; entries that still name it are stale
    chunked_tokens: int = 0  #: of a prefill in progress, done in earlier steps
    freed: Freed = Freed()  #: at its last preemption
    stop: bool = False  #: to be removed at the next step boundary (its deadline has passed)

    def tokens_at(self, step: int) -> int:
        """Return the answer tokens out when the lane has done ``step`` steps."""
        steps = step - self.joined_step
        if self.emitted is None:
            return self.tokens_out + steps
        done = self.steps_done + steps
        return int(self.emitted[done - 1]) if done else 1

    @property
    def target_tokens(self) -> int:
        """Answer tokens at which it is done or outgrows its reservation, whichever is first."""
        return min(self.visit.request.output_tokens, max(self.reserved_tokens, self.tokens_out + 1))

    def end_step(self) -> int:
        """Return the lane step at which it reaches its target."""
        target = self.target_tokens
        if self.emitted is None:
            return self.joined_step + target - self.tokens_out
        rounds = int(np.searchsorted(self.emitted, target)) + 1
        return self.joined_step + rounds - self.steps_done

    def pause(self, step: int) -> None:
        """Settle what is out at ``step``, so that the request can join a batch again later."""
        if self.prefilled:
            self.tokens_out = self.tokens_at(step)
            if self.emitted is not None:
                self.steps_done += step - self.joined_step
        self.prefilled = False
        self.chunked_tokens = 0

    @property
    def context_tokens(self) -> int:
        """Tokens that a prefill of it has to process (the prompt; after a preemption also what is out)."""
        return self.visit.request.prompt_tokens + self.tokens_out


class LaneProcess(Protocol):
    """What runs the requests of a lane."""

    @property
    def running(self) -> Mapping[int, Resident]:
        """Who is decoded, by request id."""
        ...

    @property
    def pending(self) -> Mapping[int, Resident]:
        """Who waits for its prefill, by request id."""
        ...

    def join(self, resident: Resident) -> None:
        """Take a request whose prompt is in; it starts at the next step boundary."""
        ...

    def stop(self, resident: Resident) -> None:
        """Remove a request at the next step boundary."""
        ...

    def remove(self, resident: Resident) -> None:
        """Remove a request now, at a step boundary, and settle what it has emitted."""
        ...

    def steps_now(self) -> int:
        """Return the steps done by now."""
        ...


@dataclass(frozen=True, slots=True)
class LaneHooks:
    """What the lane tells its discipline."""

    begin: Callable[[Resident], None]  #: its prefill begins, or goes on
    first_token: Callable[[Resident], None]
    done: Callable[[Resident], None]
    outgrown: Callable[[Resident], bool]  #: asks for more memory; False = it was preempted
    settled: Callable[[], None]  #: who left and who needed more memory at this boundary has been seen to


class RoundTokens:
    """Tokens that a speculative batch will emit in each coming round, summed over its members.

    Keeping the sum means that a round costs nothing per member: joining adds a vector, leaving early takes it away.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(256)
        self._base = 0

    def _cover(self, rounds: int) -> None:
        if self._base + rounds > len(self._sums):
            fresh = np.zeros(max(256, 2 * (len(self._sums) - self._base), 2 * rounds))
            left = self._sums[self._base :]
            fresh[: len(left)] = left
            self._sums, self._base = fresh, 0

    def add(self, increments: IntArray, sign: int = 1) -> None:
        """Add (or, with sign −1, take away) a member's tokens of its coming rounds."""
        self._cover(len(increments))
        self._sums[self._base : self._base + len(increments)] += sign * increments

    def coming(self, rounds: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Return the sums of the next rounds."""
        self._cover(rounds)
        return self._sums[self._base : self._base + rounds]

    def advance(self, rounds: int) -> int:
        """Move on by some rounds; return the tokens that they emitted."""
        emitted = int(self.coming(rounds).sum())
        self._base += rounds
        return emitted
