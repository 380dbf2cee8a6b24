"""The second system as numbers: tasks, the two nodes, the fronthaul and who can be served at all (model.md §7).

A small base station (SBS) holds the draft model, a macro base station (MBS) the target model; a fronthaul joins them
and the users share one uplink band. Source: Zhu et al., arXiv 2510.11331 v1 (called [P2]); [A] marks our assumptions.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.work import LatencyLaw
from balancesim.units import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class PipelineTasks:
    """Tasks as columns, in order of arrival. Arrays are made read-only."""

    prompt_tokens: IntArray  #: I_k
    output_tokens: IntArray  #: O_k, as predicted
    acceptance_rate: FloatArray  #: α_k, as predicted
    upload_bits: FloatArray  #: D_k
    spectral_efficiency_bps_hz: FloatArray  #: η_k of the uplink; 0 = outage

    def __post_init__(self) -> None:
        for name, column in vars(self).items():
            if len(column) != len(self.prompt_tokens):
                raise ValueError(f"tasks.{name} must have one value per task, got {len(column)}")
            column.flags.writeable = False
        if len(self) and (self.prompt_tokens.min() < 1 or self.output_tokens.min() < 1):
            raise ValueError("tasks: prompt_tokens and output_tokens must be at least 1")
        if len(self) and not (self.acceptance_rate.min() >= 0 and self.acceptance_rate.max() <= 1):
            raise ValueError("tasks.acceptance_rate must be between 0 and 1")

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def take(self, index: IntArray | BoolArray) -> "PipelineTasks":
        """Return the rows selected by an index or mask."""
        return PipelineTasks(**{name: column[index] for name, column in vars(self).items()})


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
    distribution); downwards γ+1 decisions, ``verified_token_bits`` each. Transfers overlap with computing and do not
    queue [A]; prompts travel while the SBS drafts the first round [A].
    """

    rate_bps: float = math.inf
    delay_s: float = 0.0
    draft_token_bits: float = 0.0
    verified_token_bits: float = 0.0

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
class PipelineInstance:
    """One joint problem: batches, draft length and bandwidths for a set of tasks."""

    tasks: PipelineTasks
    draft: PipelineNode  #: SBS
    target: PipelineNode  #: MBS
    bandwidth_hz: float  #: B, shared by all uploads
    max_draft_length: int  #: l_max; 0 leaves only autoregressive decoding on the MBS
    fronthaul: Fronthaul = field(default_factory=Fronthaul)

    def __post_init__(self) -> None:
        if not self.bandwidth_hz > 0:
            raise ValueError(f"pipeline.bandwidth_hz must be positive, got {self.bandwidth_hz}")
        if self.max_draft_length < 0:
            raise ValueError(f"pipeline.max_draft_length must be at least 0, got {self.max_draft_length}")

    @property
    def draft_lengths(self) -> range:
        """The draft lengths to try: 1..l_max, or 0 alone when l_max = 0."""
        return range(1, self.max_draft_length + 1) if self.max_draft_length else range(1)

    @property
    def longest_output_tokens(self) -> int:
        """O_max: answers are padded to the longest."""
        return int(self.tasks.output_tokens.max())

    def take(self, index: IntArray | BoolArray) -> "PipelineInstance":
        """Return the same problem for some of the tasks, in the order given."""
        return replace(self, tasks=self.tasks.take(index))

    def kv_tokens(self, sizes: IntArray, inputs: IntArray) -> FloatArray:
        """Return the KV tokens that batches hold, padded: b_m·(Î_m + O_max) [P2]. They stay over all rounds."""
        return sizes * (inputs + float(self.longest_output_tokens))

    def kv_room_tokens(self, draft_length: int) -> float:
        """Return the KV tokens that fit: both nodes hold every batch, the SBS only if there are drafts."""
        rooms = [self.target.kv_room_tokens()]
        if draft_length:
            rooms.append(self.draft.kv_room_tokens())
        return min(rooms)


def expected_tokens_per_round(acceptance_rate: FloatArray, draft_length: int) -> FloatArray:
    """Return E = (1 − α^(l+1))/(1 − α), l+1 at α = 1 (Leviathan et al., arXiv 2211.17192, eq. 1), as Σ_{j≤l} α^j."""
    powers = np.asarray(acceptance_rate, dtype=float)[..., None] ** np.arange(draft_length + 1)
    return np.asarray(powers.sum(axis=-1))


def rounds_needed(tasks: PipelineTasks, draft_length: int) -> int:
    """Return N = max_k ⌈O_k/E(α_k, l)⌉ [P2, there with one α]: the first verification is also the target's prefill."""
    if not len(tasks):
        return 0
    per_task = tasks.output_tokens / expected_tokens_per_round(tasks.acceptance_rate, draft_length)
    return int(np.ceil(per_task - 1e-9).max())


@dataclass(frozen=True)
class Admission:
    """Which tasks one plan can hold; indices into the instance's tasks."""

    admitted: IntArray
    deferred: IntArray  #: would fit alone, but not beside those that arrived before
    outage: IntArray  #: no uplink: never arrives
    too_large: IntArray  #: its KV cache exceeds a node's memory even alone


def admit(instance: PipelineInstance) -> Admission:
    """Split the tasks by what the radio and the memories allow, first come first served [A].

    A task is too large if I_k + O_k tokens of KV exceed what fits beside the weights. The others are admitted in order
    of arrival while Σ (I_k + O_max), the caches of batches of one (the least padding), fits; a later smaller task may
    overtake one that does not fit. [P2] assumes that all tasks fit.
    """
    tasks, room = instance.tasks, instance.kv_room_tokens(instance.max_draft_length)
    reachable = tasks.spectral_efficiency_bps_hz > 0
    possible = tasks.prompt_tokens + tasks.output_tokens <= room
    admitted: list[int] = []
    prompts, longest = 0, 0
    for task in np.flatnonzero(reachable & possible).tolist():
        new_prompts = prompts + int(tasks.prompt_tokens[task])
        new_longest = max(longest, int(tasks.output_tokens[task]))
        if new_prompts + (len(admitted) + 1) * new_longest <= room:
            admitted.append(task)
            prompts, longest = new_prompts, new_longest
    chosen = np.zeros(len(tasks), dtype=bool)
    chosen[admitted] = True
    return Admission(
        admitted=np.flatnonzero(chosen),
        deferred=np.flatnonzero(reachable & possible & ~chosen),
        outage=np.flatnonzero(~reachable),
        too_large=np.flatnonzero(reachable & ~possible),
    )
