"""The obvious twin of every solver: try all assignments, ask `is_feasible`. For tests and small problems only."""

from collections.abc import Sequence
from itertools import product

from balancesim.core.decision import AD_LANE, SD_LANE, Decision, Lane
from balancesim.core.feasibility import is_feasible
from balancesim.core.problem import Problem
from balancesim.core.request import Mode

_LARGEST = 10


def exhaustive(problem: Problem, gpu_shares: Sequence[float], memory_shares: Sequence[float]) -> Decision:
    """Return a decision that serves most among all 3^K assignments (wait, AD, SD) and all pairs of shares.

    Beside the given (z, λ) each mode is tried alone with the whole GPU, as the optimum of P0 may (model.md §5). Ties
    go to
    the first found. Lanes that have residents must be those of AD (0) and SD (1); their shares in force are tried, too.

    Raises:
        ValueError: more than 10 candidates.
    """
    count = len(problem.candidates)
    if count > _LARGEST:
        raise ValueError(f"candidates must be at most {_LARGEST} for an exhaustive search, got {count}")
    ids = problem.candidates.request_id.tolist()
    best = Decision(tuple(problem.lanes))
    for assignment in sorted(product((None, Mode.AD, Mode.SD), repeat=count), key=lambda modes: modes.count(None)):
        if count - assignment.count(None) <= len(best.admitted):
            break
        members = {
            mode: tuple(request_id for request_id, chosen in zip(ids, assignment, strict=True) if chosen is mode)
            for mode in (Mode.AD, Mode.SD)
        }
        for shares in _share_choices(problem, members, list(product(gpu_shares, memory_shares))):
            decision = _decision(problem, members, shares)
            if is_feasible(problem, decision):
                best = decision
                break
    return best


def _share_choices(
    problem: Problem, members: dict[Mode, tuple[int, ...]], grid: list[tuple[float, float]]
) -> list[tuple[float, float, float, float]]:
    """Return (AD's GPU, SD's GPU, AD's memory, SD's memory) shares to try for these members."""
    force = [problem.lane_in_force(lane_id) for lane_id in (AD_LANE, SD_LANE)]
    used = [bool(members[mode]) or lane is not None for mode, lane in zip((Mode.AD, Mode.SD), force, strict=True)]
    if not all(used):
        return [(float(used[0]), float(used[1]), float(used[0]), float(used[1]))]
    shares = [(z, 1.0 - z, share, 1.0 - share) for z, share in grid]
    for kept, other in ((0, 1), (1, 0)):
        lane, beside = force[kept], force[other]
        if lane is not None:
            gpu, memory = [0.0, 0.0], [0.0, 0.0]
            gpu[kept], memory[kept] = lane.gpu_share, lane.memory_share
            gpu[other] = 1.0 - lane.gpu_share if beside is None else beside.gpu_share
            memory[other] = 1.0 - lane.memory_share if beside is None else beside.memory_share
            shares.append((gpu[0], gpu[1], memory[0], memory[1]))
    return shares


def _decision(
    problem: Problem, members: dict[Mode, tuple[int, ...]], shares: tuple[float, float, float, float]
) -> Decision:
    lanes = []
    for place, (mode, lane_id) in enumerate(((Mode.AD, AD_LANE), (Mode.SD, SD_LANE))):
        before = problem.lane_in_force(lane_id)
        if not members[mode] and before is None:
            continue
        gamma = 0 if mode is Mode.AD else problem.server.draft_length if before is None else before.draft_length
        lanes.append(Lane(lane_id, mode, shares[place], shares[2 + place], members[mode], gamma))
    return Decision(tuple(lanes))
