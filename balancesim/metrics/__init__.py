"""Metrics: one number from the tables of one run. Definitions with symbols are in docs/metrics.md."""

from typing import TYPE_CHECKING, ClassVar, Protocol

from balancesim.core.request import Outcome
from balancesim.metrics.durations import Phase
from balancesim.metrics.energy import Energy, EnergyPerRequest, EnergyPerToken
from balancesim.metrics.latency import E2eLatency, MeanPhase, ServerTtft, Tpot, UserTtft
from balancesim.metrics.prefixes import PrefixHitShare
from balancesim.metrics.served import OutcomeShare, ServedInTime
from balancesim.metrics.server import WORK, GpuBusyShare, GpuPhase, KvPeakShare, SwitchShare
from balancesim.metrics.speculation import AcceptanceRatio, AcceptedTokensPerRound
from balancesim.metrics.targets import TpotAttainment, TtftAttainment
from balancesim.metrics.throughput import GoodputRps, ThroughputRps, ThroughputTps
from balancesim.metrics.window import Window

if TYPE_CHECKING:
    import pandas as pd


class Metric(Protocol):
    """A metric of one run."""

    name: ClassVar[str]
    unit: ClassVar[str]

    @property
    def label(self) -> str:
        """Column name of the value: the name, with the options that tell its values apart."""
        ...

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:
        """Return the value in ``unit`` from the tables of one run; NaN when it is not defined there."""
        ...


METRICS: tuple[type[Metric], ...] = (
    ServedInTime,
    OutcomeShare,
    ThroughputRps,
    GoodputRps,
    ThroughputTps,
    ServerTtft,
    UserTtft,
    Tpot,
    E2eLatency,
    MeanPhase,
    GpuBusyShare,
    SwitchShare,
    GpuPhase,
    KvPeakShare,
    AcceptedTokensPerRound,
    AcceptanceRatio,
    PrefixHitShare,
    TtftAttainment,
    TpotAttainment,
    Energy,
    EnergyPerRequest,
    EnergyPerToken,
)

QUANTILES = (0.5, 0.95, 0.99)


def standard_metrics(window: Window, servers: int) -> tuple[Metric, ...]:
    """Return the metrics that every comparison has, in order; targets come on top where a scenario sets them."""
    return (
        ServedInTime(window),
        *(OutcomeShare(window, outcome) for outcome in Outcome),
        ThroughputRps(window),
        GoodputRps(window),
        ThroughputTps(window),
        *(kind(window, quantile) for kind in (ServerTtft, UserTtft, Tpot, E2eLatency) for quantile in QUANTILES),
        *(MeanPhase(window, phase) for phase in Phase),
        GpuBusyShare(window, servers),
        SwitchShare(window, servers),
        *(GpuPhase(window, column) for column in (*WORK, "switch_s")),
        KvPeakShare(window),
        AcceptedTokensPerRound(window),
        AcceptanceRatio(window),
        PrefixHitShare(window),
    )


__all__ = ["METRICS", "QUANTILES", "Metric", "Phase", "Window", "standard_metrics"]
__all__ += ["Energy", "EnergyPerRequest", "EnergyPerToken"]
__all__ += ["AcceptanceRatio", "AcceptedTokensPerRound", "E2eLatency", "GoodputRps", "GpuBusyShare", "GpuPhase"]
__all__ += [
    "KvPeakShare",
    "MeanPhase",
    "OutcomeShare",
    "PrefixHitShare",
    "ServedInTime",
    "ServerTtft",
    "SwitchShare",
    "ThroughputRps",
]
__all__ += ["PrefixHitShare", "ThroughputTps", "Tpot", "TpotAttainment", "TtftAttainment", "UserTtft"]
