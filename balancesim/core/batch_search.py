"""Any number of batches, each AD or SD, solved one after another with exact sub-problems (docs/algorithms.md).

For given lanes and shares every lane takes its largest batch of the users that the lanes before it left. At least half
of what any choice of disjoint batches serves at the same shares: a user of the optimum's batch m is either taken before
or still available to batch m. Shares come from a grid, from dividing a lane of the best decision so far, and from
dividing the shares of every two lanes anew until nothing more is won.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.problem import Budgets, Problem, SubProblem
from balancesim.core.shares import lane_limits, room
from balancesim.core.solver import complete
from balancesim.units import FloatArray

#: Parts in which the shares of two lanes are divided anew.
_PARTS = np.array([0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875])
_HALVES = np.array([0.25, 0.5, 0.75])


@dataclass(frozen=True)
class ShareVectors:
    """Shares of M lanes for G alternatives: row g gives lane m gpu[g, m] and memory[g, m]."""

    gpu: FloatArray
    memory: FloatArray

    def at_least(self, gpu_share: float) -> "ShareVectors":
        """The vectors that give every lane so much of the GPU, up to rounding."""
        wide = (self.gpu >= gpu_share * (1.0 - 1e-9)).all(axis=1)
        return ShareVectors(self.gpu[wide], self.memory[wide])

    @property
    def reversed(self) -> "ShareVectors":
        """The same with the lanes in the other order."""
        return ShareVectors(self.gpu[:, ::-1], self.memory[:, ::-1])


def simplex(parts: int, count: int) -> FloatArray:
    """Return all ways to divide 1 into ``count`` positive multiples of 1/parts, (ways, count)."""
    ways = list(combinations(range(1, parts), count - 1))
    cuts = np.array(ways, dtype=float).reshape(len(ways), count - 1)
    ends = np.zeros((len(ways), 1))
    return np.diff(np.hstack((ends, cuts, ends + parts))) / parts


def crossed(gpu: FloatArray, memory: FloatArray) -> ShareVectors:
    """Return every row of GPU shares with every row of memory shares."""
    return ShareVectors(np.repeat(gpu, len(memory), axis=0), np.tile(memory, (len(gpu), 1)))


class BatchSearch:
    """The search of one problem; keeps a sub-problem for each lane, and gives no lane less than the smallest share."""

    def __init__(self, problem: Problem, smallest_gpu_share: float = 0.0) -> None:
        self.problem = problem
        self.smallest = smallest_gpu_share
        self._subs: dict[int, SubProblem] = {}

    def over_grid(self, lanes: tuple[Lane, ...], parts: int, floor: int) -> Decision | None:
        """Return the best decision over all shares that are multiples of 1/parts of the room, and those in force."""
        space = room(self.problem, tuple(lane.lane_id for lane in lanes))
        shares = simplex(parts, len(lanes))
        best = self.batch_after_batch(lanes, _in_force(self.problem, lanes), floor)
        grid = crossed(shares * space.gpu_share, shares * space.memory_share)
        return self._both_orders(lanes, grid, floor if best is None else len(best.admitted)) or best

    def divide(self, decision: Decision, new: Lane, floor: int) -> Decision | None:
        """Return the best decision with a new lane that takes a part of the shares of one lane of a decision."""
        best, lanes = None, _bare(decision)
        for place, (lane, donor) in enumerate(zip(lanes, decision.lanes, strict=True)):
            both = _pairs(donor.gpu_share, donor.memory_share, _HALVES)
            kept = _rows(decision, len(both.gpu))
            gpu, memory = (
                np.hstack((old[:, :place], two, old[:, place + 1 :]))
                for old, two in ((kept.gpu, both.gpu), (kept.memory, both.memory))
            )
            chosen = (*lanes[:place], lane, new, *lanes[place + 1 :])
            best = self._both_orders(chosen, ShareVectors(gpu, memory).at_least(self.smallest), floor) or best
            floor = floor if best is None else len(best.admitted)
        return best

    def ascend(self, decision: Decision) -> Decision:
        """Divide the shares of every two lanes anew, as long as more users are served."""
        place = failed = 0
        while len(decision.admitted) < len(self.problem.candidates):
            pairs = list(combinations(range(len(decision.lanes)), 2))
            if failed == len(pairs):
                break
            vectors = _redivided(decision, *pairs[place % len(pairs)]).at_least(self.smallest)
            better = self.batch_after_batch(_bare(decision), vectors, len(decision.admitted))
            failed = failed + 1 if better is None else 0
            decision = decision if better is None else better
            place += 1
        return decision

    def _both_orders(self, lanes: tuple[Lane, ...], vectors: ShareVectors, floor: int) -> Decision | None:
        best = self.batch_after_batch(lanes, vectors, floor)
        if len({(lane.mode, lane.draft_length) for lane in lanes}) > 1:
            floor = floor if best is None else len(best.admitted)
            best = self.batch_after_batch(lanes[::-1], vectors.reversed, floor) or best
        return best

    def batch_after_batch(self, lanes: tuple[Lane, ...], vectors: ShareVectors, floor: int) -> Decision | None:
        """Return the best decision for the lanes in this order over all vectors; None: none serves more than floor.

        Vectors at which residents cannot be kept in time are left out.
        """
        problem, count = self.problem, len(self.problem.candidates)
        if len(vectors.gpu) == 0:
            return None
        limits = lane_limits(problem, lanes, vectors.memory)
        members = np.zeros((1, len(lanes), count), dtype=np.bool_)
        feasible = np.ones(1, dtype=np.bool_)
        # Vectors that agree in all lanes so far are one alternative: ``row`` is that of each vector.
        row = np.zeros(len(vectors.gpu), dtype=np.int64)
        for place, lane in enumerate(lanes):
            columns = (row, vectors.gpu[:, place], limits[:, place])
            distinct, row = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
            before = distinct[:, 0].astype(np.int64)
            members, feasible = members[before], feasible[before]
            available = np.logical_not(members.any(axis=1))
            gpu, memory = (np.array(distinct[:, column], dtype=float) for column in (1, 2))
            least = np.zeros(len(distinct), dtype=np.int64)
            if place == len(lanes) - 1:  # with fewer than this in the last lane the vector does not win
                least = np.maximum(0, floor + 1 - (count - available.sum(axis=1)))
            found = self._sub(lane).admit(Budgets(available, gpu, memory, least))
            members[:, place] = found.members
            feasible = feasible & found.feasible
        served = np.where(feasible, members.sum(axis=(1, 2)), -1)[row]
        best = int(np.argmax(served))
        if served[best] <= floor:
            return None
        chosen = tuple(
            replace(lane, gpu_share=float(gpu), memory_share=float(memory))
            for lane, gpu, memory in zip(lanes, vectors.gpu[best], vectors.memory[best], strict=True)
        )
        decision = complete(problem, chosen, tuple(members[row[best]]))
        return decision if len(decision.admitted) > floor else None

    def _sub(self, lane: Lane) -> SubProblem:
        if lane.lane_id not in self._subs:
            self._subs[lane.lane_id] = self.problem.lane_model.sub_problem(self.problem, lane)
        return self._subs[lane.lane_id]


def _bare(decision: Decision) -> tuple[Lane, ...]:
    return tuple(replace(lane, members=(), predicted_finish_s=None) for lane in decision.lanes)


def _rows(decision: Decision, count: int) -> ShareVectors:
    gpu, memory = ([getattr(lane, name) for lane in decision.lanes] for name in ("gpu_share", "memory_share"))
    return ShareVectors(np.tile(np.array(gpu), (count, 1)), np.tile(np.array(memory), (count, 1)))


def _pairs(gpu: float, memory: float, parts: FloatArray) -> ShareVectors:
    """Return all divisions of two shares among two lanes."""
    return crossed(*(np.column_stack((parts, 1.0 - parts)) * share for share in (gpu, memory)))


def _redivided(decision: Decision, first: int, second: int) -> ShareVectors:
    lanes = decision.lanes
    both = _pairs(
        lanes[first].gpu_share + lanes[second].gpu_share, lanes[first].memory_share + lanes[second].memory_share, _PARTS
    )
    vectors = _rows(decision, len(both.gpu))
    for old, two in ((vectors.gpu, both.gpu), (vectors.memory, both.memory)):
        old[:, first], old[:, second] = two[:, 0], two[:, 1]
    return vectors


def _in_force(problem: Problem, lanes: tuple[Lane, ...]) -> ShareVectors:
    """Return the shares in force as one vector; lanes that have none yet divide the rest equally."""
    space = room(problem, tuple(lane.lane_id for lane in lanes))
    before = [problem.lane_in_force(lane.lane_id) for lane in lanes]
    vectors = []
    for name, whole in (("gpu_share", space.gpu_share), ("memory_share", space.memory_share)):
        known = [0.0 if lane is None else getattr(lane, name) for lane in before]
        rest = max(0.0, whole - sum(known)) / max(1, before.count(None))
        vectors.append(np.array([[rest if lane is None else share for lane, share in zip(before, known, strict=True)]]))
    return ShareVectors(vectors[0], vectors[1])


def lane_choices(problem: Problem, count: int, kinds: tuple[Lane, ...]) -> Iterator[tuple[Lane, ...]]:
    """Yield all ways to choose ``count`` lanes, in the order of their kinds: those in force, and new ones of the kinds.

    ``kinds`` are empty lanes, one a mode; a new lane has the smallest free number that differs from its kind's by a
    multiple of the number of modes (2).
    """
    kept = [replace(lane, members=(), gpu_share=0.0, memory_share=0.0) for lane in problem.lanes]
    missing = count - len(kept)
    if missing < 0:
        return
    for of_first in range(missing, -1, -1) if len(kinds) > 1 else (missing,):
        chosen = list(kept)
        for kind, number in zip(kinds, (of_first, missing - of_first), strict=False):
            for _ in range(number):
                chosen.append(new_lane(kind, chosen))
        yield tuple(sorted(chosen, key=lambda lane: (lane.mode, lane.lane_id)))


def new_lane(kind: Lane, used: "list[Lane] | tuple[Lane, ...]") -> Lane:
    """Return an empty lane of a kind with a number that is free."""
    numbers = {lane.lane_id for lane in used}
    lane_id = kind.lane_id
    while lane_id in numbers:
        lane_id += 2
    return replace(kind, lane_id=lane_id)
