"""Quantiles of the delays that users see, over the answered requests.

Requests without an answer have no delay, so a policy that turns many away looks fast here: read these values only
beside the shares of `balancesim.metrics.served`, as ``compare`` prints them. Quantiles interpolate linearly.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from balancesim.metrics.durations import Phase, e2e_s, phase_s, server_ttft_s, tpot_s, user_ttft_s
from balancesim.metrics.window import Window

if TYPE_CHECKING:
    import pandas as pd


def _check(quantile: float) -> None:
    if not 0 <= quantile <= 1:
        raise ValueError(f"quantile must be between 0 and 1, got {quantile}")


@dataclass(frozen=True)
class ServerTtft:
    """Quantile of the time from arrival to the first token at the server."""

    name: ClassVar[str] = "server_ttft_s"
    unit: ClassVar[str] = "s"
    window: Window
    quantile: float

    def __post_init__(self) -> None:
        _check(self.quantile)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return f"{self.name}_p{100 * self.quantile:g}"

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the quantile over the answered arrivals of the window; NaN when there is none."""
        return float(server_ttft_s(self.window.answered(requests)).quantile(self.quantile))


@dataclass(frozen=True)
class UserTtft:
    """Quantile of the time from arrival to the first token at the user."""

    name: ClassVar[str] = "user_ttft_s"
    unit: ClassVar[str] = "s"
    window: Window
    quantile: float

    def __post_init__(self) -> None:
        _check(self.quantile)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return f"{self.name}_p{100 * self.quantile:g}"

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the quantile over the answered arrivals of the window; NaN when there is none."""
        return float(user_ttft_s(self.window.answered(requests)).quantile(self.quantile))


@dataclass(frozen=True)
class Tpot:
    """Quantile of the mean time between a request's tokens at the server, each request weighing the same."""

    name: ClassVar[str] = "tpot_s"
    unit: ClassVar[str] = "s"
    window: Window
    quantile: float

    def __post_init__(self) -> None:
        _check(self.quantile)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return f"{self.name}_p{100 * self.quantile:g}"

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the quantile over the answered arrivals of the window with two tokens or more; else NaN."""
        return float(tpot_s(self.window.answered(requests)).quantile(self.quantile))


@dataclass(frozen=True)
class E2eLatency:
    """Quantile of the time from arrival to the whole answer at the user."""

    name: ClassVar[str] = "e2e_s"
    unit: ClassVar[str] = "s"
    window: Window
    quantile: float

    def __post_init__(self) -> None:
        _check(self.quantile)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return f"{self.name}_p{100 * self.quantile:g}"

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the quantile over the answered arrivals of the window; NaN when there is none."""
        return float(e2e_s(self.window.answered(requests)).quantile(self.quantile))


@dataclass(frozen=True)
class MeanPhase:
    """Mean time that an answered request spent in one phase: upload, wait, prefill, decode or downlink."""

    name: ClassVar[str] = "mean_phase"
    unit: ClassVar[str] = "s"
    window: Window
    phase: Phase

    @property
    def label(self) -> str:
        """Column name of the value."""
        return f"mean_{self.phase.value}_s"

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the mean over the answered arrivals of the window; the five means sum to the mean of e2e."""
        return float(phase_s(self.window.answered(requests), self.phase).mean())
