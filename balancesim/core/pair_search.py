"""The search over shares of two lanes (Qu et al., arXiv 2608.05926, step 1; model.md §5), whatever their modes.

`policies.balance` runs it for AD beside SD, `policies.ad_two_batches` and `policies.sd_two_batches` for two lanes of
one mode. Among what is compared is each lane alone with all the room, so that two lanes never serve fewer than one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.problem import Problem, SubProblem
from balancesim.core.shares import PairSolution, divided, in_force, pair_grid
from balancesim.core.solver import Proposal, best_pair, best_proposal
from balancesim.core.solver import alone as one_alone
from balancesim.units import FloatArray

#: Shares of both lanes to try, given the best solution so far.
_Axis = Callable[[PairSolution], tuple[FloatArray, FloatArray]]

_FINER = 4  #: the refinement's steps in one step of the grid


@dataclass(frozen=True, slots=True)
class PairSearch:
    """Which shares of two lanes are tried, and in which orders."""

    share_step: float = 0.1  #: step of the grid of z and λ; 1/share_step must be a whole number
    both_orders: bool = True  #: also solve the second lane first
    refine: bool = True  #: then search z four times as finely at the best λ, and λ at the best z
    gpu_share: float | None = None  #: fixed z
    memory_share: float | None = None  #: fixed λ

    def __post_init__(self) -> None:
        check_share_step("share_step", self.share_step)
        check_share("gpu_share", self.gpu_share)
        check_share("memory_share", self.memory_share)

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest share that a lane may be given (of the room): no window of the GPU is shorter."""
        if self.gpu_share is not None:
            return min(self.gpu_share, 1.0 - self.gpu_share)
        return self.share_step / 4 if self.refine else self.share_step

    def gpu_axis(self) -> FloatArray:
        """Return the parts of the GPU that the first lane is given."""
        return _axis(self.share_step, self.gpu_share)

    def memory_axis(self) -> FloatArray:
        """Return the parts of the memory that the first lane is given."""
        return _axis(self.share_step, self.memory_share)


def check_share_step(field: str, step: float) -> None:
    """Check a step of a grid of shares."""
    parts = 1.0 / step if step > 0 else 0.0
    if not 2 <= round(parts) <= 100 or abs(parts - round(parts)) > 1e-6:
        raise ValueError(f"{field} must be 1/2, 1/3, … or 1/100, got {step}; try 0.1")


def check_share(field: str, share: float | None) -> None:
    """Check an option that fixes a share; None = it is optimised."""
    if share is not None and not 0 < share < 1:
        raise ValueError(f"{field} must be above 0 and below 1, got {share}; leave it out to optimise it")


def _axis(step: float, fixed: float | None) -> FloatArray:
    if fixed is not None:
        return np.array([fixed])
    parts = round(1.0 / step)
    return np.arange(1, parts) / parts


def best_two_lanes(problem: Problem, lanes: tuple[Lane, Lane], search: PairSearch, *, alone: bool = True) -> Decision:
    """Return the best of: each lane alone (with ``alone``), and both side by side over the grid of shares.

    Serves at least half of the optimum over the same grid (docs/algorithms.md). Ties: smallest sum of predicted
    completion times.
    """
    subs = tuple(problem.lane_model.sub_problem(problem, lane) for lane in lanes)
    found = [one_alone(problem, lane, sub) for lane, sub in zip(lanes, subs, strict=True)] if alone else []
    if any(proposal.served == len(problem.candidates) for proposal in found):
        decision = best_proposal(problem, found)
        if len(decision.admitted) == len(problem.candidates):
            return decision
    return best_proposal(problem, [*found, *_side_by_side(problem, lanes, (subs[0], subs[1]), search)])


def _side_by_side(
    problem: Problem, lanes: tuple[Lane, Lane], subs: tuple[SubProblem, SubProblem], search: PairSearch
) -> list[Proposal]:
    """Return the best proposal over the grid, over the shares in force, and over finer axes through the better."""
    grids = [divided(problem, lanes, search.gpu_axis(), search.memory_axis())]
    now = in_force(problem, lanes)
    grids += [] if now is None else [now]
    best: PairSolution | None = None
    for grid in grids:
        floor = -1 if best is None else best.served
        found = best_pair(subs, grid, both_orders=search.both_orders, floor=floor)
        best = best if found is None else found
    if best is None:
        return []
    for axes in _finer(search):
        if best.served < len(problem.candidates):
            finer = pair_grid(problem, lanes, *(axis(best) for axis in axes))
            found = best_pair(subs, finer, both_orders=search.both_orders, floor=best.served)
            best = best if found is None else found
    chosen = tuple(
        replace(lane, gpu_share=gpu, memory_share=memory)
        for lane, gpu, memory in zip(lanes, best.gpu_share, best.memory_share, strict=True)
    )
    return [Proposal(chosen, best.members)]


def _finer(search: PairSearch) -> list[tuple[_Axis, _Axis]]:
    """Return the refinements in turn, as axes of GPU and memory shares that depend on the best solution so far."""
    if not search.refine:
        return []

    def kept(shares: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
        return np.array([shares[0]]), np.array([shares[1]])

    def divided_finely(shares: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
        parts = _FINER * round(1.0 / search.share_step)
        first = np.arange(1, parts) / parts * sum(shares)
        return first, sum(shares) - first

    turns: list[tuple[_Axis, _Axis]] = []
    if search.gpu_share is None:
        turns.append((lambda best: divided_finely(best.gpu_share), lambda best: kept(best.memory_share)))
    if search.memory_share is None:
        turns.append((lambda best: kept(best.gpu_share), lambda best: divided_finely(best.memory_share)))
    return turns
