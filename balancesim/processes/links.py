"""The radio of a cell in one direction: transfers over block-fading links, alone on their bandwidth or sharing it.

A transfer ends when the integral of its rate reaches its bits. Alone, that time has a closed form over the blocks: one
event per transfer. Sharing, the rates change when transfers come and go and, under fading, at block boundaries.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import simpy

from balancesim.core.radio import block_of, transfer_end_s
from balancesim.fading import Fading
from balancesim.fading.chunk import CHUNK
from balancesim.rate_laws import RateLaw
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray, IntArray

#: Blocks that a transfer is followed through before its outage counts as lasting (500 s of blocks of 5 ms).
MOST_BLOCKS = 100_000


def checked(bits: float) -> float:
    """Return the size of a transfer; raise where it is not a number of bits."""
    if not 0 <= bits < float("inf"):
        raise ValueError(f"a transfer's bits must be finite and at least 0, got {bits}")
    return bits


@dataclass
class Air:
    """SINR and spectral efficiency of every user of a cell in one direction, block by block."""

    mean_sinr: dict[int, float]  #: by user id, without fading
    fading: Fading
    coherence_s: float
    rate_law: RateLaw
    luck: KeyedStream
    _chunks: dict[int, tuple[int, FloatArray, FloatArray]] = field(default_factory=dict)

    def block(self, time_s: float) -> int:
        """Return the number of the block at a time; 0 for ever without fading."""
        return block_of(time_s, self.coherence_s) if self.fading.varies else 0

    def sinr(self, user_id: int, block: int) -> float:
        """Return the linear SINR of a user in a block."""
        return float(self._chunk(user_id, block)[1][block % CHUNK])

    def efficiency(self, user_id: int, block: int) -> float:
        """Return η of a user in a block."""
        return float(self._chunk(user_id, block)[2][block % CHUNK])

    def efficiencies(self, user_id: int, block: int) -> FloatArray:
        """Return η of a user in a block and in those after it up to the end of the chunk."""
        return self._chunk(user_id, block)[2][block % CHUNK :]

    def _chunk(self, user_id: int, block: int) -> tuple[int, FloatArray, FloatArray]:
        number = block // CHUNK
        found = self._chunks.get(user_id)
        if found is None or found[0] != number:
            sinr = self.mean_sinr[user_id] * self.fading.gains(self.luck, user_id, number)
            if not np.isfinite(sinr).all():
                wrong = sinr[~np.isfinite(sinr)][0]
                raise ValueError(
                    f"radio: SINR must be finite, got {wrong} for user {user_id}; check the channel's gain"
                )
            found = (number, sinr, self.rate_law.spectral_efficiency_bps_hz(sinr))
            self._chunks[user_id] = found
        return found


class AirLink:
    """What both kinds of link tell about the present block."""

    def __init__(self, env: simpy.Environment, air: Air, bandwidth_hz: float) -> None:
        self._env, self._air, self._bandwidth_hz = env, air, bandwidth_hz

    def sinr(self, user_id: int) -> float:
        """Return the linear SINR of a user in the present block."""
        return self._air.sinr(user_id, self._air.block(self._env.now))

    def spectral_efficiency(self, user_ids: IntArray) -> FloatArray:
        """Return η of users in the present block."""
        block = self._air.block(self._env.now)
        return np.array([self._air.efficiency(user_id, block) for user_id in user_ids.tolist()])

    def _own_hz(self) -> float:
        """Return the bandwidth that one more transfer would have."""
        return self._bandwidth_hz

    def time_s(self, user_id: int, bits: float) -> float:
        """Return bits/rate of one transfer at the present block's rate; inf in outage."""
        rate = self._air.efficiency(user_id, self._air.block(self._env.now)) * self._own_hz()
        if bits <= 0:
            return 0.0
        return bits / rate if rate > 0 else math.inf

    def predicted_s(self, user_ids: IntArray, bits: FloatArray) -> FloatArray:
        """Return bits/rate of transfers, each as if it were the only one more; inf in outage."""
        rate = self.spectral_efficiency(user_ids) * self._own_hz()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(bits > 0, bits / rate, 0.0)


class DedicatedLink(AirLink):
    """Every transfer has the whole bandwidth to itself."""

    def __init__(self, env: simpy.Environment, air: Air, bandwidth_hz: float) -> None:
        super().__init__(env, air, bandwidth_hz)
        self._active: dict[int, object] = {}

    def send(
        self,
        transfer_id: int,
        user_id: int,
        bits: float,
        done: Callable[[], None],
        weight: float | None = None,  # noqa: ARG002  # nobody shares this bandwidth
    ) -> None:
        """Start a transfer; ``done`` is called at its end, never before this returns. A lasting outage never ends."""
        left_s = self._left_s(user_id, checked(bits))
        token = object()
        self._active[transfer_id] = token
        if left_s == float("inf"):
            return

        def ended(_: simpy.Event) -> None:
            if self._active.get(transfer_id) is token:
                del self._active[transfer_id]
                done()

        self._env.timeout(left_s).callbacks.append(ended)

    def _left_s(self, user_id: int, bits: float) -> float:
        """Return the time that a transfer takes from now on."""
        air, hertz, now_s = self._air, self._bandwidth_hz, self._env.now
        if air.fading.varies:
            end_s = transfer_end_s(
                now_s, bits, air.coherence_s, lambda block: hertz * air.efficiencies(user_id, block), MOST_BLOCKS
            )
            return end_s - now_s
        rate = hertz * air.efficiency(user_id, 0)
        if bits == 0:
            return 0.0
        return bits / rate if rate > 0 else float("inf")

    def cancel(self, transfer_id: int) -> None:
        """Give a transfer up; one that has ended is none of ours."""
        self._active.pop(transfer_id, None)
