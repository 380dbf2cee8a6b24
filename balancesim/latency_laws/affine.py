"""The cost law ``affine``: a fixed time a pass and a time proportional to floating-point operations."""

import math
from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.work import ForwardPass, Phase, merged, pass_flops
from balancesim.units import Numeric


@dataclass(frozen=True, slots=True)
class Affine:
    """Time = c1 · FLOPs of the pass + c2, both fitted on a real GPU."""

    name: ClassVar[str] = "affine"

    s_per_flop: float  #: c1
    fixed_s: float  #: c2: weight read and launches of one pass

    def __post_init__(self) -> None:
        if not 0 < self.s_per_flop < math.inf:
            raise ValueError(
                f"s_per_flop must be positive and finite, got {self.s_per_flop}; use 1/(reached FLOP/s) of the GPU"
            )
        if not 0 <= self.fixed_s < math.inf:
            raise ValueError(
                f"fixed_s must be finite and at least 0, got {self.fixed_s}; it is the time of an empty pass"
            )

    def forward_s(self, llm: LlmSpec, gpu: GpuSpec, phase: Phase, work: ForwardPass) -> Numeric:  # noqa: ARG002
        """Return ``c1 · pass_flops + c2`` in seconds (Zhu et al., arXiv 2510.11331: T(b, F) = c1·F·b + c2).

        Args:
            llm: the model of the pass.
            gpu: not used: the coefficients were fitted on it.
            phase: not used: the number of rows tells the phases apart.
            work: sums over the rows of the pass; arrays stand for many passes.
        """
        return self.s_per_flop * pass_flops(llm, work) + self.fixed_s

    def mixed_s(self, llm: LlmSpec, gpu: GpuSpec, chunk: ForwardPass, phase: Phase, work: ForwardPass) -> Numeric:
        """Return the time of the merged pass: the weights are read once for all rows."""
        return self.forward_s(llm, gpu, phase, merged(chunk, work))
