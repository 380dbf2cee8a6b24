"""The nodes that batches of the pipeline visit, and the fronthaul that carries them, as SimPy events (model.md §7)."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import simpy

from balancesim.core.pipeline_nodes import Fronthaul, Sbs
from balancesim.processes.kv_memory import KvMemory


class Stage:
    """A node's GPU: one batch at a time, in the order in which they come.

    What a batch takes is known when it comes and is never given up, so the time at which the node falls free is all
    there is to remember.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._free_s = -math.inf

    def serve(self, work_s: float) -> simpy.Event:
        """Return the event of a batch's end that comes now and takes ``work_s``."""
        now_s = self._env.now
        self._free_s = max(self._free_s, now_s) + work_s
        return self._env.timeout(self._free_s - now_s)


class Direction:
    """One direction of the fronthaul. Transfers arrive in the order in which they were sent."""

    def __init__(self, env: simpy.Environment, fronthaul: Fronthaul) -> None:
        self._env, self._fronthaul = env, fronthaul
        self._free_s = -math.inf  #: the last transfer has left, where transfers queue
        self._last_s = -math.inf  #: the last transfer has arrived
        self._under_way: deque[simpy.Event] = deque()

    def send(self, bits: float) -> simpy.Event:
        """Return the event of a transfer's arrival; it never comes while the fronthaul is down."""
        now_s, fronthaul = self._env.now, self._fronthaul
        arrived = self._env.event()
        if math.isinf(fronthaul.delay_s):
            return arrived
        sending_s = bits / fronthaul.rate_bps
        left_s = now_s + sending_s
        if fronthaul.queueing:
            left_s = self._free_s = max(self._free_s, now_s) + sending_s
        self._last_s = max(self._last_s, left_s + fronthaul.delay_s)
        if self._last_s <= now_s:
            return arrived.succeed()
        self._under_way.append(arrived)
        self._env.timeout(self._last_s - now_s).callbacks.append(self._arrive)
        return arrived

    def _arrive(self, _: simpy.Event) -> None:
        """Let the first that was sent arrive: rounding may make a later one due before it."""
        self._under_way.popleft().succeed()


@dataclass(frozen=True)
class Mbs:
    """A macro base station as its small ones see it: they share its GPU, its memory and, where it queues, the
    fronthaul."""

    server_id: int  #: of its GPU in the result tables
    stage: Stage
    up: Direction
    down: Direction
    memories: list[KvMemory] = field(default_factory=list)  #: what each SBS's batches hold on the MBS
    departed: list[Callable[[], None]] = field(default_factory=list)  #: to be told when a batch leaves, one an SBS

    @staticmethod
    def of(env: simpy.Environment, server_id: int, fronthaul: Fronthaul) -> "Mbs":
        """Return an idle MBS."""
        return Mbs(server_id, Stage(env), Direction(env, fronthaul), Direction(env, fronthaul))


@dataclass(frozen=True)
class SbsSite:
    """A small base station: its GPU, its memory, its fronthaul, and the MBS behind it."""

    stage: Stage
    memory: KvMemory
    up: Direction
    down: Direction
    mbs: Mbs

    @staticmethod
    def of(env: simpy.Environment, sbs: Sbs, mbs: Mbs) -> "SbsSite":
        """Return an idle SBS. Where transfers queue, all SBS of an MBS share the fronthaul; else each has its own."""
        node, fronthaul = sbs.node, sbs.fronthaul
        memory = KvMemory(node.memory_bytes - node.llm.weight_bytes)
        shared = (mbs.up, mbs.down) if fronthaul.queueing else (Direction(env, fronthaul), Direction(env, fronthaul))
        return SbsSite(Stage(env), memory, *shared, mbs)
