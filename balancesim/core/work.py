"""The work of one forward pass of a batch, as every cost law sees it.

A pass is described by five sums over its rows, so that prefill, decoding, drafting and verification are one case, and a
whole sequence of passes is the same object with arrays for numbers.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.units import Numeric


class Phase(StrEnum):
    """What a pass is for; the law ``flops`` has one coefficient for each (model.md §3)."""

    PREFILL = "prefill"
    DECODE = "decode"  #: one new token a sequence, on the target or on the draft model
    VERIFY = "verify"  #: draft_length + 1 new tokens a sequence, on the target


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """Sums over the rows of one pass (or, elementwise, of many passes)."""

    sequences: Numeric  #: requests in the batch
    new_tokens: Numeric  #: rows: Σ q_k
    attention_pairs: Numeric  #: Σ over rows of the context that the row attends to
    kv_tokens: Numeric  #: cached tokens read once by the pass: Σ over sequences of the context
    head_rows: Numeric  #: rows that need logits


def prefill_pass(prompt_tokens: Numeric, squared_prompt_tokens: Numeric, sequences: Numeric) -> ForwardPass:
    """Return the prefill of prompts with the given Σ s and Σ s² (the causal half is not taken off, model.md §3)."""
    return ForwardPass(sequences, prompt_tokens, squared_prompt_tokens, 0.0 * sequences, sequences)


def chunk_pass(
    sequences: Numeric, new_tokens: Numeric, attention_pairs: Numeric, cached_tokens: Numeric
) -> ForwardPass:
    """Return the pass of one chunk of each of some prompts; q new tokens behind p cached ones count 2pq + q² pairs.

    So counted, the chunks of a prompt add up to the s² of its prefill in one piece: chunking moves work, it adds only
    the reading of what is cached (Σ p) and what a pass costs at least.
    """
    return ForwardPass(sequences, new_tokens, attention_pairs, cached_tokens, sequences)


def merged(first: ForwardPass, second: ForwardPass) -> ForwardPass:
    """Return one pass with the rows of both: the weights are read once."""
    return ForwardPass(
        first.sequences + second.sequences,
        first.new_tokens + second.new_tokens,
        first.attention_pairs + second.attention_pairs,
        first.kv_tokens + second.kv_tokens,
        first.head_rows + second.head_rows,
    )


def decode_pass(sequences: Numeric, context_tokens: Numeric) -> ForwardPass:
    """Return one decode step of ``sequences`` requests whose contexts sum to ``context_tokens``."""
    return ForwardPass(sequences, sequences, context_tokens, context_tokens, sequences)


def verify_pass(sequences: Numeric, context_tokens: Numeric, draft_length: int) -> ForwardPass:
    """Return the verification of γ drafts a sequence: γ+1 rows, row j at its own context c + j.

    Σ over rows of the context is (γ+1)·Σc + b·γ(γ+1)/2; the cache is read once, up to the last row: Σc + b·γ.
    With γ = 0 it equals `decode_pass`.
    """
    rows = draft_length + 1
    pairs = rows * context_tokens + sequences * (draft_length * rows / 2)
    return ForwardPass(sequences, sequences * rows, pairs, context_tokens + sequences * draft_length, sequences * rows)


def pass_flops(llm: LlmSpec, work: ForwardPass) -> Numeric:
    """Return the FLOPs of a pass: rows · flops_per_token + pairs · flops_per_pair + head rows · flops_per_head_row.

    FLOPs are twice the multiply-adds of the matrix products; norms, rotary positions and softmax are left out
    (model.md §3). Scalars go first, so that a batch of constant size over many contexts costs two array operations.
    """
    rows = llm.flops_per_token * work.new_tokens + llm.flops_per_head_row * work.head_rows
    return rows + llm.flops_per_pair * work.attention_pairs


class LatencyLaw(Protocol):
    """A cost law: the time of one forward pass of a batch with the whole GPU (model.md §3)."""

    name: ClassVar[str]

    def forward_s(self, llm: LlmSpec, gpu: GpuSpec, phase: Phase, work: ForwardPass) -> Numeric:
        """Return seconds; a float for floats, elementwise for arrays. Must not fall when any sum of ``work`` rises."""
        ...

    def mixed_s(self, llm: LlmSpec, gpu: GpuSpec, chunk: ForwardPass, phase: Phase, work: ForwardPass) -> Numeric:
        """Return the seconds of one pass over chunks of prompts and rows of a decode or verification phase.

        Only asked for where prompts are prefilled in chunks (``token_budget``).
        """
        ...
