"""The exact optimum that knows the true lengths and acceptance rates: a bound on what better prediction can bring."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.policies.optimal import Optimal


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """`optimal` with true lengths and acceptance rates in its problems (never the draws, never later arrivals)."""

    name: ClassVar[str] = "clairvoyant"
    disciplines: ClassVar[tuple[str, ...]] = ("static",)
    sees_truth: ClassVar[bool] = True  #: the world tells it the truth where it tells others predictions

    node_limit: int = 1_000_000  #: of the search; beyond it the best decision found is taken

    def __post_init__(self) -> None:
        Optimal(node_limit=self.node_limit)

    def decide(self, problem: Problem) -> Decision:
        """Return an optimum over continuous shares."""
        return Optimal(node_limit=self.node_limit).decide(problem)
