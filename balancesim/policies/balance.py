"""BALANCE: joint admission, mode and resource shares (Qu et al., arXiv 2608.05926; model.md §5)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.problem import Problem, SubProblem
from balancesim.core.solver import (
    PairSearch,
    PairShares,
    PairSolution,
    ShareGrid,
    best_of,
    complete,
    pair_shares,
    single,
)
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
        search = PairSearch(problem, lanes, subs)
        orders = (False, True) if self.both_orders else (False,)
        grid = ShareGrid.product(*(self._axis(fixed) for fixed in (self.gpu_share, self.memory_share)))
        shares = pair_shares(problem, lanes, grid)
        best = self._search(search, shares, orders)
        if best is not None and self.refine and best.served < len(problem.candidates):
            finer = self._search(search, self._around(best), orders)
            best = finer if finer is not None and finer.served > best.served else best
        if best is None:
            return []
        chosen = tuple(
            replace(lane, gpu_share=gpu, memory_share=memory)
            for lane, gpu, memory in zip(lanes, best.gpu_share, best.memory_share, strict=True)
        )
        return [complete(problem, chosen, best.members)]

    @staticmethod
    def _search(search: PairSearch, shares: PairShares, orders: tuple[bool, ...]) -> PairSolution | None:
        best: PairSolution | None = None
        for second_first in orders:
            found = search.best(shares, second_first=second_first, floor=best)
            best = found if found is not None else best
        return best

    def _axis(self, fixed: float | None) -> FloatArray:
        if fixed is not None:
            return np.array([fixed])
        parts = round(1.0 / self.share_step)
        return np.arange(1, parts) / parts

    def _around(self, best: PairSolution) -> PairShares:
        """Return a grid four times as fine around the best alternative, within the same room."""
        offsets = np.array([-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75]) * self.share_step
        gpu = offsets if self.gpu_share is None else np.zeros(1)
        memory = offsets if self.memory_share is None else np.zeros(1)
        dz, dm = (axis.ravel() for axis in np.meshgrid(gpu, memory, indexing="ij"))
        z, share = best.gpu_share[0] + dz, best.memory_share[0] + dm
        z_room, share_room = sum(best.gpu_share), sum(best.memory_share)
        inside = (z > 0) & (z < z_room) & (share >= 0) & (share <= share_room)
        z, share = z[inside], share[inside]
        return PairShares((z, z_room - z), (share, share_room - share))
