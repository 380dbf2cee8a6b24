"""The coming steps of a fused batch as arrays: how long each takes and what it emits.

With draft lengths that never change the steps until the next departure are known at once. Where a rule chooses them
anew at every step they are walked through one after another, still without an event each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from balancesim.acceptance import AcceptanceLaw
from balancesim.core.fused import DepthSums, DraftRule, FusedMembers, depth_sums, fused_steps_s
from balancesim.core.server import ServerSpec
from balancesim.core.speculation import ROUNDING
from balancesim.processes.resident import Resident
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Running totals at the end of each coming step."""

    ends_s: FloatArray  #: GPU time
    decode_s: FloatArray  #: of target passes that verify nothing
    draft_s: FloatArray
    verify_s: FloatArray
    tokens: IntArray

    @staticmethod
    def of(draft_s: FloatArray, target_s: FloatArray, tokens: FloatArray) -> "StepPlan":
        """Return the totals from the parts of each step and the tokens out after each, beginning with those now."""
        verify_s = np.where(draft_s > 0, target_s, 0.0)
        parts = (draft_s + target_s, target_s - verify_s, draft_s, verify_s)
        ends_s, decode_s, draft_s, verify_s = (np.cumsum(part) for part in parts)
        return StepPlan(ends_s, decode_s, draft_s, verify_s, (tokens[1:] - tokens[0]).astype(np.int64))


@dataclass(slots=True, eq=False)
class RuledResident(Resident):
    """A resident whose draft lengths a rule chooses; what is planned of its rounds is written into its arrays."""

    kept: FloatArray = None  # type: ignore[assignment]  #: `AcceptanceLaw.kept_by_depth`
    progress: FloatArray = None  # type: ignore[assignment]  #: tokens after the first, not rounded, after each round
    drafted: IntArray = None  # type: ignore[assignment]  #: tokens drafted, after each round

    @classmethod
    def of(cls, base: Resident, law: AcceptanceLaw, stream: KeyedStream) -> Self:
        """Return a resident with its luck for rounds of any length up to its longest draft."""
        visit = base.visit
        kept = law.kept_by_depth(visit.request, visit.draft_length or 0, stream)
        most = max(1, visit.request.output_tokens - 1)  # a round emits a token at least
        emitted, drafted = np.zeros(most, np.int64), np.zeros(most, np.int64)
        return cls(
            visit, base.order, base.reserved_tokens, emitted, kept=kept, progress=np.zeros(most), drafted=drafted
        )

    def rounds_done(self, step: int) -> int:
        """Return the rounds done when the process has done ``step`` steps."""
        return self.steps_done + step - self.joined_step

    def pause(self, step: int) -> None:
        """Settle what is out, and what was drafted for it."""
        super(RuledResident, self).pause(step)  # by name: dataclasses with slots are made twice
        self.visit.drafted_tokens = int(self.drafted[self.steps_done - 1]) if self.steps_done else 0


def draft_length_of(resident: Resident) -> int:
    """Return a member's (longest) draft length; 0 for AD."""
    return 0 if resident.emitted is None else resident.visit.draft_length or 0


def constant_plan(server: ServerSpec, members: Sequence[Resident], step: int, steps: int) -> StepPlan:
    """Return the next steps of a batch in which nobody's draft length changes.

    ``steps`` must not exceed those until the first member is done. Costs array operations, and one of them a member.
    """
    count: dict[int, int] = {}
    contexts: dict[int, FloatArray] = {}  # by draft length, before each step and after the last
    for resident in members:
        length = draft_length_of(resident)
        if length not in count:
            count[length], contexts[length] = 0, np.zeros(steps + 1)
        count[length] += 1
        prompt = resident.visit.request.prompt_tokens
        if resident.emitted is None:
            contexts[length][0] += prompt + resident.tokens_at(step)
        else:
            done = resident.steps_done + step - resident.joined_step
            contexts[length][0] += prompt + resident.tokens_at(step)
            contexts[length][1:] += prompt + resident.emitted[done : done + steps]
    if 0 in count:
        contexts[0] = contexts[0][0] + count[0] * np.arange(steps + 1.0)
    deepest = max(count)
    sequences = [float(sum(b for length, b in count.items() if length >= depth)) for depth in range(deepest + 1)]
    sums = [np.sum([c for length, c in contexts.items() if length >= depth], axis=0) for depth in range(deepest + 1)]
    cost = fused_steps_s(server, DepthSums(sequences, [total[:-1] for total in sums]))
    return StepPlan.of(cost.draft_s, cost.verify_s, sums[0])


