"""How well the draft model guessed."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from balancesim.metrics.window import Window

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class AcceptedTokensPerRound:
    """Drafted tokens kept per speculative round; the round's own correction or bonus token comes on top."""

    name: ClassVar[str] = "accepted_tokens_per_round"
    unit: ClassVar[str] = "tokens"
    window: Window

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return Σ accepted / Σ rounds over the arrivals of the window; NaN without a round."""
        offered = self.window.offered(requests)
        rounds = float(offered["draft_rounds"].sum())
        return float(offered["accepted_tokens"].sum()) / rounds if rounds else math.nan


@dataclass(frozen=True)
class AcceptanceRatio:
    """Share of the drafted tokens that were kept; below α, because those behind a rejected one are lost too."""

    name: ClassVar[str] = "acceptance_ratio"
    unit: ClassVar[str] = "1"
    window: Window

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return Σ accepted / Σ drafted over the arrivals of the window; NaN when nothing was drafted."""
        offered = self.window.offered(requests)
        drafted = float(offered["drafted_tokens"].sum())
        return float(offered["accepted_tokens"].sum()) / drafted if drafted else math.nan
