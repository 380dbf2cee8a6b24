"""Admission policies. A policy sees an immutable `Problem`, predictions and the current state, and returns a
`Decision`."""

from typing import ClassVar, Protocol

from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.policies.ad_only import AdOnly
from balancesim.policies.ad_two_batches import AdTwoBatches
from balancesim.policies.balance import Balance
from balancesim.policies.balance_rate import BalanceRate
from balancesim.policies.best_single_mode import BestSingleMode
from balancesim.policies.clairvoyant import Clairvoyant
from balancesim.policies.edf import Edf
from balancesim.policies.fcfs import Fcfs
from balancesim.policies.goodput_sd import GoodputSd
from balancesim.policies.multi_batch import MultiBatch
from balancesim.policies.optimal import Optimal
from balancesim.policies.pipelined_sd import PipelinedSd
from balancesim.policies.random_split import RandomSplit
from balancesim.policies.sd_only import SdOnly
from balancesim.policies.sd_two_batches import SdTwoBatches
from balancesim.policies.static_split import StaticSplit


class Policy(Protocol):
    """What the server asks at every scheduling epoch.

    A policy may name the disciplines that it plans for, ``disciplines = ("pipeline",)``; one without that attribute is
    for all disciplines of a single server whose lanes share the GPU by slices. With ``sees_truth = True`` it is told
    true lengths and acceptance rates.
    """

    name: ClassVar[str]

    def decide(self, problem: Problem) -> Decision:
        """Return lanes and rejected candidates; candidates in neither wait. The problem must not be changed."""
        ...


#: All policies, as `balancesim list policies` shows them.
POLICIES: tuple[type[Policy], ...] = (
    Balance,
    BalanceRate,
    AdOnly,
    SdOnly,
    BestSingleMode,
    AdTwoBatches,
    SdTwoBatches,
    MultiBatch,
    RandomSplit,
    StaticSplit,
    Edf,
    Fcfs,
    GoodputSd,
    Optimal,
    Clairvoyant,
    PipelinedSd,
)

__all__ = [
    "POLICIES",
    "AdOnly",
    "AdTwoBatches",
    "Balance",
    "BalanceRate",
    "BestSingleMode",
    "Clairvoyant",
    "Edf",
    "Fcfs",
    "GoodputSd",
    "MultiBatch",
    "Optimal",
    "PipelinedSd",
    "Policy",
    "RandomSplit",
    "SdOnly",
    "SdTwoBatches",
    "StaticSplit",
]
