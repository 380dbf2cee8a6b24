"""A GPU by its data sheet values."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """Data sheet values of one GPU (dense, without sparsity) and measured efficiencies where known."""

    name: str
    peak_flops: float  #: fp16/bf16 FLOP/s with fp32 accumulation
    bandwidth_bytes_s: float  #: memory bandwidth, bytes per second
    memory_bytes: float
    power_w: float = math.nan  #: data sheet
    bandwidth_efficiency: float = math.nan  #: measured share of the bandwidth reached; NaN = not measured
    compute_efficiency: float = math.nan  #: measured share of the peak reached; NaN = not measured
    pcie_bytes_s: float = math.nan
    idle_w: float = math.nan  #: measured; NaN = not measured

    def __post_init__(self) -> None:
        for field in ("peak_flops", "bandwidth_bytes_s", "memory_bytes"):
            if not getattr(self, field) > 0:
                raise ValueError(f"gpu {self.name}: {field} must be positive, got {getattr(self, field)}")
