"""BALANCE: joint admission, mode and resource shares (Qu et al., arXiv 2608.05926; model.md §5)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.problem import Problem, SubProblem
from balancesim.core.shares import PairSolution, divided, in_force, pair_grid
from balancesim.core.solver import best_of, best_pair, complete, single
from balancesim.policies.lanes import ad_lane, check_draft_length, has_draft, sd_lane
from balancesim.units import FloatArray


@dataclass(frozen=True, slots=True)
class Balance:
    """BALANCE: AD and SD lanes side by side, GPU and memory shares by enumeration, exact sub-problems in turn."""

    name: ClassVar[str] = "balance"

    share_step: float = 0.1  #: step of the grid of z and λ; 1/share_step must be a whole number
    both_orders: bool = True  #: also solve SD before AD; False = AD first, as published
    single_modes: bool = (
        True  #: also try AD alone and SD alone with the whole GPU (needed for the half-of-optimum bound)
    )
    refine: bool = True  #: search a finer grid around the best (z, λ)
    gpu_share: float | None = None  #: fixed z: the paper's ablation ECRA is 0.5
    memory_share: float | None = None  #: fixed λ: EMA is 0.5; both fixed: ECRMA
    draft_length: int | None = None  #: γ; None = the server's

    def __post_init__(self) -> None:
        parts = 1.0 / self.share_step if self.share_step > 0 else 0.0
        if not 2 <= round(parts) <= 100 or abs(parts - round(parts)) > 1e-6:
            raise ValueError(f"share_step must be 1/2, 1/3, … or 1/100, got {self.share_step}; try 0.1")
        for field in ("gpu_share", "memory_share"):
            value = getattr(self, field)
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{field} must be above 0 and below 1, got {value}; leave it out to optimise it")
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the best of: AD then SD and SD then AD over the grid of (z, λ), AD alone, SD alone.

        Serves at least half of the optimum over the same grid (model.md §5), and at least as many as `ad_only` and
        `sd_only`, whose decisions are among those compared. Ties: smallest sum of predicted completion times.
        """
        first = ad_lane()
        first_sub = problem.lane_model.sub_problem(problem, first)
        if not has_draft(problem):
            return best_of(problem, [single(problem, first, first_sub)])
        second = sd_lane(problem, self.draft_length)
        subs = (first_sub, problem.lane_model.sub_problem(problem, second))
        alone = [single(problem, lane, sub) for lane, sub in zip((first, second), subs, strict=True)]
        found = alone if self.single_modes else []
        if not any(len(decision.admitted) == len(problem.candidates) for decision in found):
            found = [*found, *self._pairs(problem, (first, second), subs)]
        return best_of(problem, found)

    def _pairs(self, problem: Problem, lanes: tuple[Lane, Lane], subs: tuple[SubProblem, SubProblem]) -> list[Decision]:
        """Return the best decision over the grid, over the shares in force, and over a finer grid around the better."""
        grids = [divided(problem, lanes, self._axis(self.gpu_share), self._axis(self.memory_share))]
        now = in_force(problem, lanes)
        grids += [] if now is None else [now]
        best: PairSolution | None = None
        for grid in grids:
            found = best_pair(subs, grid, both_orders=self.both_orders, floor=-1 if best is None else best.served)
            best = best if found is None else found
        if best is None:
            return []
        if self.refine and best.served < len(problem.candidates):
            finer = pair_grid(problem, lanes, *self._around(best))
            found = best_pair(subs, finer, both_orders=self.both_orders, floor=best.served)
            best = best if found is None else found
        chosen = tuple(
            replace(lane, gpu_share=gpu, memory_share=memory)
            for lane, gpu, memory in zip(lanes, best.gpu_share, best.memory_share, strict=True)
        )
        return [complete(problem, chosen, best.members)]

    def _axis(self, fixed: float | None) -> FloatArray:
        if fixed is not None:
            return np.array([fixed])
        parts = round(1.0 / self.share_step)
        return np.arange(1, parts) / parts

    def _around(self, best: PairSolution) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        """Return axes four times as fine around the best cell, within the same room."""
        offsets = np.array([-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75]) * self.share_step
        axes = []
        for shares, fixed in ((best.gpu_share, self.gpu_share), (best.memory_share, self.memory_share)):
            first = shares[0] + (offsets if fixed is None else np.zeros(1))
            whole = sum(shares)
            first = first[(first > 0) & (first < whole)]
            axes.append((first, whole - first) if len(first) else (np.array([shares[0]]), np.array([shares[1]])))
        return axes[0], axes[1]
