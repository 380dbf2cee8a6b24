"""Shares of GPU and memory that two lanes divide: the grid of (z, λ) of model.md §5."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from balancesim.core.decision import Lane
from balancesim.core.memory import any_speculates
from balancesim.core.problem import Problem
from balancesim.units import BoolArray, FloatArray, IntArray

_NOTHING = 1e-9  #: shares below it are rounding


@dataclass(frozen=True, slots=True)
class Room:
    """What the lanes that a policy does not steer leave of GPU and memory; they keep their shares."""

    others: tuple[Lane, ...]
    gpu_share: float
    memory_share: float


def room(problem: Problem, steered: tuple[int, ...]) -> Room:
    """Return the room for the lanes with these numbers."""
    others = tuple([replace(lane, members=()) for lane in problem.lanes if lane.lane_id not in steered])
    gpu = 1.0 - math.fsum([lane.gpu_share for lane in others])
    memory = 1.0 - math.fsum([lane.memory_share for lane in others])
    return Room(others, gpu if gpu > _NOTHING else 0.0, memory if memory > _NOTHING else 0.0)


def free_for(problem: Problem, lanes: tuple[Lane, ...]) -> float:
    """Return the KV memory when these lanes may be used: W_S is taken off if one of them, or a resident, speculates."""
    drafts = problem.uses_sd or any_speculates(lanes)
    return max(0.0, problem.server.free_bytes(uses_sd=drafts))


@dataclass(frozen=True)
class PairGrid:
    """Alternatives for two lanes: cell [i, j] gives them GPU shares gpu[·][i] and memory shares memory[·][j].

    The first lane's axes ascend, the second's descend.
    """

    gpu: tuple[FloatArray, FloatArray]
    memory: tuple[FloatArray, FloatArray]
    limits_bytes: tuple[FloatArray, FloatArray]  #: of the lanes' KV memory at memory[·][j]
    order: IntArray  #: [i, j]: place of a cell in the order of preference; among equals the smallest wins

    @property
    def swapped(self) -> "PairGrid":
        """The same cells with the lanes in the other order, axes reversed."""
        pairs = (self.gpu, self.memory, self.limits_bytes)
        gpu, memory, limits = ((second[::-1], first[::-1]) for first, second in pairs)
        return PairGrid(gpu, memory, limits, self.order[::-1, ::-1])


@dataclass(frozen=True)
class PairSolution:
    """The best cell found for two lanes, with their new members as masks over the candidates."""

    served: int
    gpu_share: tuple[float, float]
    memory_share: tuple[float, float]
    members: tuple[BoolArray, BoolArray]

    @property
    def swapped(self) -> "PairSolution":
        """The same with the lanes in the other order."""
        return PairSolution(self.served, self.gpu_share[::-1], self.memory_share[::-1], self.members[::-1])


def pair_grid(
    problem: Problem,
    lanes: tuple[Lane, Lane],
    gpu: tuple[FloatArray, FloatArray],
    memory: tuple[FloatArray, FloatArray],
) -> PairGrid:
    """Return the cells of given axes; cells nearest to equal shares are preferred, then small z, then small λ.

    A lane's memory is its share, and never more than residents of the other lanes leave.
    """
    gpu, memory = (_snapped(gpu[0]), _snapped(gpu[1])), (_snapped(memory[0]), _snapped(memory[1]))
    limits = lane_limits(problem, lanes, np.column_stack(memory)).T
    distances = (np.abs(gpu[0] - gpu[1]), np.abs(memory[0] - memory[1]))
    return PairGrid(gpu, memory, (limits[0], limits[1]), _order(*(distance.tobytes() for distance in distances)))


@lru_cache(maxsize=256)  # a policy's axes are the same at every epoch
def _order(gpu: bytes, memory: bytes) -> IntArray:
    """Return the places of the cells by distance from equal shares; the arguments are arrays as bytes."""
    distance = np.frombuffer(gpu)[:, None] + np.frombuffer(memory)
    order = np.empty(distance.size, dtype=np.int64)
    order[np.argsort(np.round(distance, 9).ravel(), kind="stable")] = np.arange(distance.size)
    return order.reshape(distance.shape)


def lane_limits(problem: Problem, lanes: tuple[Lane, ...], memory: FloatArray) -> FloatArray:
    """Return the KV memory of lanes, residents and new members together, at memory shares (alternatives, lanes).

    It is share·free, unless residents hold more than their lane's share (answers that outgrew their reservations, or a
    share made smaller): then these lanes admit nobody, and what they and lanes of others leave is divided among the
    rest in proportion to the shares, so that all lanes together never exceed the memory.
    """
    free = free_for(problem, lanes)
    limits = memory * free
    if not problem.held_bytes > 0:
        return limits
    held = np.array([problem.held_bytes - problem.held_elsewhere_bytes(lane.lane_id) for lane in lanes])
    left = free - (problem.held_bytes - held.sum())
    full = np.zeros(limits.shape, dtype=np.bool_)
    scale = np.ones((len(limits), 1))
    for _ in range(len(lanes) + 1):
        wanted = np.where(full, 0.0, limits).sum(axis=1, keepdims=True)
        rest = np.maximum(0.0, left - np.where(full, held, 0.0).sum(axis=1, keepdims=True))
        scale = np.divide(rest, wanted, out=np.zeros_like(rest), where=wanted > 0).clip(max=1.0)
        outgrown = ~full & (held > limits * scale)
        if not outgrown.any():
            break
        full |= outgrown
    return limits * scale


def _snapped(shares: FloatArray) -> FloatArray:
    """Return shares with those that rounding alone keeps from 0 set to 0: no window is that short."""
    return np.where(shares < _NOTHING, 0.0, shares)


def divided(problem: Problem, lanes: tuple[Lane, Lane], gpu: FloatArray, memory: FloatArray) -> PairGrid:
    """Return the grid that gives the first lane these parts (ascending, within 0 and 1) of the room, the second the
    rest."""
    space = room(problem, (lanes[0].lane_id, lanes[1].lane_id))
    z, share = gpu * space.gpu_share, memory * space.memory_share
    return pair_grid(problem, lanes, (z, space.gpu_share - z), (share, space.memory_share - share))


def in_force(problem: Problem, lanes: tuple[Lane, Lane]) -> PairGrid | None:
    """Return the single cell of the shares in force; None if neither lane has residents."""
    before = [problem.lane_in_force(lane.lane_id) for lane in lanes]
    if before[0] is None and before[1] is None:
        return None
    space = room(problem, (lanes[0].lane_id, lanes[1].lane_id))
    gpu = _completed([None if lane is None else lane.gpu_share for lane in before], space.gpu_share)
    memory = _completed([None if lane is None else lane.memory_share for lane in before], space.memory_share)
    return pair_grid(problem, lanes, gpu, memory)


def _completed(shares: list[float | None], whole: float) -> tuple[FloatArray, FloatArray]:
    """Return both shares as axes of length 1; a lane that has none yet gets the rest."""
    known = math.fsum(share for share in shares if share is not None)
    first, second = (max(0.0, whole - known) if share is None else share for share in shares)
    return np.array([first]), np.array([second])
