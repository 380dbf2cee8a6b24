"""Goodput: speculate as far as it pays at every step, for the batch there is."""

from dataclasses import dataclass, replace
from typing import ClassVar

from balancesim.core.decision import SD_LANE, Decision
from balancesim.core.goodput import GoodputRule
from balancesim.core.problem import Problem
from balancesim.core.request import Mode
from balancesim.policies.fcfs import Fcfs
from balancesim.policies.lanes import has_draft


@dataclass(frozen=True, slots=True)
class GoodputSd:
    """First come, first served; at every step the draft lengths of most accepted tokens per second (SmartSpec)."""

    name: ClassVar[str] = "goodput_sd"
    disciplines: ClassVar[tuple[str, ...]] = ("fused",)

    max_draft_length: int | None = None  #: γ_max; None = the server's draft length
    per_request: bool = True  #: False = one length for the whole batch at a step, as SmartSpec does

    def __post_init__(self) -> None:
        if self.max_draft_length is not None and self.max_draft_length < 0:
            rule = "leave it out to use the server's, 0 never drafts"
            raise ValueError(f"max_draft_length must be at least 0, got {self.max_draft_length}; {rule}")

    def decide(self, problem: Problem) -> Decision:
        """Return who `fcfs` admits, into one lane with the draft rule of `core.goodput`.

        Draft lengths 0 … γ_max: with none at a step it is autoregressive decoding. Memory is reserved for the draft
        model and for drafts of γ_max. Residents keep the limit and the rule that they were admitted with.

        Raises:
            ValueError: the server has no draft model.
        """
        if not has_draft(problem):
            raise ValueError("server.draft must be given for speculative decoding, got none; name a draft model")
        most = problem.server.draft_length if self.max_draft_length is None else self.max_draft_length
        before = problem.lane_in_force(SD_LANE)
        rule = GoodputRule(self.per_request) if before is None else before.draft_rule
        decision = Fcfs(Mode.SD, most).decide(problem)
        lanes = (replace(lane, draft_rule=rule) if lane.lane_id == SD_LANE else lane for lane in decision.lanes)
        return replace(decision, lanes=tuple(lanes))
