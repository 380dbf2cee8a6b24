"""GPU time of a padded static batch, C^A and C^S of model.md §5, in O(1) a batch after a table per batch size.

Every member of a static batch is padded to the longest prompt S, the longest answer N and (SD) the most rounds I:

    C^A(b, S, N)    = prefill_L(b, S) + Σ_{t=1..N−1} step_L(b, S+t)
    C^S(b, S, N, I) = prefill_L(b, S) + prefill_S(b, S) + I · mean_{t=1..N−1} round_b(S+t)          (0 rounds for N = 1)
    round_b(c)      = Σ_{j<γ} draft(b, c+j) + verify(b, γ+1, c)

The rounds are spread evenly over the answer's contexts [A: the paper does not say at which context a round runs]. With
γ = 0 and I = N−1, C^S is C^A. Sums over t are differences of prefix sums over integer contexts, so any cost law works.
"""

from dataclasses import dataclass

import numpy as np

from balancesim.core.latency import decode_steps_s, prefill_s, rounds_s
from balancesim.core.memory import speculates
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from balancesim.units import FloatArray, IntArray, Numeric

_SMALLEST_TABLE = (8, 256)  # rows (batch sizes) and columns (contexts)


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Size and paddings of a batch; integers, or integer arrays of one shape for many batches at once."""

    requests: int | IntArray  #: b ≥ 1
    prompt_tokens: int | IntArray  #: S
    output_tokens: int | IntArray  #: N ≥ 1
    rounds: int | IntArray = 0  #: I; only read when the lane speculates


@dataclass(frozen=True, slots=True)
class BatchCost:
    """GPU seconds of a batch at the whole GPU, by part; floats, or arrays of the shape's form."""

    prefill_s: Numeric
    decode_s: Numeric
    draft_s: Numeric
    verify_s: Numeric

    @property
    def total_s(self) -> Numeric:
        """C: all parts together."""
        return self.prefill_s + self.decode_s + self.draft_s + self.verify_s


class StepTable:
    """Prefix sums over contexts of one lane's step times, one row a batch size; grown on demand, in powers of two.

    ``parts[p][b, c]`` = Σ_{x=1..c} time of part p at batch size b and context x: the step for AD; draft and
    verification for SD.
    """

    def __init__(self, server: ServerSpec, draft_length: int) -> None:
        self.server = server
        self.draft_length = draft_length
        self.parts: tuple[FloatArray, ...] = ()
        self.total_s: FloatArray = np.zeros((0, 0))  #: [b, c]: all parts together
        self.prefill_s: FloatArray = np.zeros((0, 0))  #: [b, S]: prefill of b prompts of S tokens

    def cover(self, requests: int, context_tokens: int) -> None:
        """Make the table valid up to these values."""
        rows, columns = self.total_s.shape
        if requests < rows and context_tokens < columns:
            return
        rows, columns = max(rows, _SMALLEST_TABLE[0]), max(columns, _SMALLEST_TABLE[1])
        while rows <= requests:
            rows *= 2
        while columns <= context_tokens:
            columns *= 2
        # Row 0 and column 0 are never read as steps: laws need not be defined for empty batches and contexts.
        sequences = np.maximum(np.arange(rows, dtype=float), 1.0)[:, None]
        contexts = sequences * np.maximum(np.arange(columns, dtype=float), 1.0)
        self.parts = tuple(np.cumsum(_without_origin(part), axis=1) for part in self._steps(sequences, contexts))
        self.total_s = self.parts[0] + self.parts[1] if self.draft_length else self.parts[0]
        mode = Mode.SD if self.draft_length else Mode.AD
        squares = contexts * np.maximum(np.arange(columns, dtype=float), 1.0)
        self.prefill_s = np.asarray(prefill_s(self.server, mode, sequences, contexts, squares), dtype=float)

    def _steps(self, sequences: FloatArray, contexts: FloatArray) -> tuple[FloatArray, ...]:
        if self.draft_length == 0:
            return (np.asarray(decode_steps_s(self.server, sequences, contexts), dtype=float),)
        cost = rounds_s(self.server, sequences, contexts, self.draft_length)
        return (cost.draft_s, cost.verify_s)

    def sums(self, shape: BatchShape) -> tuple[Numeric, ...]:
        """Return Σ_{t=1..N−1} of every part for the shapes."""
        first = np.asarray(shape.prompt_tokens)
        last = first + np.asarray(shape.output_tokens) - 1
        self.cover(int(np.max(shape.requests)), int(np.max(last)))
        return tuple(part[shape.requests, last] - part[shape.requests, first] for part in self.parts)


