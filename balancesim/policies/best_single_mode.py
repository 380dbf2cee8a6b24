"""The better single mode: AD only or SD only, whichever serves more at this epoch."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.core.solver import best_of
from balancesim.policies.ad_only import AdOnly
from balancesim.policies.lanes import ONE_LANE, check_draft_length, has_draft
from balancesim.policies.sd_only import SdOnly


@dataclass(frozen=True, slots=True)
class BestSingleMode:
    """The better of AD only and SD only at every epoch: the honest rival of a hybrid."""

    name: ClassVar[str] = "best_single_mode"
    disciplines: ClassVar[tuple[str, ...]] = ONE_LANE

    draft_length: int | None = None  #: γ of SD; None = the server's

    def __post_init__(self) -> None:
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the decision of `ad_only` or of `sd_only` that admits more; ties: smallest sum of completion times.

        Residents (continuous batching) keep their lane and its share, which is the whole GPU when this policy admitted
        them. The other mode then has no room and admits nobody: the mode changes only at an epoch at which the server
        is empty. Without a draft model it is AD only.
        """
        found = [AdOnly().decide(problem)]
        if has_draft(problem):
            found.append(SdOnly(self.draft_length).decide(problem))
        return best_of(problem, found)
