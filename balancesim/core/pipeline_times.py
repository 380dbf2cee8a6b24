"""Time of each round of each batch on the two nodes of the pipeline (model.md §7)."""

from dataclasses import dataclass

import numpy as np

from balancesim.core.pipeline_instance import PipelineInstance, rounds_needed
from balancesim.core.pipeline_nodes import NodePair, PipelineNode
from balancesim.core.work import ForwardPass, Phase, decode_pass, prefill_pass, verify_pass
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True)
class BatchTimes:
    """T_d and T_v of B batches (rows) over N rounds.

    Round 1 holds the prefills and stands alone; rounds 2..N are linear interpolations between ``knots``, so that a sum
    over the rounds costs O(1) per batch.
    """

    rounds: int  #: N
    sizes: IntArray  #: b_m, shape (B,)
    inputs: IntArray  #: Î_m, shape (B,)
    draft_first_s: FloatArray  #: shape (B,)
    verify_first_s: FloatArray
    draft_knots_s: FloatArray  #: shape (B, P)
    verify_knots_s: FloatArray
    draft_weights: FloatArray  #: shape (N−1, P): rounds 2..N = weights · knots
    verify_weights: FloatArray
    to_mbs_s: FloatArray  #: fronthaul, shape (B,)
    to_sbs_s: FloatArray

    @property
    def draft_sum_s(self) -> FloatArray:
        """Σ_n T_d of every batch."""
        return np.asarray(self.draft_first_s + self.draft_knots_s @ self.draft_weights.sum(axis=0))

    @property
    def verify_sum_s(self) -> FloatArray:
        """Σ_n T_v of every batch."""
        return np.asarray(self.verify_first_s + self.verify_knots_s @ self.verify_weights.sum(axis=0))

    @property
    def loop_sum_s(self) -> FloatArray:
        """Time of a batch alone in the pipeline: Σ_n (T_d + T_v) and every fronthaul crossing."""
        crossings = self.rounds * self.to_mbs_s
        if self.rounds > 1:  # 0 · inf is no number
            crossings = crossings + (self.rounds - 1) * self.to_sbs_s
        return self.draft_sum_s + self.verify_sum_s + crossings

    @property
    def verify_last_s(self) -> FloatArray:
        """T_v of round N."""
        return self.verify_first_s if self.rounds == 1 else np.asarray(self.verify_knots_s @ self.verify_weights[-1])

    def draft_s(self, rows: IntArray | list[int]) -> FloatArray:
        """Return T_d of the chosen batches, shape (N, len(rows))."""
        return np.vstack([self.draft_first_s[rows], self.draft_weights @ self.draft_knots_s[rows].T])

    def verify_s(self, rows: IntArray | list[int]) -> FloatArray:
        """Return T_v of the chosen batches, shape (N, len(rows))."""
        return np.vstack([self.verify_first_s[rows], self.verify_weights @ self.verify_knots_s[rows].T])


@dataclass(frozen=True, slots=True)
class Answers:
    """How many rounds the batches run, and how far that takes the context."""

    draft_length: int  #: l; 0 = autoregressive decoding on the MBS
    rounds: int  #: N
    output_tokens: int  #: O_max: the answers are padded to it


def batch_times(instance: PipelineInstance, sizes: IntArray, inputs: IntArray, draft_length: int) -> BatchTimes:
    """Return the round times of batches of ``sizes`` tasks with longest inputs ``inputs`` (padded [P2]).

    N and O_max are those of all the instance's tasks: `round_times` has the equations.
    """
    rounds = rounds_needed(instance.tasks, draft_length)
    answers = Answers(draft_length, rounds, instance.longest_output_tokens)
    return round_times(instance.nodes, sizes, inputs, answers)


