"""Static split: urgent requests speculate, patient ones do not, shares never change."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision
from balancesim.core.fixed_split import split_by_group
from balancesim.core.pair_search import check_share
from balancesim.core.problem import Problem
from balancesim.policies.ad_only import AdOnly
from balancesim.policies.lanes import ad_lane, check_draft_length, has_draft, sd_lane


@dataclass(frozen=True, slots=True)
class StaticSplit:
    """Static split: tight deadlines to SD, the others to AD, shares are fixed, each batch is solved as BALANCE does."""

    name: ClassVar[str] = "static_split"

    sd_below_s: float | None = None  #: requests with less time left speculate; None = the tighter half
    gpu_share: float = 0.5  #: z, of the AD batch
    memory_share: float = 0.5  #: λ, of the AD batch
    draft_length: int | None = None  #: γ of SD; None = the server's

    def __post_init__(self) -> None:
        if self.sd_below_s is not None and not self.sd_below_s >= 0:
            raise ValueError(f"sd_below_s must be at least 0, got {self.sd_below_s}; leave it out for the tighter half")
        check_share("gpu_share", self.gpu_share)
        check_share("memory_share", self.memory_share)
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the largest batches of both groups at the fixed shares.

        SD gets the requests whose time left d_k (from the epoch, downlink taken off) is below ``sd_below_s``, or below
        the median of those whose deadline has not passed. Without a draft model all are AD, with the whole GPU.
        """
        if not has_draft(problem):
            return AdOnly().decide(problem)
        slack_s = problem.candidates.slack_s
        alive = slack_s[slack_s > 0]
        limit_s = self.sd_below_s
        if limit_s is None:
            limit_s = float(np.median(alive)) if len(alive) else 0.0
        urgent = slack_s < limit_s
        lanes = (ad_lane(), sd_lane(problem, self.draft_length))
        return split_by_group(problem, lanes, (~urgent, urgent), (self.gpu_share, self.memory_share))

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest GPU share of a lane: a switch must cost less than its window."""
        return min(self.gpu_share, 1.0 - self.gpu_share)
