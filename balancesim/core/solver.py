"""BALANCE's enumeration (Qu et al., arXiv 2608.05926, model.md §5): shares of two lanes, each lane's sub-problem in turn.

Paper's steps, and where they are:
1. for every candidate (z, λ): `ShareGrid`, `best_pair`
2. the first sub-problem over all users: ``sub.admit`` of the lane model (`core.solver_static`, `core.solver_continuous`)
3. the second sub-problem over the users left
4. keep the best: most users served; ties go to the shares that come first in the grid

Nothing here knows the discipline or the modes: the two lanes may be AD and SD, or two of one mode.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.memory import speculates
from balancesim.core.problem import Budgets, Problem, SubProblem
from balancesim.units import BoolArray, FloatArray, IntArray

_CHUNKS = (1, 4, 16)  # alternatives looked at together: few while there is no good bound yet


@dataclass(frozen=True, slots=True)
class Room:
    """What lanes that a policy does not steer leave of GPU and memory: they keep their shares while they have residents."""

    others: tuple[Lane, ...]
    gpu_share: float
    memory_share: float


def room(problem: Problem, steered: tuple[int, ...]) -> Room:
    """Return the room for the lanes with these numbers."""
    others = tuple(replace(lane, members=()) for lane in problem.lanes if lane.lane_id not in steered)
    gpu = 1.0 - math.fsum(lane.gpu_share for lane in others)
    memory = 1.0 - math.fsum(lane.memory_share for lane in others)
    return Room(others, max(0.0, gpu), max(0.0, memory))


@dataclass(frozen=True)
class ShareGrid:
    """Alternatives (z, λ) of the first lane, as parts of the room; the second lane has the rest. Earlier ones win ties."""

    gpu_share: FloatArray
    memory_share: FloatArray

    @classmethod
    def product(cls, gpu_shares: FloatArray, memory_shares: FloatArray) -> "ShareGrid":
        """Return all pairs, those nearest to equal shares first (then by z, by λ)."""
        z, share = (axis.ravel() for axis in np.meshgrid(gpu_shares, memory_shares, indexing="ij"))
        distance = np.round(np.abs(z - 0.5) + np.abs(share - 0.5), 9)
        order = np.lexsort((share, z, distance))
        return cls(z[order], share[order])


@dataclass(frozen=True)
class PairShares:
    """Shares of two lanes for G alternatives, of the whole GPU and of the memory free for KV caches."""

    gpu: tuple[FloatArray, FloatArray]
    memory: tuple[FloatArray, FloatArray]

    def swapped(self) -> "PairShares":
        """Return the same alternatives with the lanes in the other order."""
        return PairShares(self.gpu[::-1], self.memory[::-1])


def pair_shares(problem: Problem, lanes: tuple[Lane, Lane], grid: ShareGrid) -> PairShares:
    """Return the grid in the room of these lanes, and the shares in force when they have residents."""
    space = room(problem, (lanes[0].lane_id, lanes[1].lane_id))
    z, share = grid.gpu_share * space.gpu_share, grid.memory_share * space.memory_share
    gpu, memory = (z, space.gpu_share - z), (share, space.memory_share - share)
    before = [problem.lane_in_force(lane.lane_id) for lane in lanes]
    if before[0] is None and before[1] is None:
        return PairShares(gpu, memory)
    now_gpu = _in_force([None if lane is None else lane.gpu_share for lane in before], space.gpu_share)
    now_memory = _in_force([None if lane is None else lane.memory_share for lane in before], space.memory_share)
    return PairShares(
        (np.append(gpu[0], now_gpu[0]), np.append(gpu[1], now_gpu[1])),
        (np.append(memory[0], now_memory[0]), np.append(memory[1], now_memory[1])),
    )


def _in_force(shares: list[float | None], whole: float) -> tuple[float, float]:
    first, second = shares
    if first is None and second is not None:
        return max(0.0, whole - second), second
    if second is None and first is not None:
        return first, max(0.0, whole - first)
    assert first is not None
    assert second is not None
    return first, second


@dataclass(frozen=True)
class PairSolution:
    """The best alternative found for two lanes; members as masks over the candidates, in the order of the lanes given."""

    served: int
    index: int
    members: tuple[BoolArray, BoolArray]
    gpu_share: tuple[float, float]
    memory_share: tuple[float, float]


def free_for(problem: Problem, lanes: tuple[Lane, ...]) -> float:
    """Return the KV memory when these lanes may be used: W_S is taken off if any of them, or a resident, speculates."""
    drafts = problem.uses_sd or any(speculates(lane.mode, lane.draft_length) for lane in lanes)
    return problem.server.free_bytes(uses_sd=drafts)


class PairSearch:
    """Steps 1 to 4 for two lanes; sub-problems and first-stage answers are kept for both orders."""

    def __init__(self, problem: Problem, lanes: tuple[Lane, Lane], subs: tuple[SubProblem, SubProblem]) -> None:
        self._count = len(problem.candidates)
        self._subs = subs
        self._free = max(0.0, free_for(problem, lanes))
        self._left = [self._free - problem.held_elsewhere_bytes(lane.lane_id) for lane in lanes]

    def best(self, shares: PairShares, *, second_first: bool, floor: PairSolution | None = None) -> PairSolution | None:
        """Return the best alternative in one order of the sub-problems; None if residents can be kept in none.

        Rows are looked at by the bound |first over all| + |second over all|; with exact sub-problems the answer is that
        of a plain scan: most users, then the first row of the grid. ``floor`` stops the search where no more than that
        can be reached.
        """
        first, second = (1, 0) if second_first else (0, 1)
        everyone = np.ones((len(shares.gpu[0]), self._count), dtype=np.bool_)
        none = np.zeros(len(everyone), dtype=np.int64)
        memory = [np.minimum(shares.memory[k] * self._free, self._left[k]) for k in (0, 1)]
        stage = [self._subs[k].admit(Budgets(everyone, shares.gpu[k], memory[k], none)) for k in (0, 1)]
        taken = stage[first].members
        size = taken.sum(axis=1)
        bound = np.minimum(size + stage[second].members.sum(axis=1), self._count)
        rows = np.flatnonzero(stage[0].feasible & stage[1].feasible)
        rows = rows[np.lexsort((rows, -bound[rows]))]
        best = _Best(-1 if floor is None else floor.served, -1)
        start = turn = 0
        while start < len(rows):
            chunk = rows[start : start + _CHUNKS[min(turn, len(_CHUNKS) - 1)]]
            start, turn = start + len(chunk), turn + 1
            if bound[chunk[0]] < best.served:
                break
            chunk = chunk[(bound[chunk] > best.served) | ((bound[chunk] == best.served) & (chunk < best.index))]
            if len(chunk):
                least = best.served - size[chunk] + (chunk > best.index)
                budgets = Budgets(~taken[chunk], shares.gpu[second][chunk], memory[second][chunk], least)
                best.update(chunk, taken[chunk], self._subs[second].admit(budgets).members)
        if best.members is None:
            return None
        members = best.members[::-1] if second_first else best.members
        i = best.index
        gpu, parts = ((float(x[0][i]), float(x[1][i])) for x in (shares.gpu, shares.memory))
        return PairSolution(best.served, i, members, gpu, parts)


@dataclass(slots=True)
class _Best:
    """Most users served, and the first row of the grid that serves them."""

    served: int
    index: int
    members: tuple[BoolArray, BoolArray] | None = None

    def update(self, rows: IntArray, first: BoolArray, second: BoolArray) -> None:
        """Take in some rows with the members of both stages."""
        total = first.sum(axis=1) + second.sum(axis=1)
        place = int(np.lexsort((rows, -total))[0])
        row, served = int(rows[place]), int(total[place])
        if served > self.served or (served == self.served and row < self.index):
            self.served, self.index = served, row
            self.members = (first[place], second[place])


def single(problem: Problem, lane: Lane, sub: SubProblem) -> Decision:
    """Return the decision that admits into one lane only, with all the room and its own free memory."""
    space = room(problem, (lane.lane_id,))
    free = max(0.0, free_for(problem, (lane,)))
    everyone = np.ones((1, len(problem.candidates)), dtype=np.bool_)
    memory = min(space.memory_share * free, free - problem.held_elsewhere_bytes(lane.lane_id))
    budgets = Budgets(everyone, np.array([space.gpu_share]), np.array([memory]), np.zeros(1, dtype=np.int64))
    members = sub.admit(budgets).members[0]
    chosen = replace(lane, gpu_share=space.gpu_share, memory_share=space.memory_share)
    return complete(problem, (chosen,), (members,))


def complete(problem: Problem, lanes: tuple[Lane, ...], members: tuple[BoolArray, ...]) -> Decision:
    """Return the decision with these new members: lanes in use and those of others, with predictions.

    The share of a lane of the policy that stays empty goes to its other lanes, in proportion to their shares.
    """
    steered = tuple(lane.lane_id for lane in lanes)
    space = room(problem, steered)
    ids = problem.candidates.request_id
    used = [
        replace(lane, members=tuple(ids[mask].tolist()))
        for lane, mask in zip(lanes, members, strict=True)
        if mask.any() or problem.lane_in_force(lane.lane_id) is not None
    ]
    gpu, memory = (math.fsum(getattr(lane, name) for lane in used) for name in ("gpu_share", "memory_share"))
    if gpu > 0 and len(used) < len(lanes):
        used = [
            replace(
                lane,
                gpu_share=lane.gpu_share / gpu * space.gpu_share,
                memory_share=lane.memory_share / memory * space.memory_share if memory > 0 else space.memory_share,
            )
            for lane in used
        ]
    return settle(problem, Decision((*used, *space.others)))


def settle(problem: Problem, decision: Decision) -> Decision:
    """Write predictions into a decision, and drop new members until every deadline holds in the lane model itself.

    Sub-problems are solved on the same prediction, so that nothing is dropped unless a heuristic summed differently.
    """
    lanes = []
    for chosen in decision.lanes:
        lane = chosen
        prediction = problem.lane_model.predict(problem, lane)
        while lane.members and prediction.late.any():
            margin = (prediction.slack_s - prediction.finish_s)[: len(lane.members)]
            worst = int(np.argmin(margin)) if prediction.late[: len(lane.members)].any() else len(lane.members) - 1
            lane = replace(lane, members=lane.members[:worst] + lane.members[worst + 1 :])
            prediction = problem.lane_model.predict(problem, lane)
        finish = prediction.finish_s[: len(lane.members)]
        lanes.append(replace(lane, predicted_finish_s=float(finish.max()) if len(finish) else None))
    kept = [lane for lane in lanes if lane.members or problem.lane_in_force(lane.lane_id) is not None]
    if any(lane.gpu_share <= 0 for lane in kept):
        return unchanged(problem)
    return replace(decision, lanes=tuple(kept))


def unchanged(problem: Problem) -> Decision:
    """Return the decision that admits nobody and leaves the lanes with residents as they are."""
    return Decision(tuple(replace(lane, members=(), predicted_finish_s=None) for lane in problem.lanes))


def best_of(problem: Problem, decisions: list[Decision]) -> Decision:
    """Return the decision that serves most; ties go to the smallest sum of predicted completion times, then the first.

    Decisions that break a resident's deadline are left out; if all do, nobody is admitted and nothing changes.
    """
    best, best_key = unchanged(problem), (0, math.inf)
    for decision in decisions:
        predictions = [problem.lane_model.predict(problem, lane) for lane in decision.lanes]
        if any(prediction.late.any() for prediction in predictions):
            continue
        pairs = zip(decision.lanes, predictions, strict=True)
        finish_s = math.fsum(float(p.finish_s[: len(lane.members)].sum()) for lane, p in pairs)
        key = (-len(decision.admitted), finish_s)
        if key < best_key:
            best, best_key = decision, key
    return best