def round_times(nodes: NodePair, sizes: IntArray, inputs: IntArray, answers: Answers) -> BatchTimes:
    """Return T_d and T_v of batches of ``sizes`` sequences with longest inputs ``inputs``.

    T_d(n,m) = Σ_{i=1..l} T(b_m, F_d^i(n)) and T_v(n,m) = T(b_m, F_v(n)). The batch's context before round n is
    c_n = Î_m + (n−1)·O_max/N: the answer grows evenly, up to O_max [A].

    - Round 1, SBS: the prefill of Î_m tokens gives draft 1, l−1 decode passes the others. MBS: one pass over prompt and
      drafts, Î_m + l rows a sequence, of which l+1 need logits [A].
    - Round n > 1, SBS: l decode passes at contexts c_n..c_n+l−1. MBS: l+1 rows at c_n..c_n+l.
    - l = 0 is autoregressive decoding on the MBS: the prefill gives token 1, each further round one token.
    """
    rounds, length = answers.rounds, answers.draft_length
    growth = answers.output_tokens / rounds
    batch = _Batches(sizes, inputs, length)
    draft_weights, draft_contexts = _knots(inputs, growth, rounds, nodes.draft.context_points)
    verify_weights, verify_contexts = _knots(inputs, growth, rounds, nodes.target.context_points)
    draft_first, verify_first = batch.first_round_s(nodes.draft, nodes.target)
    return BatchTimes(
        rounds=rounds,
        sizes=sizes,
        inputs=inputs,
        draft_first_s=draft_first,
        verify_first_s=verify_first,
        draft_knots_s=batch.draft_s(nodes.draft, draft_contexts, length),
        verify_knots_s=batch.verify_s(nodes.target, verify_contexts),
        draft_weights=draft_weights,
        verify_weights=verify_weights,
        to_mbs_s=nodes.fronthaul.to_mbs_s(sizes, length),
        to_sbs_s=nodes.fronthaul.to_sbs_s(sizes, length),
    )


def contiguous_times(instance: PipelineInstance, draft_length: int) -> BatchTimes:
    """Return the times of all contiguous batches of the instance's tasks, which must be sorted by input length.

    Tasks j..i (from 0, both included) are row i·(i+1)/2 + j (`row_of`); O(K²) rows.
    """
    inputs = instance.tasks.prompt_tokens
    if np.any(np.diff(inputs) < 0):
        raise ValueError("tasks must be sorted by prompt_tokens")
    last = np.repeat(np.arange(len(inputs)), np.arange(1, len(inputs) + 1))
    first = np.concatenate([np.arange(i + 1) for i in range(len(inputs))])
    return batch_times(instance, last - first + 1, inputs[last], draft_length)


def row_of(first: int, last: int) -> int:
    """Return the row of the contiguous batch first..last in `contiguous_times`."""
    return last * (last + 1) // 2 + first


@dataclass(frozen=True)
class _Batches:
    """Forward passes of B batches; contexts have shape (B, P)."""

    sizes: IntArray
    inputs: IntArray
    draft_length: int

    def first_round_s(self, draft: PipelineNode, target: PipelineNode) -> tuple[FloatArray, FloatArray]:
        size, prompt, length = self.sizes.astype(float), self.inputs.astype(float), self.draft_length
        drafting = np.zeros(len(size))
        if length:
            drafting = drafting + _time(draft, Phase.PREFILL, prefill_pass(size * prompt, size * prompt**2, size))
            drafting = drafting + self.draft_s(draft, prompt[:, None] + 1, length - 1)[:, 0]
        rows = prompt + length
        work = ForwardPass(size, size * rows, size * rows**2, 0.0 * size, size * (length + 1))
        return drafting, np.asarray(_time(target, Phase.PREFILL, work))

    def draft_s(self, node: PipelineNode, contexts: FloatArray, passes: int) -> FloatArray:
        size = self.sizes[:, None].astype(float)
        total = np.zeros(contexts.shape)
        for depth in range(passes):
            total += _time(node, Phase.DECODE, decode_pass(size + 0 * contexts, size * (contexts + depth)))
        return total

    def verify_s(self, node: PipelineNode, contexts: FloatArray) -> FloatArray:
        size = self.sizes[:, None].astype(float)
        phase = Phase.VERIFY if self.draft_length else Phase.DECODE
        return np.asarray(_time(node, phase, verify_pass(size + 0 * contexts, size * contexts, self.draft_length)))


def _time(node: PipelineNode, phase: Phase, work: ForwardPass) -> FloatArray:
    return np.asarray(node.law.forward_s(node.llm, node.gpu, phase, work), dtype=float)


def _knots(inputs: IntArray, growth: float, rounds: int, points: int) -> tuple[FloatArray, FloatArray]:
    """Return interpolation weights (N−1, P) of rounds 2..N and the contexts (B, P) at the knots."""
    position = np.linspace(0.0, max(rounds - 2, 0), points)  # knots, counted in rounds after round 2
    step = np.arange(max(rounds - 1, 0))[:, None]
    width = position[1] or 1.0
    weights = np.clip(1 - np.abs(step - position) / width, 0.0, 1.0)
    if rounds == 2:  # one round: all knots coincide
        weights = np.eye(1, points)
    return weights, inputs[:, None] + growth * (1 + position)
