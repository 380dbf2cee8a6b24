"""The cost law ``flops``: time proportional to floating-point operations."""

import math
from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.work import ForwardPass, Phase, pass_flops
from balancesim.units import Numeric


@dataclass(frozen=True, slots=True)
class Flops:
    """Time = κ · FLOPs of the pass, with one measured κ (seconds per FLOP) for each phase."""

    name: ClassVar[str] = "flops"

    prefill_s_per_flop: float
    decode_s_per_flop: float
    verify_s_per_flop: float  #: far below decode_s_per_flop on a real GPU: one weight read for γ+1 rows

    def __post_init__(self) -> None:
        for field in ("prefill_s_per_flop", "decode_s_per_flop", "verify_s_per_flop"):
            value = getattr(self, field)
            if not 0 < value < math.inf:
                raise ValueError(
                    f"{field} must be positive and finite, got {value}; "
                    "it lies between 1/peak FLOP/s (compute bound) and about 100 times that (weight read, batch 1)"
                )

    def forward_s(self, llm: LlmSpec, gpu: GpuSpec, phase: Phase, work: ForwardPass) -> Numeric:  # noqa: ARG002
        """Return ``κ_phase · pass_flops`` in seconds (Qu et al., arXiv 2608.05926: FLOPs × measured coefficients).

        Args:
            llm: the model of the pass; κ belongs to it, so target and draft each have a law of their own.
            gpu: not used: κ was measured on it.
            phase: which κ applies.
            work: sums over the rows of the pass; arrays stand for many passes.
        """
        if phase is Phase.DECODE:
            coefficient = self.decode_s_per_flop
        elif phase is Phase.VERIFY:
            coefficient = self.verify_s_per_flop
        else:
            coefficient = self.prefill_s_per_flop
        return coefficient * pass_flops(llm, work)

    def mixed_s(self, llm: LlmSpec, gpu: GpuSpec, chunk: ForwardPass, phase: Phase, work: ForwardPass) -> Numeric:
        """Return the sum of both parts: each phase has its own coefficient, and the law has no cost of a pass."""
        return self.forward_s(llm, gpu, Phase.PREFILL, chunk) + self.forward_s(llm, gpu, phase, work)
