"""The two-stage enumeration for sub-problems of any kind, one array operation for many cells of the grid.

Steps of the paper's algorithm (Qu et al., arXiv 2608.05926, model.md §5): for every (z, λ) the first sub-problem over
all
users, the second over the users left, keep the best. `core.solver_kernel.best_pair` is the same for padded batches.
"""

import numpy as np

from balancesim.core.problem import Budgets, SubProblem
from balancesim.core.shares import PairGrid, PairSolution
from balancesim.units import BoolArray, FloatArray, IntArray

_CHUNKS = (1, 4, 16)  # cells looked at together: few while there is no good bound yet


def two_stage(subs: tuple[SubProblem, SubProblem], count: int, grid: PairGrid, floor: int) -> PairSolution | None:
    """Return the best cell that serves more than ``floor`` of ``count`` candidates, or None.

    Cells are looked at by falling bound |first over all| + |second over all|. With exact sub-problems this is the
    answer
    of a scan of all cells (most users, then the most preferred cell); with heuristic ones it may pass over a cell where
    the second lane does better on the rest than on all.
    """
    cells = [_flat(grid, lane) for lane in (0, 1)]
    everyone = np.ones((grid.order.size, count), dtype=np.bool_)
    least = np.zeros(grid.order.size, dtype=np.int64)
    over_all = [sub.admit(Budgets(everyone, *cell, least)) for sub, cell in zip(subs, cells, strict=True)]
    taken, order = over_all[0].members, grid.order.ravel()
    size = taken.sum(axis=1)
    bound = np.minimum(size + over_all[1].members.sum(axis=1), count)
    turn = np.flatnonzero(over_all[0].feasible & over_all[1].feasible)
    turn = turn[np.lexsort((order[turn], -bound[turn]))]
    best, place, found = floor, -1, None
    start = step = 0
    while start < len(turn) and bound[turn[start]] >= best:
        chunk = turn[start : start + _CHUNKS[min(step, len(_CHUNKS) - 1)]]
        start, step = start + len(chunk), step + 1
        least = best - size[chunk] + (order[chunk] > place)
        budgets = Budgets(~taken[chunk], cells[1][0][chunk], cells[1][1][chunk], least)
        second = subs[1].admit(budgets).members
        total = size[chunk] + second.sum(axis=1)
        row = int(np.lexsort((order[chunk], -total))[0])
        if total[row] > best or (total[row] == best and order[chunk[row]] < place):
            best, place = int(total[row]), int(order[chunk[row]])
            found = _solution(grid, int(chunk[row]), (taken[chunk[row]], second[row]))
    return found


def _flat(grid: PairGrid, lane: int) -> tuple[FloatArray, FloatArray]:
    rows, columns = grid.order.shape
    return np.repeat(grid.gpu[lane], columns), np.tile(grid.limits_bytes[lane], rows)


def _solution(grid: PairGrid, cell: int, members: tuple[BoolArray, BoolArray]) -> PairSolution:
    i, j = divmod(cell, grid.order.shape[1])
    return solution_at(grid, (i, j), members)


def solution_at(grid: PairGrid, cell: tuple[int, int], members: tuple[BoolArray, BoolArray]) -> PairSolution:
    """Return the solution of cell [i, j] with these members."""
    i, j = cell
    gpu, memory = ((float(axes[0][k]), float(axes[1][k])) for axes, k in ((grid.gpu, i), (grid.memory, j)))
    return PairSolution(int(members[0].sum() + members[1].sum()), gpu, memory, members)


def scan(subs: tuple[SubProblem, SubProblem], count: int, grid: PairGrid) -> tuple[int, IntArray]:
    """Return the most users served and the counts of all cells, by solving both stages everywhere: the obvious twin."""
    cells = [_flat(grid, lane) for lane in (0, 1)]
    everyone = np.ones((grid.order.size, count), dtype=np.bool_)
    none = np.zeros(grid.order.size, dtype=np.int64)
    first = subs[0].admit(Budgets(everyone, *cells[0], none))
    second = subs[1].admit(Budgets(~first.members, *cells[1], none))
    totals = np.where(first.feasible & second.feasible, first.members.sum(axis=1) + second.members.sum(axis=1), -1)
    return int(totals.max(initial=-1)), totals.reshape(grid.order.shape)
