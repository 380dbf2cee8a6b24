"""BALANCE by the second: the frozen decision that serves most requests per second of its own length."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.policies.balance import Balance
from balancesim.policies.best_single_mode import BestSingleMode


@dataclass(frozen=True, slots=True)
class BalanceRate:
    """BALANCE for a server that goes on: who arrives meanwhile waits for the end of the batches, so length counts."""

    name: ClassVar[str] = "balance_rate"

    length_ratio: float = 0.8  #: each decision tried is at most this part as long as the one before
    shortest: float = 0.1  #: decisions shorter than this part of BALANCE's are not tried
    share_step: float = 0.1  #: step of the grid of z and λ; 1/share_step must be a whole number
    draft_length: int | None = None  #: γ; None = the server's
    hybrid: bool = True  #: False = one mode a decision: the honest rival, which weighs the length as well

    def __post_init__(self) -> None:
        for field in ("length_ratio", "shortest"):
            value = getattr(self, field)
            if not 0 < value < 1:
                raise ValueError(f"{field} must be above 0 and below 1, got {value}")
        self._balance()

    def decide(self, problem: Problem) -> Decision:
        """Return the decision with the highest served/length, length = predicted time until its last answer.

        Renewal-reward view: with a queue that never empties, the long-run rate of served requests is that of one
        decision. For falling bounds H on the length BALANCE serves most within H (deadlines cut to H); the next H is
        ``length_ratio`` times the length found. If the best rate belongs to k requests in t seconds, some H lies in
        [t, t/length_ratio], where BALANCE serves at least k/2: the result has at least length_ratio/2 of the best rate.
        Ties go to the longer decision, which serves more. Where decisions are not frozen (continuous batching, fused
        passes) their length says nothing, and the answer is BALANCE's.
        """
        if not problem.lane_model.runs_to_end:
            return self._most(problem)
        return max(self._shorter_and_shorter(problem), key=_rate_hz)

    def _shorter_and_shorter(self, problem: Problem) -> Iterator[Decision]:
        users = problem.candidates
        decision = self._most(problem)
        yield decision
        longest = _length_s(decision)
        bound = longest * self.length_ratio
        while decision.admitted and bound > longest * self.shortest:
            hurried = replace(users, slack_s=np.minimum(users.slack_s, bound))
            decision = self._most(replace(problem, candidates=hurried))
            yield decision
            bound = min(_length_s(decision), bound) * self.length_ratio

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest GPU share of a lane: a switch must cost less than its window."""
        return self._balance().smallest_gpu_share if self.hybrid else 1.0

    def _balance(self) -> Balance:
        return Balance(share_step=self.share_step, refine=False, draft_length=self.draft_length)

    def _most(self, problem: Problem) -> Decision:
        inner = self._balance() if self.hybrid else BestSingleMode(self.draft_length)
        return inner.decide(problem)


def _length_s(decision: Decision) -> float:
    return max((lane.predicted_finish_s or 0.0 for lane in decision.lanes), default=0.0)


def _rate_hz(decision: Decision) -> float:
    length = _length_s(decision)
    return len(decision.admitted) / length if length > 0 else math.inf if decision.admitted else 0.0
