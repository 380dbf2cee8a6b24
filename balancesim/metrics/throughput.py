"""Rates over the window: what reached the users inside it, per second.

A rate counts by the time of the last token, not by arrival, so that an overloaded server which drains for long after
the horizon does not look as fast as its arrivals. Throughput counts answers in time and late ones (those stopped at
their deadline reached nobody), goodput those in time.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from balancesim.core.request import Outcome
from balancesim.metrics.window import Window

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ThroughputRps:
    """Answers that reached their user per second, in time or late."""

    name: ClassVar[str] = "throughput_rps"
    unit: ClassVar[str] = "1/s"
    window: Window

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return answers / window length; NaN for a window without length."""
        return self.window.per_second(len(self.window.answered_within(requests)))


@dataclass(frozen=True)
class GoodputRps:
    """Answers that reached their user within the deadline per second."""

    name: ClassVar[str] = "goodput_rps"
    unit: ClassVar[str] = "1/s"
    window: Window

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return completed answers / window length; NaN for a window without length."""
        answered = self.window.answered_within(requests)
        return self.window.per_second(float((answered["outcome"] == Outcome.COMPLETED).sum()))


@dataclass(frozen=True)
class ThroughputTps:
    """Tokens of the answers that reached their user per second, in time or late."""

    name: ClassVar[str] = "throughput_tps"
    unit: ClassVar[str] = "tokens/s"
    window: Window

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return tokens / window length; NaN for a window without length."""
        return self.window.per_second(float(self.window.answered_within(requests)["tokens_out"].sum()))
