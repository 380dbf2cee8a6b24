"""What became of the offered requests."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from balancesim.core.request import Outcome
from balancesim.metrics.window import Window

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ServedInTime:
    """Share of the offered requests answered within their deadline; all others count against it."""

    name: ClassVar[str] = "served_in_time"
    unit: ClassVar[str] = "1"
    window: Window

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return completed / offered over the arrivals in the window; NaN when nobody arrived."""
        return float((self.window.offered(requests)["outcome"] == Outcome.COMPLETED).mean())


@dataclass(frozen=True)
class OutcomeShare:
    """Share of the offered requests with one outcome; the five shares sum to 1."""

    name: ClassVar[str] = "outcome_share"
    unit: ClassVar[str] = "1"
    window: Window
    outcome: Outcome

    @property
    def label(self) -> str:
        """Column name of the value."""
        return f"{self.outcome.value}_share"

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the share over the arrivals in the window; NaN when nobody arrived."""
        return float((self.window.offered(requests)["outcome"] == self.outcome).mean())
