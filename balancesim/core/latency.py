"""GPU time of prefill, decode steps and speculative rounds of a batch, with the whole GPU (model.md §3-§5).

Everything is elementwise over arrays: a sequence of steps is one call with an array of context sums.
"""

from dataclasses import dataclass

import numpy as np

from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from balancesim.core.work import ForwardPass, Phase, decode_pass, prefill_pass, verify_pass
from balancesim.units import FloatArray, Numeric


@dataclass(frozen=True, slots=True)
class RoundCost:
    """GPU time of speculative rounds, by part."""

    draft_s: FloatArray
    verify_s: FloatArray

    @property
    def total_s(self) -> FloatArray:
        """Draft and verification together."""
        return self.draft_s + self.verify_s


@dataclass(frozen=True, slots=True)
class StepCost:
    """GPU time of one step, by part."""

    prefill_s: float
    decode_s: float
    draft_s: float
    verify_s: float

    @property
    def total_s(self) -> float:
        """All parts together."""
        return self.prefill_s + self.decode_s + self.draft_s + self.verify_s


def prefill_s(
    server: ServerSpec, mode: Mode, sequences: Numeric, prompt_tokens: Numeric, squared_prompt_tokens: Numeric
) -> Numeric:
    """Return the prefill time of a batch with the given Σ s and Σ s²; SD also prefills the draft model."""
    work = prefill_pass(prompt_tokens, squared_prompt_tokens, sequences)
    target = server.target_s(Phase.PREFILL, work)
    return target + server.draft_s(Phase.PREFILL, work) if mode is Mode.SD else target


def decode_steps_s(server: ServerSpec, sequences: Numeric, context_tokens: Numeric) -> Numeric:
    """Return the time of AD steps: ``sequences`` requests whose contexts sum to ``context_tokens``."""
    return _each(server.target_s(Phase.DECODE, decode_pass(sequences, context_tokens)), context_tokens)


def rounds_s(server: ServerSpec, sequences: Numeric, context_tokens: Numeric, draft_length: int) -> RoundCost:
    """Return the time of SD rounds that start at contexts summing to ``context_tokens``.

    γ draft passes at contexts c, c+1, …, c+γ−1, then one target pass over γ+1 rows. γ = 0 is an AD step.
    """
    context = np.asarray(context_tokens, dtype=float)
    verify = np.asarray(_each(server.target_s(Phase.VERIFY, verify_pass(sequences, context, draft_length)), context))
    draft = np.zeros_like(verify)
    for depth in range(draft_length):
        draft = draft + server.draft_s(Phase.DECODE, decode_pass(sequences, context + depth * np.asarray(sequences)))
    return RoundCost(draft, verify)


@dataclass(frozen=True, slots=True)
class Batch:
    """The running requests that share a pass with prefill chunks: their number and the sum of their contexts."""

    sequences: float
    context_tokens: float


def mixed_cost(server: ServerSpec, draft_length: int, chunk: ForwardPass, running: Batch) -> StepCost:
    """Return the GPU time of one step that prefills chunks of prompts while ``running`` requests decode (or verify).

    One pass of the target over all rows. With γ > 0 the draft model first drafts for the running ones, then prefills
    the same chunks. ``prefill_s`` is what the chunks add to the step that would run without them.
    """
    size, context = running.sequences, np.array([running.context_tokens])
    if size == 0:
        whole = server.target_s(Phase.PREFILL, chunk)
        drafted = server.draft_s(Phase.PREFILL, chunk) if draft_length else 0.0
        return StepCost(float(whole) + float(drafted), 0.0, 0.0, 0.0)
    if draft_length:
        alone = rounds_s(server, size, context, draft_length)
        work = verify_pass(size, running.context_tokens, draft_length)
        both = float(server.target_mixed_s(chunk, Phase.VERIFY, work)) + float(server.draft_s(Phase.PREFILL, chunk))
        verify = float(alone.verify_s[0])
        return StepCost(max(0.0, both - verify), 0.0, float(alone.draft_s[0]), min(verify, both))
    work = decode_pass(size, running.context_tokens)
    both = float(server.target_mixed_s(chunk, Phase.DECODE, work))
    decode = float(np.sum(decode_steps_s(server, size, context)))
    return StepCost(max(0.0, both - decode), min(decode, both), 0.0, 0.0)


def _each(times_s: Numeric, context_tokens: Numeric) -> Numeric:
    """Return one time per context: a law that ignores the context answers with a single number."""
    if isinstance(times_s, np.ndarray) and isinstance(context_tokens, np.ndarray):  # the usual case, without detours
        shape = context_tokens.shape
        return times_s if times_s.shape == shape else np.broadcast_to(times_s, shape)
    shape = np.shape(context_tokens)
    return times_s if np.shape(times_s) == shape else np.broadcast_to(times_s, shape)
