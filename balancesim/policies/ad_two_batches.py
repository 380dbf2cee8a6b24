"""Two AD batches side by side: what a second batch brings without a second mode."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.decision import Decision
from balancesim.core.pair_search import PairSearch, best_two_lanes
from balancesim.core.problem import Problem
from balancesim.core.request import Mode
from balancesim.policies.lanes import ad_lane, lane_number


@dataclass(frozen=True, slots=True)
class AdTwoBatches:
    """Two autoregressive batches that share GPU and memory, solved as BALANCE does; no draft model in memory."""

    name: ClassVar[str] = "ad_two_batches"

    share_step: float = 0.1  #: step of the grid of both shares; 1/share_step must be a whole number
    refine: bool = True  #: then search z four times as finely at the best λ, and λ at the best z
    gpu_share: float | None = None  #: fixed GPU share of the first batch
    memory_share: float | None = None  #: fixed memory share of the first batch

    def __post_init__(self) -> None:
        self._search()

    def decide(self, problem: Problem) -> Decision:
        """Return the best of one batch with the whole GPU and of two over the grid of shares, in both orders.

        At least as many as `ad_only`, and at least half of the most that two AD batches can serve over the same grid.
        """
        lanes = (ad_lane(), ad_lane(lane_number(Mode.AD, 1)))
        return best_two_lanes(problem, lanes, self._search())

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest GPU share of a lane: a switch must cost less than its window."""
        return self._search().smallest_gpu_share

    def _search(self) -> PairSearch:
        return PairSearch(self.share_step, True, self.refine, self.gpu_share, self.memory_share)
