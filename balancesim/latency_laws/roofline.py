"""The cost law ``roofline``: memory bound or compute bound, whichever is slower."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.work import ForwardPass, Phase, merged
from balancesim.units import Numeric


def _check_efficiency(field: str, value: float | None) -> None:
    if value is not None and not 0 < value <= 1:
        raise ValueError(
            f"{field} must be above 0 and at most 1, got {value}; leave it out to use the GPU table's measured value"
        )


def _missing(field: str, gpu: GpuSpec) -> ValueError:
    return ValueError(
        f"{field} must be given for {gpu.name}: no measured value is in the GPU table; "
        f"set {field} of the roofline law (measured GPUs reach 0.68-0.90 of the bandwidth, 0.64-0.95 of the peak)"
    )


@dataclass(frozen=True, slots=True)
class Roofline:
    """Time = max(bytes/(bandwidth·e_bw), FLOPs/(peak·e_f)) + launch time; weights are read once a pass."""

    name: ClassVar[str] = "roofline"

    launch_s: float  #: kernel launches and host work of one pass
    bandwidth_efficiency: float | None = None  #: e_bw; None = the GPU table's measured value
    compute_efficiency: float | None = None  #: e_f; None = the GPU table's measured value

    def __post_init__(self) -> None:
        if not 0 <= self.launch_s < math.inf:
            raise ValueError(f"launch_s must be finite and at least 0, got {self.launch_s}; use 0 for an ideal host")
        _check_efficiency("bandwidth_efficiency", self.bandwidth_efficiency)
        _check_efficiency("compute_efficiency", self.compute_efficiency)

    def forward_s(self, llm: LlmSpec, gpu: GpuSpec, phase: Phase, work: ForwardPass) -> Numeric:  # noqa: ARG002
        """Return ``max((W + kv·K)/(BW·e_bw), F/(peak·e_f)) + launch_s`` in seconds.

        W: weight bytes streamed once a pass (input embeddings are looked up, not streamed); K: cached tokens read;
        kv: bytes of one; F: `balancesim.core.work.pass_flops`. Left out: activations, cache writes, the dip between
        the two regimes (Williams et al., "Roofline", CACM 2009). Compute runs at the fp16 peak whatever the number
        format (weight-only quantisation).

        Args:
            llm: the model of the pass.
            gpu: bandwidth, peak and, unless given as options, the measured efficiencies.
            phase: not used: bytes and FLOPs tell the phases apart.
            work: sums over the rows of the pass; arrays stand for many passes.

        Raises:
            ValueError: an efficiency is neither given nor measured for this GPU.
        """
        bandwidth_efficiency = self.bandwidth_efficiency or gpu.bandwidth_efficiency
        compute_efficiency = self.compute_efficiency or gpu.compute_efficiency
        if math.isnan(bandwidth_efficiency):
            raise _missing("bandwidth_efficiency", gpu)
        if math.isnan(compute_efficiency):
            raise _missing("compute_efficiency", gpu)
        s_per_byte = 1.0 / (gpu.bandwidth_bytes_s * bandwidth_efficiency)
        s_per_flop = 1.0 / (gpu.peak_flops * compute_efficiency)
        launch_s = self.launch_s
        # Constants are multiplied first and the launch time is added to both sides, since in the simulator's inner
        # loop only contexts are arrays: five array operations in all.
        fixed_s = llm.streamed_weight_bytes * s_per_byte + launch_s
        memory_s = llm.kv_bytes_per_token * s_per_byte * work.kv_tokens + fixed_s
        rows_s = llm.flops_per_token * s_per_flop * work.new_tokens
        rows_s = rows_s + (llm.flops_per_head_row * s_per_flop * work.head_rows + launch_s)
        compute_s = llm.flops_per_pair * s_per_flop * work.attention_pairs + rows_s
        if isinstance(memory_s, float) and isinstance(compute_s, float):
            return memory_s if memory_s > compute_s else compute_s
        return np.maximum(memory_s, compute_s)

    def mixed_s(self, llm: LlmSpec, gpu: GpuSpec, chunk: ForwardPass, phase: Phase, work: ForwardPass) -> Numeric:
        """Return the time of the merged pass: the weights are read once for all rows."""
        return self.forward_s(llm, gpu, phase, merged(chunk, work))
