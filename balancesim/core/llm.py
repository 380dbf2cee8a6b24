"""A transformer language model: sizes, memory and FLOPs per token."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class LlmSpec:
    """Architecture and number formats of a decoder-only transformer (symbols of model.md §3).

    Derived quantities are computed once an object: cost laws read them at every forward pass.
    """

    name: str
    layers: int  #: J
    hidden: int  #: h
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  #: f
    ffn_matrices: int  #: m: 2, or 3 for SwiGLU
    vocab: int
    tied_embeddings: bool
    parameters: float  #: published count
    nonembedding_parameters: float  #: what one decode step streams besides the LM head
    context_tokens: int  #: longest prompt + answer
    vocab_family: str = ""
    weight_bytes_per_parameter: float = 2.0
    kv_bytes_per_value: float = 2.0

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context_tokens"):
            if getattr(self, field) < 1:
                raise ValueError(f"llm {self.name}: {field} must be at least 1, got {getattr(self, field)}")
        if self.weight_bytes_per_parameter <= 0 or self.kv_bytes_per_value <= 0:
            raise ValueError(f"llm {self.name}: bytes per weight and per KV value must be positive")

    @cached_property
    def query_width(self) -> int:
        """h_q = heads · head_dim (≠ h for Qwen3 and Gemma-2)."""
        return self.heads * self.head_dim

    @cached_property
    def kv_width(self) -> int:
        """h_kv = KV heads · head_dim."""
        return self.kv_heads * self.head_dim

    @cached_property
    def weight_bytes(self) -> float:
        """All weights, in bytes."""
        return self.parameters * self.weight_bytes_per_parameter

    @cached_property
    def kv_bytes_per_token(self) -> float:
        """KV cache of one token: 2·J·h_kv·bytes (Llama-2-7B fp16: 524,288 B)."""
        return 2 * self.layers * self.kv_width * self.kv_bytes_per_value

    @cached_property
    def flops_per_token(self) -> float:
        """FLOPs of one row without attention scores and head: J·(4·h·h_q + 4·h·h_kv + 2·m·h·f)."""
        projections = 4 * self.hidden * self.query_width + 4 * self.hidden * self.kv_width
        return float(self.layers * (projections + 2 * self.ffn_matrices * self.hidden * self.ffn))

    @cached_property
    def flops_per_pair(self) -> float:
        """FLOPs of one row attending to one token: J·4·h_q (scores and weighted sum)."""
        return float(self.layers * 4 * self.query_width)

    @cached_property
    def flops_per_head_row(self) -> float:
        """FLOPs of the LM head for one row: 2·h·vocab."""
        return float(2 * self.hidden * self.vocab)

    @cached_property
    def streamed_weight_bytes(self) -> float:
        """Weights that one pass reads: non-embedding weights and the LM head (input embeddings are looked up)."""
        return (self.nonembedding_parameters + self.hidden * self.vocab) * self.weight_bytes_per_parameter
