"""Two SD batches side by side: what a second batch brings without a second mode."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.decision import Decision
from balancesim.core.pair_search import PairSearch, best_two_lanes
from balancesim.core.problem import Problem
from balancesim.core.request import Mode
from balancesim.policies.lanes import check_draft_length, lane_number, sd_lane


@dataclass(frozen=True, slots=True)
class SdTwoBatches:
    """Two speculative batches that share GPU and memory, solved as BALANCE does; both use one draft model."""

    name: ClassVar[str] = "sd_two_batches"

    share_step: float = 0.1  #: step of the grid of both shares; 1/share_step must be a whole number
    refine: bool = True  #: then search z four times as finely at the best λ, and λ at the best z
    gpu_share: float | None = None  #: fixed GPU share of the first batch
    memory_share: float | None = None  #: fixed memory share of the first batch
    draft_length: int | None = None  #: γ of both; None = the server's

    def __post_init__(self) -> None:
        self._search()
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the best of one batch with the whole GPU and of two over the grid of shares, in both orders.

        At least as many as `sd_only`, and at least half of the most that two SD batches can serve over the same grid.

        Raises:
            ValueError: the server has no draft model.
        """
        gamma = self.draft_length
        lanes = (sd_lane(problem, gamma), sd_lane(problem, gamma, lane_number(Mode.SD, 1)))
        return best_two_lanes(problem, lanes, self._search())

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest GPU share of a lane: a switch must cost less than its window."""
        return self._search().smallest_gpu_share

    def _search(self) -> PairSearch:
        return PairSearch(self.share_step, True, self.refine, self.gpu_share, self.memory_share)
