"""Use of the servers' GPU time and KV memory in the window."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from balancesim.metrics.window import Window

if TYPE_CHECKING:
    import pandas as pd

#: Columns of the table ``gpu`` that hold useful GPU time.
WORK = ("prefill_s", "decode_s", "draft_s", "verify_s")


def _check(servers: int) -> None:
    if servers < 1:
        raise ValueError(f"servers must be at least 1, got {servers}")


@dataclass(frozen=True)
class GpuBusyShare:
    """Share of the servers' GPU time spent on passes; switching between lanes is not in it."""

    name: ClassVar[str] = "gpu_busy_share"
    unit: ClassVar[str] = "1"
    window: Window
    servers: int  #: idle ones included, which leave no rows

    def __post_init__(self) -> None:
        _check(self.servers)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return GPU seconds of work in the window / (servers · window length)."""
        work_s = gpu[list(WORK)].to_numpy().sum(axis=1) @ self.window.overlap(gpu)
        return self.window.per_second(float(work_s)) / self.servers


@dataclass(frozen=True)
class SwitchShare:
    """Share of the servers' GPU time lost to switching between lanes."""

    name: ClassVar[str] = "switch_share"
    unit: ClassVar[str] = "1"
    window: Window
    servers: int

    def __post_init__(self) -> None:
        _check(self.servers)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return seconds of switching in the window / (servers · window length)."""
        lost_s = gpu["switch_s"].to_numpy() @ self.window.overlap(gpu)
        return self.window.per_second(float(lost_s)) / self.servers


@dataclass(frozen=True)
class GpuPhase:
    """GPU seconds that one kind of work took in the window, all servers."""

    name: ClassVar[str] = "gpu_phase"
    unit: ClassVar[str] = "s"
    window: Window
    column: str  #: prefill_s, decode_s, draft_s, verify_s or switch_s

    def __post_init__(self) -> None:
        if self.column not in (*WORK, "switch_s"):
            raise ValueError(f"column must be one of {', '.join((*WORK, 'switch_s'))}, got {self.column}")

    @property
    def label(self) -> str:
        """Column name of the value."""
        return f"gpu_{self.column}"

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the seconds."""
        return float(gpu[self.column].to_numpy() @ self.window.overlap(gpu))


@dataclass(frozen=True)
class KvPeakShare:
    """Highest share of its KV memory that any server had reserved."""

    name: ClassVar[str] = "kv_peak_share"
    unit: ClassVar[str] = "1"
    window: Window

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return max of kv_peak / kv_capacity over the epochs in the window; NaN when there is none."""
        seen = epochs[epochs["epoch_s"].between(self.window.warmup_s, self.window.horizon_s)]
        return float((seen["kv_peak_bytes"] / seen["kv_capacity_bytes"]).max())
