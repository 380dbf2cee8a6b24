"""How much of the prompts the prefix cache had."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from balancesim.metrics.window import Window

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PrefixHitShare:
    """Share of the prefilled prompt tokens that need not be computed, since the prefix cache had them."""

    name: ClassVar[str] = "prefix_hit_share"
    unit: ClassVar[str] = "1"
    window: Window

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return Σ cached / Σ prompt tokens over the arrivals of the window whose prefill began; NaN without any."""
        offered = self.window.offered(requests)
        prefilled = offered[offered["prefill_start_s"].notna()]
        tokens = float(prefilled["prompt_tokens"].sum())
        return float(prefilled["cached_tokens"].sum()) / tokens if tokens else math.nan
