"""AD only: the best batch of autoregressive decoding on the whole GPU."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.core.solver import best_of, single
from balancesim.policies.lanes import ONE_LANE, ad_lane


@dataclass(frozen=True, slots=True)
class AdOnly:
    """Autoregressive decoding only: whole GPU, no draft model in memory, the sub-problem solved as BALANCE does."""

    name: ClassVar[str] = "ad_only"
    disciplines: ClassVar[tuple[str, ...]] = ONE_LANE

    def decide(self, problem: Problem) -> Decision:
        """Return the AD lane with the most candidates in time (baseline of [P1], model.md §5)."""
        lane = ad_lane()
        return best_of(problem, [single(problem, lane, problem.lane_model.sub_problem(problem, lane))])
