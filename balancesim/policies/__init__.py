"""Admission policies. A policy sees an immutable `Problem`, predictions and the current state, and returns a
`Decision`."""

from typing import ClassVar, Protocol

from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.policies.ad_only import AdOnly
from balancesim.policies.balance import Balance
from balancesim.policies.balance_rate import BalanceRate
from balancesim.policies.fcfs import Fcfs
from balancesim.policies.sd_only import SdOnly


class Policy(Protocol):
    """What the server asks at every scheduling epoch."""

    name: ClassVar[str]

    def decide(self, problem: Problem) -> Decision:
        """Return lanes and rejected candidates; candidates in neither wait. The problem must not be changed."""
        ...


#: All policies, as `balancesim list policies` shows them.
POLICIES: tuple[type[Policy], ...] = (Balance, BalanceRate, AdOnly, SdOnly, Fcfs)

__all__ = ["POLICIES", "AdOnly", "Balance", "BalanceRate", "Fcfs", "Policy", "SdOnly"]
