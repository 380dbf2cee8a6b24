"""A cell's bandwidth shared by the transfers under way, as the allocator says."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simpy

from balancesim.allocators import Allocator
from balancesim.processes.links import DONE_BITS, Air, AirLink, DedicatedLink
from balancesim.units import FloatArray, IntArray


@dataclass(slots=True)
class _Transfer:
    user_id: int
    bits_left: float
    done: Callable[[], None]


class SharedLink(AirLink):
    """Transfers share the bandwidth; rates are settled anew at joins, ends and, under fading, block boundaries."""

    def __init__(self, env: simpy.Environment, air: Air, bandwidth_hz: float, allocator: Allocator) -> None:
        super().__init__(env, air, bandwidth_hz)
        self._allocator = allocator
        self._active: dict[int, _Transfer] = {}
        self._rates: FloatArray = np.empty(0)  #: bit/s of the active ones, in their order
        self._settled_s = 0.0
        self._version = 0

    def send(self, transfer_id: int, user_id: int, bits: float, done: Callable[[], None]) -> None:
        """Start a transfer; ``done`` is called at its end. A lasting outage never ends."""
        self._settle()
        self._active[transfer_id] = _Transfer(user_id, bits, done)
        self._restart()

    def cancel(self, transfer_id: int) -> None:
        """Give a transfer up; one that has ended is none of ours."""
        if transfer_id in self._active:
            self._settle()
            del self._active[transfer_id]
            self._restart()

    def predicted_s(self, user_ids: IntArray, bits: FloatArray) -> FloatArray:
        """Return the times if one more transfer shared equally with those under way; inf in outage."""
        return self._times_s(user_ids, bits, self._bandwidth_hz / (1 + len(self._active)))

    def _settle(self) -> None:
        """Take off what has been carried since the rates were set."""
        elapsed_s = self._env.now - self._settled_s
        if elapsed_s > 0:
            for transfer, rate in zip(self._active.values(), self._rates.tolist(), strict=True):
                transfer.bits_left -= rate * elapsed_s
        self._settled_s = self._env.now

    def _restart(self) -> None:
        """Set the rates for who is active now and schedule the next change."""
        self._version += 1
        if not self._active:
            self._rates = np.empty(0)
            return
        block = self._air.block(self._env.now)
        efficiency = np.array([self._air.efficiency(t.user_id, block) for t in self._active.values()])
        bits = np.array([max(0.0, t.bits_left) for t in self._active.values()])
        self._rates = efficiency * self._allocator.allocate(bits, efficiency, self._bandwidth_hz)
        with np.errstate(divide="ignore", invalid="ignore"):
            left_s = float(np.min(np.where(bits <= DONE_BITS, 0.0, bits / self._rates)))
        if self._air.fading.varies:
            left_s = min(left_s, (block + 1) * self._air.coherence_s - self._env.now)
        if math.isfinite(left_s):
            version = self._version
            self._env.timeout(max(0.0, left_s)).callbacks.append(lambda _: self._change(version))

    def _change(self, version: int) -> None:
        if version != self._version:
            return
        self._settle()
        ended = [key for key, transfer in self._active.items() if transfer.bits_left <= DONE_BITS]
        callbacks = [self._active.pop(key).done for key in ended]
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
