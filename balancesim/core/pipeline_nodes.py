"""The two nodes of the second system and the fronthaul between them (model.md §7).

A small base station (SBS) holds the draft model, a macro base station (MBS) the target model. Source: Zhu et al., arXiv
2510.11331 v1 (called [P2]); [A] marks our assumptions.
"""

import math
from dataclasses import dataclass

import numpy as np

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.work import LatencyLaw
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True)
class PipelineNode:
    """A base station's server: model, GPU, cost law and memory."""

    llm: LlmSpec
    gpu: GpuSpec
    law: LatencyLaw
    memory_bytes: float = math.inf  #: usable memory; inf switches the check off, as [P2] does for the MBS
    #: a round's times are computed at this many contexts and interpolated linearly between them: exact with 2 for laws
    #: affine in the context (`affine`, `flops`); a convex law such as `roofline` is overestimated a little
    context_points: int = 2

    def __post_init__(self) -> None:
        if self.context_points < 2:
            raise ValueError(f"node.context_points must be at least 2, got {self.context_points}")

    def kv_room_tokens(self) -> float:
        """Return how many tokens of KV cache fit beside the weights (negative: not even the weights fit)."""
        return (self.memory_bytes - self.llm.weight_bytes) / self.llm.kv_bytes_per_token


@dataclass(frozen=True)
class Fronthaul:
    """The link between SBS and MBS. The default, no delay and any rate, is [P2]'s; ``delay_s=inf``: link down.

    Upwards a batch sends its drafts, ``draft_token_bits`` each (the token and, for exact rejection sampling, its
    distribution); downwards γ+1 decisions, ``verified_token_bits`` each. Transfers overlap with computing and, unless
    ``queueing``, with each other [A]; they arrive in the order in which they were sent. Prompts travel while the SBS
    drafts the first round [A].
    """

    rate_bps: float = math.inf
    delay_s: float = 0.0
    draft_token_bits: float = 0.0
    verified_token_bits: float = 0.0
    #: a direction carries one transfer at a time: several SBS, or short rounds, wait for each other. Simulated only:
    #: plans (`core.pipeline`) count every transfer as if it were alone
    queueing: bool = False

    def __post_init__(self) -> None:
        if not self.rate_bps > 0:
            raise ValueError(f"fronthaul.rate_bps must be positive, got {self.rate_bps}; a link down is delay_s = inf")
        for name in ("delay_s", "draft_token_bits", "verified_token_bits"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"fronthaul.{name} must be at least 0, got {getattr(self, name)}")

    def to_mbs_s(self, sizes: IntArray, draft_length: int) -> FloatArray:
        """Return the time for a batch's drafts to reach the MBS; 0 without drafts (nothing is sent)."""
        if draft_length == 0:
            return np.zeros(len(sizes))
        return np.asarray(self.delay_s + sizes * (draft_length * self.draft_token_bits / self.rate_bps))

    def to_sbs_s(self, sizes: IntArray, draft_length: int) -> FloatArray:
        """Return the time for a batch's verdicts to reach the SBS; 0 without drafts."""
        if draft_length == 0:
            return np.zeros(len(sizes))
        bits = (draft_length + 1) * self.verified_token_bits
        return np.asarray(self.delay_s + sizes * (bits / self.rate_bps))


@dataclass(frozen=True)
class Sbs:
    """A small base station that drafts for its server, the MBS."""

    node: PipelineNode
    fronthaul: Fronthaul


@dataclass(frozen=True)
class NodePair:
    """One SBS, its MBS and the fronthaul between them."""

    draft: PipelineNode  #: SBS
    target: PipelineNode  #: MBS
    fronthaul: Fronthaul
