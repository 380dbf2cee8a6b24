"""Random split: a coin decides each request's mode; what a choice of modes is worth shows against it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision
from balancesim.core.fixed_split import split_by_group
from balancesim.core.pair_search import check_share
from balancesim.core.problem import Problem
from balancesim.policies.ad_only import AdOnly
from balancesim.policies.lanes import ad_lane, check_draft_length, has_draft, sd_lane
from balancesim.streams import Streams


@dataclass(frozen=True, slots=True)
class RandomSplit:
    """Random split: each request is AD or SD by a coin, shares are fixed, each batch is solved as BALANCE does."""

    name: ClassVar[str] = "random_split"

    ad_probability: float = 0.5  #: chance that a request is AD
    gpu_share: float = 0.5  #: z, of the AD batch
    memory_share: float = 0.5  #: λ, of the AD batch
    seed: int = 0  #: of the coins
    draft_length: int | None = None  #: γ of SD; None = the server's

    def __post_init__(self) -> None:
        if not 0 <= self.ad_probability <= 1:
            raise ValueError(f"ad_probability must be between 0 and 1, got {self.ad_probability}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        check_share("gpu_share", self.gpu_share)
        check_share("memory_share", self.memory_share)
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the largest batches of both groups at the fixed shares.

        A request's coin depends on the seed and its number alone: it keeps its mode while it waits, and the order of
        the candidates does not matter. Without a draft model all are AD, with the whole GPU.
        """
        if not has_draft(problem):
            return AdOnly().decide(problem)
        coins = Streams(self.seed, 0).keyed(self.name)
        ids = problem.candidates.request_id.tolist()
        ad = np.array([coins.uniforms(request_id, 1)[0] < self.ad_probability for request_id in ids], dtype=np.bool_)
        lanes = (ad_lane(), sd_lane(problem, self.draft_length))
        return split_by_group(problem, lanes, (ad, ~ad), (self.gpu_share, self.memory_share))

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest GPU share of a lane: a switch must cost less than its window."""
        return min(self.gpu_share, 1.0 - self.gpu_share)
