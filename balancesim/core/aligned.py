"""Aligned prediction of a continuous lane: all prefills first, then common steps that members leave when done.

Work until member k's last token, at the whole GPU, in seconds:

    w_k = prefill(all that need it, one pass) + Σ_{i=1..r_k} step(b_i, Σ context_i)
    b_i = number of members with r ≥ i;   context of member k at step i: c_k + (i−1)·E_k

r_k are the steps left: decode steps for AD (E = 1), planned rounds for SD (E tokens a round). The first prefill emits a
token, so its steps start at context s + 1; a prefill that rebuilds a dropped cache emits none.
"""

from dataclasses import dataclass, replace

import numpy as np

from balancesim.core.candidates import Candidates
from balancesim.core.decision import Lane
from balancesim.core.latency import decode_steps_s, prefill_s, rounds_s
from balancesim.core.memory import request_kv_bytes, speculates
from balancesim.core.problem import Residents, tolerance
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from balancesim.core.speculation import expected_tokens_per_round, planned_rounds
from balancesim.units import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class AlignedLane:
    """Members that a lane has or may get, as columns; ``server`` and ``draft_length`` (0 = AD) give the costs."""

    server: ServerSpec
    draft_length: int
    steps: IntArray  #: r_k
    context_tokens: FloatArray  #: c_k, at the first step
    tokens_per_step: FloatArray  #: E_k
    prefill_tokens: FloatArray  #: 0 = none needed
    start_s: FloatArray  #: rest of the upload, or of loading the draft model if that takes longer
    slack_s: FloatArray
    reserved_bytes: FloatArray

    def take(self, index: IntArray | BoolArray) -> "AlignedLane":
        """Return the rows selected."""
        columns = {k: v[index] for k, v in vars(self).items() if k not in ("server", "draft_length")}
        return AlignedLane(self.server, self.draft_length, **columns)

    def prefill_work_s(self, present: FloatArray) -> FloatArray:
        """Return the prefill time of rows of members, (…, M) → (…)."""
        needed = (self.prefill_tokens > 0).astype(float)
        count, tokens, squares = (present @ x for x in (needed, self.prefill_tokens, self.prefill_tokens**2))
        mode = Mode.SD if self.draft_length else Mode.AD
        work = prefill_s(self.server, mode, np.maximum(count, 1.0), tokens, squares)
        return np.where(count > 0, work, 0.0)

    def step_s(self, sequences: FloatArray, contexts: FloatArray) -> FloatArray:
        """Return the time of one step or round."""
        if self.draft_length:
            return rounds_s(self.server, sequences, contexts, self.draft_length).total_s
        return np.asarray(decode_steps_s(self.server, sequences, contexts), dtype=float)

    def work_s(self) -> FloatArray:
        """Return w_k with all rows as members: the sum over every step."""
        if len(self.steps) == 0:
            return np.empty(0)
        order = np.argsort(self.steps, kind="stable")
        step = np.arange(1, self.steps[order[-1]] + 1)
        first = np.searchsorted(self.steps[order], step)  # members order[first:] are still there at this step
        active, context, growth = (
            np.cumsum(column[order][::-1])[::-1][first]
            for column in (np.ones(len(order)), self.context_tokens, self.tokens_per_step)
        )
        elapsed = np.concatenate(([0.0], np.cumsum(self.step_s(active, context + (step - 1) * growth))))
        return self.prefill_work_s(np.ones(len(order))) + elapsed[self.steps]


def candidate_rows(
    server: ServerSpec, lane: Lane, candidates: Candidates, reserved_tokens: IntArray, load_s: float
) -> AlignedLane:
    """Return candidates as new members of a lane that reserve so many tokens."""
    gamma = lane.draft_length if speculates(lane.mode, lane.draft_length) else 0
    prompt, output = candidates.prompt_tokens.astype(float), candidates.output_tokens
    reserved = np.asarray(request_kv_bytes(server, lane.mode, gamma, reserved_tokens.astype(float)), dtype=float)
    return AlignedLane(
        server=server,
        draft_length=gamma,
        steps=_steps(output - 1, candidates.acceptance_rate, gamma),
        context_tokens=prompt + 1.0,
        tokens_per_step=_tokens_per_step(candidates.acceptance_rate, gamma),
        prefill_tokens=prompt,
        start_s=np.maximum(candidates.upload_s, load_s),
        slack_s=candidates.slack_s,
        reserved_bytes=reserved,
    )


def resident_rows(server: ServerSpec, lane: Lane, residents: Residents, load_s: float) -> AlignedLane:
    """Return the residents of a lane. Those already late impose nothing: their slack is infinite."""
    mine = residents.lane_id == lane.lane_id
    gamma = lane.draft_length if speculates(lane.mode, lane.draft_length) else 0
    needs = residents.needs_prefill[mine]
    first_token = needs & (residents.tokens_out[mine] == 0)
    slack, context = residents.slack_s[mine], residents.context_tokens[mine].astype(float)
    return AlignedLane(
        server=server,
        draft_length=gamma,
        steps=_steps(residents.remaining_tokens[mine] - first_token, residents.acceptance_rate[mine], gamma),
        context_tokens=context + first_token,
        tokens_per_step=_tokens_per_step(residents.acceptance_rate[mine], gamma),
        prefill_tokens=np.where(needs, context, 0.0),
        start_s=np.maximum(residents.upload_s[mine], load_s),
        slack_s=np.where(slack < 0, np.inf, slack),
        reserved_bytes=residents.reserved_bytes[mine],
    )


def binding(rows: AlignedLane, gpu_share: float) -> AlignedLane:
    """Return residents with the deadlines that can still be kept: the others impose nothing (slack = inf).

    A deadline counts when it is met with the share in force and no new members: a decision must not break it, and going
    on as before always keeps every deadline that counts.
    """
    if not np.isfinite(rows.slack_s).any():
        return rows
    finish_s = rows.start_s + (rows.work_s() / gpu_share if gpu_share > 0 else np.inf)
    kept = finish_s <= rows.slack_s + tolerance(rows.slack_s)
    return replace(rows, slack_s=np.where(kept, rows.slack_s, np.inf))


def joined(first: AlignedLane, second: AlignedLane) -> AlignedLane:
    """Return the rows of both, in this order."""
    columns = {
        k: np.concatenate((v, getattr(second, k)))
        for k, v in vars(first).items()
        if k not in ("server", "draft_length")
    }
    return AlignedLane(first.server, first.draft_length, **columns)


def _steps(tokens: IntArray, acceptance_rate: FloatArray, draft_length: int) -> IntArray:
    if draft_length == 0:
        return tokens
    return np.asarray(planned_rounds(tokens + 1, acceptance_rate, draft_length), dtype=np.int64)


def _tokens_per_step(acceptance_rate: FloatArray, draft_length: int) -> FloatArray:
    if draft_length == 0:
        return np.ones(len(acceptance_rate))
    return np.asarray(expected_tokens_per_round(acceptance_rate, draft_length), dtype=float)
