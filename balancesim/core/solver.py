"""Decisions of BALANCE's family from sub-problems (Qu et al., arXiv 2608.05926, model.md §5).

Paper's steps, and where they are:
1. for every candidate (z, λ): `best_pair`, cells of `core.shares.PairGrid`
2. the first sub-problem over all users: ``SubProblem.admit`` (`core.solver_static`, `core.solver_continuous`)
3. the second sub-problem over the users left, the best cell kept: ``SubProblem.pair``

Nothing here knows the discipline or the modes: the two lanes may be AD and SD, or two of one mode.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.problem import Budgets, Problem, SubProblem
from balancesim.core.shares import PairGrid, PairSolution, free_for, room
from balancesim.units import BoolArray


def best_pair(
    subs: tuple[SubProblem, SubProblem], grid: PairGrid, *, both_orders: bool, floor: int = -1
) -> PairSolution | None:
    """Return the best cell of a grid; with ``both_orders`` the second lane is also solved first. None: none > floor."""
    best = subs[0].pair(subs[1], grid, floor)
    if both_orders:
        other = subs[1].pair(subs[0], grid.swapped, floor if best is None else best.served)
        best = best if other is None else other.swapped
    return best


@dataclass(frozen=True, slots=True)
class Proposal:
    """Lanes with shares and their new members as masks over the candidates; a decision once `complete` has seen it."""

    lanes: tuple[Lane, ...]
    members: tuple[BoolArray, ...]

    @property
    def served(self) -> int:
        """New members; a decision made of it has no more."""
        return sum(int(mask.sum()) for mask in self.members)


def alone(problem: Problem, lane: Lane, sub: SubProblem) -> Proposal:
    """Return the proposal that admits into one lane only, with all the room and its own free memory."""
    space = room(problem, (lane.lane_id,))
    free = free_for(problem, (lane,))
    everyone = np.ones((1, len(problem.candidates)), dtype=np.bool_)
    memory = min(space.memory_share * free, free - problem.held_elsewhere_bytes(lane.lane_id))
    budgets = Budgets(everyone, np.array([space.gpu_share]), np.array([memory]), np.zeros(1, dtype=np.int64))
    members = sub.admit(budgets).members[0]
    return Proposal((replace(lane, gpu_share=space.gpu_share, memory_share=space.memory_share),), (members,))


def single(problem: Problem, lane: Lane, sub: SubProblem) -> Decision:
    """Return the decision that admits into one lane only, with all the room and its own free memory."""
    proposal = alone(problem, lane, sub)
    return complete(problem, proposal.lanes, proposal.members)


def complete(problem: Problem, lanes: tuple[Lane, ...], members: tuple[BoolArray, ...]) -> Decision:
    """Return the decision with these new members: lanes in use and those of others, with predictions.

    The shares of a lane of the policy that stays empty go to its other lanes, in proportion to theirs.
    """
    space = room(problem, tuple(lane.lane_id for lane in lanes))
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
        prediction = problem.predict(lane)
        while lane.members and prediction.late.any():
            margin = (prediction.slack_s - prediction.finish_s)[: len(lane.members)]
            worst = int(np.argmin(margin)) if prediction.late[: len(lane.members)].any() else len(lane.members) - 1
            lane = replace(lane, members=lane.members[:worst] + lane.members[worst + 1 :])
            prediction = problem.predict(lane)
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
        predictions = [problem.predict(lane) for lane in decision.lanes]
        if any(prediction.late.any() for prediction in predictions):
            continue
        pairs = zip(decision.lanes, predictions, strict=True)
        finish_s = math.fsum(float(p.finish_s[: len(lane.members)].sum()) for lane, p in pairs)
        key = (-len(decision.admitted), finish_s)
        if key < best_key:
            best, best_key = decision, key
    return best


def best_proposal(problem: Problem, proposals: list[Proposal]) -> Decision:
    """Return the decision that `best_of` prefers; proposals that cannot serve as many are not completed."""
    found: list[Decision] = []
    for proposal in sorted(proposals, key=lambda proposal: -proposal.served):
        if found and proposal.served < len(found[0].admitted):
            break
        decision = best_of(problem, [*found, complete(problem, proposal.lanes, proposal.members)])
        found = [decision] if decision.admitted else []
    return found[0] if found else unchanged(problem)
