"""Attainment of the optional service levels beside the deadline, over the offered requests (model.md §10)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from balancesim.metrics.durations import tpot_s, user_ttft_s
from balancesim.metrics.window import Window

if TYPE_CHECKING:
    import pandas as pd


def _check(target_s: float) -> None:
    if not target_s > 0:
        raise ValueError(f"target_s must be positive, got {target_s}")


@dataclass(frozen=True)
class TtftAttainment:
    """Share of the offered requests whose first token reached the user within the target."""

    name: ClassVar[str] = "ttft_attainment"
    unit: ClassVar[str] = "1"
    window: Window
    target_s: float

    def __post_init__(self) -> None:
        _check(self.target_s)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the share; a request without a first token misses."""
        return float((user_ttft_s(self.window.offered(requests)) <= self.target_s).mean())


@dataclass(frozen=True)
class TpotAttainment:
    """Share of the offered requests answered with a mean time between tokens within the target."""

    name: ClassVar[str] = "tpot_attainment"
    unit: ClassVar[str] = "1"
    window: Window
    target_s: float

    def __post_init__(self) -> None:
        _check(self.target_s)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the share; an answer of one token meets it, a request without an answer misses."""
        offered = self.window.offered(requests)
        met = tpot_s(offered).fillna(0.0) <= self.target_s
        return float((met & offered["user_last_token_s"].notna()).mean())
