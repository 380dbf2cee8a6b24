"""Lanes of the two-node pipeline: every lane of a decision is one batch, in the order of the batches (model.md §7)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.members import members_of, rows_of
from balancesim.core.memory import speculates
from balancesim.core.pipeline_ring import RingBatch, ring_ends
from balancesim.core.pipeline_times import Answers, round_times
from balancesim.core.problem import LanePrediction, Problem, SubProblem, tolerance
from balancesim.core.server import ServerSpec
from balancesim.core.speculation import planned_rounds
from balancesim.units import FloatArray, IntArray


def batch_kv_tokens(prompt_tokens: IntArray, output_tokens: IntArray) -> float:
    """Return the tokens of KV cache that a batch keeps on each of its nodes: b·(Î + O), padded to its longest."""
    if len(prompt_tokens) == 0:
        return 0.0
    return float(len(prompt_tokens) * (prompt_tokens.max() + output_tokens.max()))


@dataclass(frozen=True)
class _Batch:
    """What a prediction needs of one lane, members first new ones, then residents (one of the two is empty)."""

    request_id: IntArray
    context_tokens: IntArray  #: prompt, and for residents what is out
    left_tokens: IntArray
    acceptance_rate: FloatArray
    slack_s: FloatArray
    ready_s: float
    reserved_bytes: float
    prefilled: bool

    def rounds(self, draft_length: int) -> IntArray:
        """Return how many rounds every member needs: ⌈left/E⌉, each token of the answer included [P2]."""
        return np.asarray(planned_rounds(self.left_tokens + 1, self.acceptance_rate, draft_length), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PipelineLanes:
    """Two nodes in a pipeline: the SBS drafts batch after batch, the MBS verifies them (Zhu et al., 2510.11331)."""

    name: ClassVar[str] = "pipeline"
    runs_to_end: ClassVar[bool] = False

    #: a batch leaves when its members are done; False = all batches of a decision run as many rounds as the longest
    #: answer among them needs, as the paper counts
    early_exit: bool = True

    def predict(self, problem: Problem, lane: Lane) -> LanePrediction:
        """Return the prediction of a lane beside those that are under way, as if no other batch were added."""
        others = [other for other in problem.lanes if other.lane_id != lane.lane_id]
        return self.predictions(problem, Decision((*others, lane)))[-1]

    def predictions(self, problem: Problem, decision: Decision) -> list[LanePrediction]:
        """Return when the members of every batch are expected to be done (`core.pipeline_ring`).

        A batch starts when its prompts are in (the slowest predicted upload). Batches under way are taken to wait at
        the SBS now [A], in order of their admission and before the new ones, with the rounds that their predicted rest
        needs. Deadlines of residents impose nothing: [P2] has none, and no batch can be made faster once it runs [A].
        """
        under_way = [lane.lane_id for lane in problem.lanes]
        place = {lane_id: turn for turn, lane_id in enumerate(under_way)}
        batches = [_batch(problem, lane) for lane in decision.lanes]
        queue = sorted(range(len(batches)), key=lambda i: place.get(decision.lanes[i].lane_id, len(place)))
        ends = self._ends(problem.server, decision.lanes, batches, queue)
        result = []
        for lane, batch, end_s in zip(decision.lanes, batches, ends, strict=True):
            rounds = batch.rounds(lane.draft_length)
            finish_s = end_s[rounds - 1] if lane.gpu_share > 0 and len(rounds) else np.full(len(rounds), np.inf)
            result.append(LanePrediction(batch.request_id, finish_s, batch.slack_s, batch.reserved_bytes))
        return result

    def _ends(
        self, server: ServerSpec, lanes: tuple[Lane, ...], batches: list[_Batch], queue: list[int]
    ) -> list[FloatArray]:
        new = [i for i, batch in enumerate(batches) if len(batch.request_id) and not batch.prefilled]
        plan = max((int(batches[i].rounds(lanes[i].draft_length).max()) for i in new), default=0)
        padding = max((int(batches[i].left_tokens.max()) for i in new), default=0)
        ring, known = [], []
        for i in queue:
            batch, length = batches[i], lanes[i].draft_length
            if len(batch.request_id) == 0:
                continue
            rounds, output = int(batch.rounds(length).max()), int(batch.left_tokens.max())
            if not self.early_exit and i in new:
                rounds, output = plan, padding
            skipped = int(batch.prefilled)
            longest = np.array([batch.context_tokens.max()])
            answers = Answers(length, rounds + skipped, output)
            times = round_times(server.nodes, np.array([len(batch.request_id)]), longest, answers)
            ring.append(RingBatch.of(times, batch.ready_s, length > 0, skipped))
            known.append(i)
        ends = [np.empty(0)] * len(batches)
        for i, end_s in zip(known, ring_ends(ring), strict=True):
            ends[i] = end_s
        return ends

    def broken_rules(self, problem: Problem, decision: Decision) -> Iterator[str]:
        """Yield the rules that are broken: a batch is closed, drafts need the fronthaul, the SBS's memory holds all.

        The SBS holds the draft model and the KV caches of all speculating batches, those under way included.
        """
        server = problem.server
        node, fronthaul = server.nodes.draft, server.nodes.fronthaul
        under_way = {lane.lane_id for lane in problem.lanes}
        for lane in decision.lanes:
            name = f"lane {lane.lane_id}"
            if lane.members and lane.lane_id in under_way:
                yield f"{name}: members must be none for a batch under way, got {list(lane.members)}"
            if lane.members and speculates(lane.mode, lane.draft_length) and not np.isfinite(fronthaul.delay_s):
                yield f"{name}: mode must be AD while the fronthaul is down, got {lane.mode}"
        if not decision.admitted:
            return
        new = sum(self._kv_tokens(problem, lane) for lane in decision.lanes if _drafts(lane))
        held, room = problem.sbs_held_bytes / node.llm.kv_bytes_per_token, node.kv_room_tokens()
        if new and held + new > room + float(tolerance(room)):
            got = f"{held:.6g} held + {new:.6g} new"
            yield f"KV cache on the SBS must be at most {room:.6g} tokens, got {got}"

    def new_bytes(self, problem: Problem, lane: Lane) -> float:
        """Return the KV memory that a batch reserves on the MBS: b·(Î + O)·kv_L [P2]."""
        return self._kv_tokens(problem, lane) * problem.server.target.kv_bytes_per_token

    def _kv_tokens(self, problem: Problem, lane: Lane) -> float:
        rows = rows_of(problem, lane)
        return batch_kv_tokens(problem.candidates.prompt_tokens[rows], problem.candidates.output_tokens[rows])

    def sub_problem(self, problem: Problem, lane: Lane) -> SubProblem:  # noqa: ARG002
        """Raise: one lane of a pipeline cannot be solved without the others.

        Raises:
            ValueError: always.
        """
        raise ValueError("scheduling.discipline must be one for a single server under this policy, got pipeline")


def _drafts(lane: Lane) -> bool:
    return speculates(lane.mode, lane.draft_length)


def _batch(problem: Problem, lane: Lane) -> _Batch:
    """Return the batch of a lane: its new members, or those of its residents who are still inside."""
    if problem.lane_in_force(lane.lane_id) is None:
        users = members_of(problem, lane)
        tokens = batch_kv_tokens(users.prompt_tokens, users.output_tokens)
        return _Batch(
            users.request_id,
            users.prompt_tokens,
            users.output_tokens,
            users.acceptance_rate,
            users.slack_s,
            float(users.upload_s.max(initial=0.0)),
            tokens * problem.server.target.kv_bytes_per_token,
            prefilled=False,
        )
    inside = problem.residents
    mine = inside.lane_id == lane.lane_id
    return _Batch(
        inside.request_id[mine],
        inside.context_tokens[mine],
        inside.remaining_tokens[mine],
        inside.acceptance_rate[mine],
        np.full(int(mine.sum()), np.inf),
        float(inside.upload_s[mine].max(initial=0.0)),
        float(inside.reserved_bytes[mine].sum()),
        prefilled=bool(~inside.needs_prefill[mine].any()),
    )