def ruled_plan(server: ServerSpec, rule: DraftRule, members: Sequence[Resident], step: int, steps: int) -> StepPlan:
    """Return up to ``steps`` next steps with the lengths that a rule chooses, and write them into its residents.

    Ends with the step in which a member is done or outgrows its reservation.
    """
    batch = _Walk(members, step)
    draft_s, target_s = np.zeros(steps), np.zeros(steps)
    lengths = np.zeros((steps, len(members)), np.int64)
    tokens, progress = np.zeros((steps + 1, len(members))), np.zeros((steps, len(members)))
    tokens[0] = batch.tokens()
    walked = 0
    while walked < steps:
        context = batch.prompt + tokens[walked]
        chosen = rule.lengths(server, FusedMembers(context, batch.rate, batch.longest))
        if (chosen < 0).any() or (chosen > batch.longest).any():
            raise ValueError(f"draft_rule must give lengths from 0 to {batch.longest.tolist()}, got {chosen.tolist()}")
        cost = fused_steps_s(server, depth_sums(chosen, context))
        draft_s[walked], target_s[walked], lengths[walked] = cost.draft_s, cost.verify_s, chosen
        batch.advance(chosen)
        progress[walked] = batch.progress
        walked += 1
        tokens[walked] = batch.tokens()
        if (tokens[walked] >= batch.target).any():
            break
    for place, resident in enumerate(members):
        if isinstance(resident, RuledResident):
            _write(resident, step, (tokens[1 : walked + 1, place], progress[:walked, place], lengths[:walked, place]))
    return StepPlan.of(draft_s[:walked], target_s[:walked], tokens[: walked + 1].sum(axis=1))


def _write(resident: RuledResident, step: int, columns: tuple[FloatArray, FloatArray, IntArray]) -> None:
    assert resident.emitted is not None
    tokens, progress, lengths = columns
    done = resident.rounds_done(step)
    span = slice(done, done + len(tokens))
    before = int(resident.drafted[done - 1]) if done else 0
    resident.emitted[span], resident.progress[span] = tokens, progress
    resident.drafted[span] = before + np.cumsum(lengths)


class _Walk:
    """Members side by side as arrays, moved on round by round."""

    def __init__(self, members: Sequence[Resident], step: int) -> None:
        requests = [resident.visit.request for resident in members]
        self.prompt = np.array([request.prompt_tokens for request in requests], dtype=float)
        self.rate = np.array([request.predicted_acceptance_rate for request in requests])
        self.longest = np.array([draft_length_of(resident) for resident in members])
        self.target = np.array([max(r.target_tokens, r.tokens_at(step) + 1) for r in members])
        self.last = np.array([request.output_tokens - 1 for request in requests])
        tables = [_table(resident) for resident in members]
        sizes = np.array([table.size for table in tables])
        self._kept = np.concatenate([table.ravel() for table in tables])
        self._base = np.cumsum(sizes) - sizes
        self._stride = np.array([table.shape[1] if len(table) > 1 else 0 for table in tables])
        self.progress = np.array([_progress(resident, step) for resident in members])

    def advance(self, lengths: IntArray) -> None:
        """One round of everybody."""
        row = self.progress.astype(np.int64)
        self.progress += 1.0 + self._kept[self._base + row * self._stride + lengths]

    def tokens(self) -> FloatArray:
        """Return the answer tokens out."""
        whole = np.floor(self.progress * (1.0 + ROUNDING))
        return np.asarray(1.0 + np.minimum(whole, self.last))


def _table(resident: Resident) -> FloatArray:
    return resident.kept if isinstance(resident, RuledResident) else np.zeros((1, 1))


def _progress(resident: Resident, step: int) -> float:
    if isinstance(resident, RuledResident):
        done = resident.rounds_done(step)
        return float(resident.progress[done - 1]) if done else 0.0
    return resident.tokens_at(step) - 1.0
