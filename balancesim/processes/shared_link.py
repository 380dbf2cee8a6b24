"""A cell's bandwidth shared by the transfers under way, as the allocator says."""

import math
from collections.abc import Callable

import numpy as np
import simpy

from balancesim.allocators import Allocator
from balancesim.processes.links import Air, AirLink, DedicatedLink, checked
from balancesim.units import FloatArray

#: Transfers whose ends differ by less than this share of the wait for them end together: rounding, not order.
_TOGETHER = 1e-12

_ROOM = 16  #: transfers that the columns hold at the start; their room doubles when it is full


class SharedLink(AirLink):
    """Transfers share the bandwidth; rates are settled anew at joins, ends and, under fading, block boundaries."""

    def __init__(self, env: simpy.Environment, air: Air, bandwidth_hz: float, allocator: Allocator) -> None:
        super().__init__(env, air, bandwidth_hz)
        self._allocator = allocator
        # the transfers under way in order of their start
        self._ids: list[int] = []
        self._users: list[int] = []
        self._done: list[Callable[[], None]] = []
        self._columns: FloatArray = np.empty((3, _ROOM))  #: `_bits`, `_efficiency` and `_weights` of `_ids`, then room
        self._weighted = 0  #: transfers with a weight
        self._rates = np.empty(0)  #: bit/s since the time settled
        self._settled_s = 0.0
        self._settled_block = 0
        self._version = 0

    @property
    def _bits(self) -> FloatArray:
        """Bits left at the time settled."""
        return self._columns[0, : len(self._ids)]

    @property
    def _efficiency(self) -> FloatArray:
        """η in the block settled."""
        return self._columns[1, : len(self._ids)]

    @property
    def _weights(self) -> FloatArray:
        """Weights given by policies; NaN = none."""
        return self._columns[2, : len(self._ids)]

    def send(
        self, transfer_id: int, user_id: int, bits: float, done: Callable[[], None], weight: float | None = None
    ) -> None:
        """Start a transfer; ``done`` is called at its end, never before this returns. A lasting outage never ends.

        While any transfer under way has a ``weight`` (a policy's `Decision.bandwidth_weights`), the band is split by
        weights instead of by the allocator; transfers without one then count 1.
        """
        self._settle()
        place = len(self._ids)
        if place == self._columns.shape[1]:
            self._columns = np.concatenate((self._columns, np.empty_like(self._columns)), axis=1)
        efficiency = self._air.efficiency(user_id, self._settled_block)
        self._columns[:, place] = (checked(bits), efficiency, math.nan if weight is None else weight)
        self._weighted += weight is not None
        self._ids.append(transfer_id)
        self._users.append(user_id)
        self._done.append(done)
        self._restart()

    def cancel(self, transfer_id: int) -> None:
        """Give a transfer up; one that has ended is none of ours."""
        if transfer_id in self._ids:
            self._settle()
            self._remove([self._ids.index(transfer_id)])
            self._restart()

    def _own_hz(self) -> float:
        """Return the bandwidth of one more transfer that shares equally with those under way."""
        return self._bandwidth_hz / (1 + len(self._ids))

    def _settle(self) -> None:
        """Take off what has been carried since the rates were set, and look up the present block."""
        now_s = self._env.now
        if now_s > self._settled_s and self._ids:
            left = self._bits - self._rates * (now_s - self._settled_s)
            np.maximum(left, 0.0, out=self._bits)
        block = self._air.block(now_s)
        if block != self._settled_block:
            self._efficiency[:] = [self._air.efficiency(user, block) for user in self._users]
        self._settled_s, self._settled_block = now_s, block

    def _remove(self, index: list[int]) -> list[Callable[[], None]]:
        """Forget transfers; return what to call at their ends."""
        gone = [self._done[i] for i in index]
        for i in reversed(index):
            self._weighted -= not math.isnan(self._columns[2, i])
            last = len(self._ids)
            self._columns[:, i : last - 1] = self._columns[:, i + 1 : last]
            del self._ids[i], self._users[i], self._done[i]
        return gone

    def _restart(self) -> None:
        """Set the rates for who is active now and schedule the next change.

        The change knows which transfers it ends: what rounding leaves of them must not postpone them, since late in a
        run a transfer's last bits can take less time than the clock resolves.
        """
        self._version += 1
        version, bits = self._version, self._bits
        if not self._ids:
            self._rates = np.empty(0)
            return
        self._rates = self._efficiency * self._hertz()
        left_s = np.where(bits > 0, np.inf, 0.0)
        np.divide(bits, self._rates, out=left_s, where=(bits > 0) & (self._rates > 0))
        next_s = float(left_s.min())
        ends: list[int] = np.flatnonzero(left_s <= next_s * (1.0 + _TOGETHER)).tolist()
        if self._air.fading.varies:
            boundary_s = (self._settled_block + 1) * self._air.coherence_s - self._env.now
            if boundary_s < next_s:
                next_s, ends = boundary_s, []
        if math.isfinite(next_s):
            self._env.timeout(next_s).callbacks.append(lambda _: self._change(version, ends))

    def _hertz(self) -> FloatArray:
        """Return the bandwidth of every transfer under way."""
        if not self._weighted:
            return self._allocator.allocate(self._bits, self._efficiency, self._bandwidth_hz)
        weights = np.where(np.isnan(self._weights), 1.0, self._weights)
        shares: FloatArray = self._bandwidth_hz * weights / weights.sum()
        return shares

    def _change(self, version: int, ends: list[int]) -> None:
        if version != self._version:
            return
        self._settle()
        callbacks = self._remove(ends)
        self._restart()
        for done in callbacks:
            done()


def make_link(
    env: simpy.Environment, air: Air, bandwidth_hz: float, allocator: Allocator
) -> "SharedLink | DedicatedLink":
    """Return the link that the allocator asks for."""
    if allocator.coupled:
        return SharedLink(env, air, bandwidth_hz, allocator)
    return DedicatedLink(env, air, bandwidth_hz)