def _without_origin(steps: FloatArray) -> FloatArray:
    steps = np.array(steps)
    steps[:, 0] = 0.0
    return steps


def step_table(server: ServerSpec, mode: Mode, draft_length: int) -> StepTable:
    """Return the server's table for AD or for SD with this γ, made once per server."""
    key = draft_length if speculates(mode, draft_length) else 0
    table: StepTable = server.tables.setdefault(("padded", key), StepTable(server, key))
    return table


def padded_cost(server: ServerSpec, mode: Mode, draft_length: int, shape: BatchShape) -> BatchCost:
    """Return C^A or C^S of padded batches with the whole GPU, in seconds and by part. Scalars in, scalars out."""
    table = step_table(server, mode, draft_length)
    drafting = table.draft_length > 0
    requests, prompt = np.asarray(shape.requests, dtype=float), np.asarray(shape.prompt_tokens, dtype=float)
    prefill = prefill_s(server, Mode.SD if drafting else Mode.AD, requests, requests * prompt, requests * prompt**2)
    sums = table.sums(shape)
    if not drafting:
        return _floats(BatchCost(prefill, sums[0], 0.0 * sums[0], 0.0 * sums[0]))
    share = np.asarray(shape.rounds) / np.maximum(np.asarray(shape.output_tokens) - 1, 1)
    return _floats(BatchCost(prefill, 0.0 * sums[0], share * sums[0], share * sums[1]))


def _floats(cost: BatchCost) -> BatchCost:
    if np.ndim(cost.draft_s) or np.ndim(cost.prefill_s):
        return cost
    return BatchCost(*(float(part) for part in (cost.prefill_s, cost.decode_s, cost.draft_s, cost.verify_s)))


@dataclass(frozen=True, slots=True)
class Members:
    """The requests of one batch as columns, each with its own lengths; at least one."""

    prompt_tokens: IntArray
    output_tokens: IntArray
    rounds: IntArray  #: only read when the lane speculates

    def __len__(self) -> int:
        return len(self.prompt_tokens)


def padded_batch(server: ServerSpec, mode: Mode, draft_length: int, members: Members) -> BatchCost:
    """Return C^A or C^S of one batch: every member padded to the longest prompt, the longest answer, the most
    rounds."""
    columns = (members.prompt_tokens, members.output_tokens, members.rounds)
    prompt, output, rounds = (int(column.max()) for column in columns)
    return padded_cost(server, mode, draft_length, BatchShape(len(members), prompt, output, rounds))


def per_user_costs(server: ServerSpec, mode: Mode, draft_length: int, members: Members) -> BatchCost:
    """Return every member's own contribution C(1, s_k, n_k, I_k) to the cost form ``per_user``, as arrays."""
    shape = BatchShape(np.ones(len(members), np.int64), members.prompt_tokens, members.output_tokens, members.rounds)
    return padded_cost(server, mode, draft_length, shape)


def per_user_batch(server: ServerSpec, mode: Mode, draft_length: int, members: Members) -> BatchCost:
    """Return Σ_k C(1, s_k, n_k, I_k): the batch costs what its members cost one by one (model.md §5, `per_user`).

    The work of an unpadded batch under laws proportional to FLOPs; a law with a fixed part per pass charges it to every
    member, as if they ran one after another [A].
    """
    own = per_user_costs(server, mode, draft_length, members)
    return BatchCost(*(float(np.sum(part)) for part in (own.prefill_s, own.decode_s, own.draft_s, own.verify_s)))
