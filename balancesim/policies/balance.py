"""BALANCE: joint admission, mode and resource shares (Qu et al., arXiv 2608.05926; model.md §5)."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.decision import Decision
from balancesim.core.pair_search import PairSearch, best_two_lanes
from balancesim.core.problem import Problem
from balancesim.core.solver import best_of, single
from balancesim.policies.lanes import ad_lane, check_draft_length, has_draft, sd_lane


@dataclass(frozen=True, slots=True)
class Balance:
    """BALANCE: AD and SD lanes side by side, GPU and memory shares by enumeration, exact sub-problems in turn."""

    name: ClassVar[str] = "balance"

    share_step: float = 0.1  #: step of the grid of z and λ; 1/share_step must be a whole number
    both_orders: bool = True  #: also solve SD before AD; False = AD first, as published
    single_modes: bool = (
        True  #: also try AD alone and SD alone with the whole GPU (needed for the half-of-optimum bound)
    )
    refine: bool = True  #: then search z four times as finely at the best λ, and λ at the best z
    gpu_share: float | None = None  #: fixed z: the paper's ablation ECRA is 0.5
    memory_share: float | None = None  #: fixed λ: EMA is 0.5; both fixed: ECRMA
    draft_length: int | None = None  #: γ; None = the server's

    def __post_init__(self) -> None:
        self._search()
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the best of: AD then SD and SD then AD over the grid of (z, λ), AD alone, SD alone.

        Serves at least half of the optimum over the same grid (model.md §5), and at least as many as `ad_only` and
        `sd_only`, whose decisions are among those compared. Ties: smallest sum of predicted completion times.
        """
        first = ad_lane()
        if not has_draft(problem):
            return best_of(problem, [single(problem, first, problem.lane_model.sub_problem(problem, first))])
        lanes = (first, sd_lane(problem, self.draft_length))
        return best_two_lanes(problem, lanes, self._search(), alone=self.single_modes)

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest GPU share of a lane: a switch must cost less than its window."""
        return self._search().smallest_gpu_share

    def _search(self) -> PairSearch:
        return PairSearch(self.share_step, self.both_orders, self.refine, self.gpu_share, self.memory_share)
