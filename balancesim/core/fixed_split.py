"""Two lanes with fixed shares and fixed groups of users: only who is admitted is left to decide."""

from dataclasses import replace

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.problem import Budgets, Problem
from balancesim.core.shares import PairGrid, divided, in_force
from balancesim.core.solver import best_of, complete
from balancesim.units import BoolArray


def split_by_group(
    problem: Problem, lanes: tuple[Lane, Lane], groups: tuple[BoolArray, BoolArray], shares: tuple[float, float]
) -> Decision:
    """Return the decision that solves each lane's sub-problem over its own group of candidates, masks (K,).

    ``shares`` are the first lane's parts of GPU and memory, the second lane has the rest. Where these break a deadline
    that residents can still keep, the shares in force are taken instead; they are tried anyhow, and the decision that
    admits more wins. A lane that nobody uses leaves its shares to the other.
    """
    grids = [divided(problem, lanes, np.array([shares[0]]), np.array([shares[1]]))]
    now = in_force(problem, lanes)
    grids += [] if now is None else [now]
    return best_of(problem, [_at(problem, lanes, groups, grid) for grid in grids])


def _at(problem: Problem, lanes: tuple[Lane, Lane], groups: tuple[BoolArray, BoolArray], cell: PairGrid) -> Decision:
    members, chosen = [], []
    for place, (lane, group) in enumerate(zip(lanes, groups, strict=True)):
        least = np.zeros(1, dtype=np.int64)
        budgets = Budgets(group[None, :], cell.gpu[place], cell.limits_bytes[place], least)
        members.append(problem.lane_model.sub_problem(problem, lane).admit(budgets).members[0])
        gpu, memory = float(cell.gpu[place][0]), float(cell.memory[place][0])
        chosen.append(replace(lane, gpu_share=gpu, memory_share=memory))
    return complete(problem, tuple(chosen), tuple(members))
