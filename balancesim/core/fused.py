"""One step of a mixed batch: drafts of some requests and one token of the others in one target pass (model.md §6).

A request k of a step has a draft length γ_k ≥ 0; γ_k = 0 is autoregressive decoding. The requests with γ_k ≥ j take
part in draft pass j, for j = 1 … max γ; then one target pass over Σ(1 + γ_k) rows verifies all drafts and decodes the
others, so that the weights are read once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from balancesim.core.latency import RoundCost
from balancesim.core.server import ServerSpec
from balancesim.core.work import ForwardPass, Phase, decode_pass, prefill_pass
from balancesim.units import FloatArray, IntArray, Numeric


@dataclass(frozen=True, slots=True)
class DepthSums:
    """A mixed batch (or, elementwise, many) by draft length: entry j is of the requests with γ_k ≥ j; entry 0 is all.

    Numbers of requests may be numbers or arrays; contexts are those before the step.
    """

    sequences: Sequence[Numeric]  #: b_j
    context_tokens: Sequence[Numeric]  #: C_j = Σ c_k


@dataclass(frozen=True, slots=True)
class FusedMembers:
    """The batch of a step as a draft rule sees it, one row a request."""

    context_tokens: FloatArray  #: c_k
    acceptance_rate: FloatArray  #: α_k, predicted
    longest_draft: IntArray  #: the largest draft length that the request may get; 0 for AD


class DraftRule(Protocol):
    """Chooses the draft lengths of a step."""

    def lengths(self, server: ServerSpec, members: FusedMembers) -> IntArray:
        """Return γ_k, 0 ≤ γ_k ≤ ``longest_draft``, for every member."""
        ...


def depth_sums(lengths: IntArray, context_tokens: FloatArray) -> DepthSums:
    """Return the sums of one batch with these draft lengths."""
    masks = [lengths >= depth for depth in range(int(lengths.max(initial=0)) + 1)]
    return DepthSums([float(mask.sum()) for mask in masks], [float(context_tokens[mask].sum()) for mask in masks])


def fused_prefill_s(server: ServerSpec, everyone: Iterable[float], drafting: Iterable[float]) -> float:
    """Return the prefill time of (requests, Σ s, Σ s²) on the target and, of those that may draft, on the draft."""
    count, tokens, squares = (float(x) for x in everyone)
    work_s = float(server.target_s(Phase.PREFILL, prefill_pass(tokens, squares, count)))
    count, tokens, squares = (float(x) for x in drafting)
    if count:
        work_s += float(server.draft_s(Phase.PREFILL, prefill_pass(tokens, squares, count)))
    return work_s


def fused_steps_s(server: ServerSpec, batch: DepthSums) -> RoundCost:
    """Return the time of fused steps: Σ_j draft pass j, and one target pass.

    Draft pass j: b_j requests at contexts c_k + j − 1. Target pass: Σ_j b_j rows, request k's at contexts
    c_k … c_k + γ_k, so Σ_j C_j + Σ_j j·b_j pairs; the cache is read up to each request's last row. With all γ_k = 0 it
    is an AD step, with all equal a round of speculation (`core.latency`). A pass that verifies anything is of phase
    VERIFY for all its rows [A]: under the law `flops` a riding token costs what a verified one does. Left out: the
    draft model's catching up on tokens that were decoded without it [A].
    """
    sequences, contexts = batch.sequences, batch.context_tokens
    rows, pairs = sequences[0], contexts[0]
    shape = np.broadcast_shapes(*(np.shape(x) for x in (*sequences, *contexts)))
    draft_s = np.zeros(shape)
    for depth in range(1, len(sequences)):
        count, context = sequences[depth], contexts[depth]
        rows, pairs = rows + count, pairs + context + depth * count
        present = np.greater(count, 0)
        if not present.any():
            continue
        pass_s = server.draft_s(Phase.DECODE, decode_pass(np.maximum(count, 1.0), context + (depth - 1) * count))
        draft_s = draft_s + (pass_s if present.all() else np.where(present, pass_s, 0.0))
    work = ForwardPass(sequences[0], rows, pairs, contexts[0] + (rows - sequences[0]), rows)
    return RoundCost(draft_s, np.broadcast_to(_target_s(server, batch, work), shape))


def _target_s(server: ServerSpec, batch: DepthSums, work: ForwardPass) -> Numeric:
    verifies = np.greater(batch.sequences[1], 0) if len(batch.sequences) > 1 else np.zeros((), dtype=np.bool_)
    if not verifies.any():
        return server.target_s(Phase.DECODE, work)
    verify_s = server.target_s(Phase.VERIFY, work)
    return verify_s if verifies.all() else np.where(verifies, verify_s, server.target_s(Phase.DECODE, work))
