"""The exact optimum of problem P0 (model.md §5), and the same with the truth in hand."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.decision import Decision
from balancesim.core.optimum import Optimum
from balancesim.core.problem import Problem

_METHODS = ("two_colour", "integer_program", "exhaustive")


@dataclass(frozen=True, slots=True)
class Optimal:
    """Most requests in time with one AD and one SD batch over all shares z and λ, for padded batches: exact."""

    name: ClassVar[str] = "optimal"
    disciplines: ClassVar[tuple[str, ...]] = ("static",)

    method: str = "two_colour"  #: or "integer_program" (HiGHS), or "exhaustive" (K at most 20)
    node_limit: int = 1_000_000  #: of the search; beyond it the best decision found is taken

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(_METHODS)}, got {self.method!r}")
        if self.node_limit < 1:
            raise ValueError(f"node_limit must be at least 1, got {self.node_limit}")

    def decide(self, problem: Problem) -> Decision:
        """Return an optimum over continuous shares; with what the policy is told of lengths and acceptance.

        Raises:
            ValueError: the problem is not one of padded batches.
        """
        return self.solve(problem).decision

    def solve(self, problem: Problem) -> Optimum:
        """Return the decision with what is proved about it."""
        if self.method == "exhaustive":
            from balancesim.core.optimum_exhaustive import exhaustive_optimum

            return exhaustive_optimum(problem)
        if self.method == "integer_program":
            from balancesim.core.optimum_milp import integer_program  # scipy: not needed otherwise

            return integer_program(problem, self.node_limit)
        from balancesim.core.optimum_two_colour import two_colour  # compiled

        return two_colour(problem, node_limit=self.node_limit)
