"""An edge server as the model sees it: models, GPU, cost laws and memory."""

from dataclasses import dataclass, field
from typing import Any

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.pipeline_nodes import NodePair, PipelineNode, Sbs
from balancesim.core.request import Mode
from balancesim.core.work import ForwardPass, LatencyLaw, Phase
from balancesim.units import GIB, Numeric


@dataclass(frozen=True)
class ServerSpec:
    """One GPU with a target model and, if speculative decoding can be used, a draft model."""

    gpu: GpuSpec
    target: LlmSpec
    target_law: LatencyLaw
    usable_memory_bytes: float  #: Q·utilisation − reserve
    draft: LlmSpec | None = None
    draft_law: LatencyLaw | None = None
    draft_length: int = 0  #: γ that policies use unless they choose another
    draft_load_bytes_s: float = float("inf")  #: PCIe rate at which draft weights are loaded; inf = no delay [P1]
    sbs: Sbs | None = None  #: where the draft model runs instead (discipline `pipeline`); this server is then the MBS
    #: tables derived from the fields above and filled on demand (core/padded.py); no part of the value
    tables: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.free_bytes(uses_sd=False) <= 0:
            raise ValueError(
                f"server.memory: weights of {self.target.name} ({self.target.weight_bytes / GIB:.2f} GiB) exceed the "
                f"usable memory of {self.gpu.name} ({self.usable_memory_bytes / GIB:.2f} GiB) by "
                f"{(self.target.weight_bytes - self.usable_memory_bytes) / GIB:.2f} GiB; "
                "use a smaller model, a smaller weight format or a larger GPU"
            )

    def free_bytes(self, *, uses_sd: bool) -> float:
        """Return the memory left for KV caches: usable − W_L − 1{SD}·W_S (model.md §5)."""
        drafts_here = uses_sd and self.sbs is None
        draft_bytes = self.draft.weight_bytes if drafts_here and self.draft is not None else 0.0
        return self.usable_memory_bytes - self.target.weight_bytes - draft_bytes

    def kv_bytes_per_token(self, mode: Mode) -> float:
        """Return the KV cache of one token: kv_L for AD, kv_L + kv_S for SD."""
        drafts_here = mode is Mode.SD and self.sbs is None
        draft_bytes = self.draft.kv_bytes_per_token if drafts_here and self.draft is not None else 0.0
        return self.target.kv_bytes_per_token + draft_bytes

    def target_s(self, phase: Phase, work: ForwardPass) -> Numeric:
        """Return the time of a pass of the target model with the whole GPU."""
        return self.target_law.forward_s(self.target, self.gpu, phase, work)

    def target_mixed_s(self, chunk: ForwardPass, phase: Phase, work: ForwardPass) -> Numeric:
        """Return the time of one pass of the target over chunks of prompts and rows of another phase."""
        return self.target_law.mixed_s(self.target, self.gpu, chunk, phase, work)

    def draft_s(self, phase: Phase, work: ForwardPass) -> Numeric:
        """Return the time of a pass of the draft model with the whole GPU."""
        if self.draft is None or self.draft_law is None:
            raise ValueError("server.draft: speculative decoding needs a draft model and its cost law")
        return self.draft_law.forward_s(self.draft, self.gpu, phase, work)

    @property
    def nodes(self) -> NodePair:
        """The two nodes of the pipeline, this server being the MBS.

        Raises:
            ValueError: no SBS drafts for this server.
        """
        if self.sbs is None:
            raise ValueError("server.sbs must be given for the discipline pipeline, got none; add a table [sbs]")
        points = self.sbs.node.context_points
        target = PipelineNode(self.target, self.gpu, self.target_law, self.usable_memory_bytes, points)
        return NodePair(self.sbs.node, target, self.sbs.fronthaul)

    @property
    def draft_load_s(self) -> float:
        """Time to load the draft model's weights over PCIe."""
        return 0.0 if self.draft is None or self.sbs is not None else self.draft.weight_bytes / self.draft_load_bytes_s
