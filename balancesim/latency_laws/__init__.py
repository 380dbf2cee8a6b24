"""Cost laws: the GPU time of one forward pass (model.md §3). The contract is `balancesim.core.work.LatencyLaw`."""

from balancesim.core.work import LatencyLaw
from balancesim.latency_laws.affine import Affine
from balancesim.latency_laws.flops import Flops
from balancesim.latency_laws.profiled import Profiled
from balancesim.latency_laws.roofline import Roofline

__all__ = ["LATENCY_LAWS", "Affine", "Flops", "LatencyLaw", "Profiled", "Roofline"]

#: every cost law a scenario can name
LATENCY_LAWS: tuple[type[LatencyLaw], ...] = (Flops, Affine, Roofline, Profiled)
