"""The observed window of a run, and the parts of the tables that fall into it."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from balancesim.units import FloatArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Window:
    """[warmup_s, horizon_s]: what arrives or happens before it is discarded, arrivals stop at its end."""

    warmup_s: float
    horizon_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.warmup_s <= self.horizon_s < math.inf:
            raise ValueError(
                f"warmup_s must be at least 0 and at most horizon_s, got {self.warmup_s} and {self.horizon_s}"
            )

    @property
    def length_s(self) -> float:
        """Seconds observed."""
        return self.horizon_s - self.warmup_s

    def offered(self, requests: "pd.DataFrame") -> "pd.DataFrame":
        """Return the requests that arrived in the window, whatever became of them: the base of every share."""
        return requests[requests["arrival_s"].between(self.warmup_s, self.horizon_s)]

    def answered(self, requests: "pd.DataFrame") -> "pd.DataFrame":
        """Return the offered requests whose whole answer reached the user, in time or late."""
        offered = self.offered(requests)
        return offered[offered["user_last_token_s"].notna()]

    def answered_within(self, requests: "pd.DataFrame") -> "pd.DataFrame":
        """Return the requests whose last token reached the user inside the window: the base of every rate."""
        return requests[requests["user_last_token_s"].between(self.warmup_s, self.horizon_s)]

    def per_second(self, count: float) -> float:
        """Return a count as a rate over the window; NaN for a window without length."""
        return count / self.length_s if self.length_s > 0 else math.nan

    def overlap(self, gpu: "pd.DataFrame") -> FloatArray:
        """Return for each GPU span the part of it (0 … 1) that lies in the window.

        Work is taken as evenly spread over its span, so a span across an edge counts in proportion.
        """
        start, end = gpu["start_s"].to_numpy(), gpu["end_s"].to_numpy()
        shared = end.clip(self.warmup_s, self.horizon_s) - start.clip(self.warmup_s, self.horizon_s)
        length = end - start
        instant = (length <= 0) & (start >= self.warmup_s) & (start <= self.horizon_s)
        part: FloatArray = shared / length.clip(1e-300) + instant
        return part
