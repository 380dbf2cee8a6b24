"""The second system as numbers: tasks, the two nodes, the fronthaul and who can be served at all (model.md §7).

A small base station (SBS) holds the draft model, a macro base station (MBS) the target model; a fronthaul joins them
and the users share one uplink band. Source: Zhu et al., arXiv 2510.11331 v1 (called [P2]); [A] marks our assumptions.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from balancesim.core.pipeline_nodes import Fronthaul, NodePair, PipelineNode
from balancesim.core.speculation import planned_rounds
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
class PipelineInstance:
    """One joint problem: batches, draft length and bandwidths for a set of tasks."""

    tasks: PipelineTasks
    draft: PipelineNode  #: SBS
    target: PipelineNode  #: MBS
    bandwidth_hz: float  #: B, shared by all uploads
    max_draft_length: int  #: l_max; 0 leaves only autoregressive decoding on the MBS
    fronthaul: Fronthaul = field(default_factory=Fronthaul)
    draft_length: int | None = None  #: l if it is given and not to be chosen; 0 = autoregressive decoding on the MBS

    def __post_init__(self) -> None:
        if not self.bandwidth_hz > 0:
            raise ValueError(f"pipeline.bandwidth_hz must be positive, got {self.bandwidth_hz}")
        if self.max_draft_length < 0:
            raise ValueError(f"pipeline.max_draft_length must be at least 0, got {self.max_draft_length}")
        if self.draft_length is not None and self.draft_length < 0:
            raise ValueError(f"pipeline.draft_length must be at least 0, got {self.draft_length}")

    @property
    def draft_lengths(self) -> range:
        """The draft lengths to try: the given one, or 1..l_max, or 0 alone when l_max = 0."""
        if self.draft_length is not None:
            return range(self.draft_length, self.draft_length + 1)
        return range(1, self.max_draft_length + 1) if self.max_draft_length else range(1)

    @property
    def longest_output_tokens(self) -> int:
        """O_max: answers are padded to the longest."""
        return int(self.tasks.output_tokens.max())

    @property
    def nodes(self) -> NodePair:
        """Both nodes and what joins them."""
        return NodePair(self.draft, self.target, self.fronthaul)

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


def rounds_needed(tasks: PipelineTasks, draft_length: int) -> int:
    """Return N = max_k ⌈O_k/E(α_k, l)⌉ [P2, there with one α]: the first verification is also the target's prefill."""
    if not len(tasks):
        return 0
    # planned_rounds leaves out the token that a prefill emits; here round 1 emits it
    return int(np.max(planned_rounds(tasks.output_tokens + 1, tasks.acceptance_rate, draft_length)))


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
    tasks, room = instance.tasks, instance.kv_room_tokens(instance.draft_lengths[-1])
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
