"""SD only: the best batch of speculative decoding on the whole GPU."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.core.solver import best_of, single
from balancesim.policies.lanes import ONE_LANE, check_draft_length, sd_lane


@dataclass(frozen=True, slots=True)
class SdOnly:
    """Speculative decoding only: whole GPU, both models in memory, the sub-problem solved as BALANCE does."""

    name: ClassVar[str] = "sd_only"
    disciplines: ClassVar[tuple[str, ...]] = ONE_LANE

    draft_length: int | None = None  #: γ; None = the server's

    def __post_init__(self) -> None:
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the SD lane with the most candidates in time (baseline of [P1], model.md §5).

        Raises:
            ValueError: the server has no draft model.
        """
        lane = sd_lane(problem, self.draft_length)
        return best_of(problem, [single(problem, lane, problem.lane_model.sub_problem(problem, lane))])
