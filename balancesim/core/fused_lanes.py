"""Lanes of the discipline ``fused``: all requests of a decision in one process, AD beside SD (model.md §6)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from balancesim.core.aligned import AlignedLane, candidate_rows, joined, resident_rows
from balancesim.core.candidates import Candidates
from balancesim.core.decision import Decision, Lane
from balancesim.core.fused import DepthSums, FusedMembers, depth_sums, fused_prefill_s, fused_steps_s
from balancesim.core.members import members_of, rows_of
from balancesim.core.memory import batch_kv_bytes, speculates
from balancesim.core.problem import Admissions, Budgets, LanePrediction, Problem, SubProblem, tolerance
from balancesim.core.server import ServerSpec
from balancesim.core.shares import PairGrid, PairSolution
from balancesim.core.speculation import ROUNDING, expected_tokens_per_round
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True)
class _Part:
    """One lane's members, new ones first; ``rows.steps`` are planned rounds at the lane's draft length."""

    lane: Lane
    rows: AlignedLane
    request_id: IntArray
    left_tokens: IntArray  #: to be decoded after the prefill
    acceptance_rate: FloatArray
    new: int

    @property
    def longest_draft(self) -> IntArray:
        return np.full(len(self.request_id), self.rows.draft_length)


@dataclass(frozen=True, slots=True)
class FusedLanes:
    """One process: every target pass verifies the drafts of SD requests and decodes a token for AD requests."""

    name: ClassVar[str] = "fused"
    runs_to_end: ClassVar[bool] = False

    def predict(self, problem: Problem, lane: Lane) -> LanePrediction:
        """Return the prediction of a lane beside the residents of the others, as if nobody joined those."""
        others = [replace(other, members=()) for other in problem.lanes if other.lane_id != lane.lane_id]
        return self.predictions(problem, Decision((*others, lane)))[-1]

    def predictions(self, problem: Problem, decision: Decision) -> list[LanePrediction]:
        """Return start_k + w_k for new members and residents of every lane.

        As for continuous lanes (`core.aligned`), but all lanes step together: w_k is the prefill of all that need it
        and the fused steps (`core.fused`) until k's last token, with the whole GPU: a lane with gpu_share 0
        never finishes, else the share is not read. With a draft rule lengths are chosen anew for every expected step.
        Deadlines of residents that are late already, or that will be late if nobody joins, impose nothing (slack =
        inf).
        """
        parts = [_part(problem, lane) for lane in decision.lanes]
        finish = _finish_s(problem.server, parts)
        alone = self._residents_alone_s(problem, parts)
        result = []
        for part, work_s in zip(parts, finish, strict=True):
            finish_s = work_s if part.lane.gpu_share > 0 else np.full(len(work_s), np.inf)
            slack_s = part.rows.slack_s
            inside = np.arange(len(slack_s)) >= part.new
            at_best_s = np.array([alone.get(key, 0.0) for key in part.request_id.tolist()])
            lost = inside & ~(at_best_s <= slack_s + tolerance(slack_s))
            slack_s = np.where(lost, np.inf, slack_s)
            result.append(LanePrediction(part.request_id, finish_s, slack_s, float(part.rows.reserved_bytes.sum())))
        return result

    @staticmethod
    def _residents_alone_s(problem: Problem, parts: Sequence[_Part]) -> dict[int, float]:
        """Return when each resident is done if nobody joins, by request id; nothing where no deadline could bind."""
        if not any(np.isfinite(part.rows.slack_s[part.new :]).any() for part in parts):
            return {}
        before = [_part(problem, replace(lane, members=())) for lane in problem.lanes]
        pairs = zip(before, _finish_s(problem.server, before), strict=True)
        return {key: s for part, ends in pairs for key, s in zip(part.request_id.tolist(), ends.tolist(), strict=True)}

    def broken_rules(self, problem: Problem, decision: Decision) -> Iterator[str]:  # noqa: ARG002
        """Yield what is against the rules: one draft rule chooses for all lanes that speculate."""
        rules = [lane.draft_rule for lane in decision.lanes if speculates(lane.mode, lane.draft_length)]
        if any(rule != rules[0] for rule in rules):
            yield f"draft_rule must be the same for all lanes that speculate, got {rules}"

    def new_bytes(self, problem: Problem, lane: Lane) -> float:
        """Return Σ over new members of their reservations, for their longest drafts."""
        rows, users = rows_of(problem, lane), problem.candidates
        tokens = float((users.prompt_tokens[rows] + users.output_tokens[rows]).sum())
        return batch_kv_bytes(problem.server, lane.mode, lane.draft_length, len(rows), tokens)

    def sub_problem(self, problem: Problem, lane: Lane) -> SubProblem:
        """Return the sub-problem of joining the process: that of a continuous lane with the whole GPU.

        While other lanes have residents nobody joins: their steps are not in it.
        """
        from balancesim.core.solver_continuous import ContinuousSubProblem  # compiled: policies like fcfs do without

        load_s = _load_s(problem, lane)
        old = resident_rows(problem.server, lane, problem.residents, load_s)
        part = self.predict(problem, replace(lane, members=()))
        new = candidate_rows(problem.server, lane, problem.candidates, _tokens(problem.candidates), load_s)
        binding = replace(old, slack_s=part.slack_s)
        alone = all(other.lane_id == lane.lane_id for other in problem.lanes)
        return OneProcess(ContinuousSubProblem(new, binding, problem.candidates), alone)


@dataclass(frozen=True)
class OneProcess:
    """A sub-problem that has the whole GPU: there is no second lane to divide it with."""

    lane: SubProblem
    alone: bool  #: no other lane has residents

    def admit(self, budgets: Budgets) -> Admissions:
        """Return the members for every alternative of memory; a GPU share above 0 counts as the whole GPU."""
        found = self.lane.admit(replace(budgets, gpu_share=np.ones_like(budgets.gpu_share)))
        served = (budgets.gpu_share > 0) & self.alone
        return Admissions(found.members & served[:, None], found.feasible & served)

    def pair(self, other: SubProblem, grid: PairGrid, floor: int) -> PairSolution | None:  # noqa: ARG002
        """Raise: one process has no two lanes that divide the GPU.

        Raises:
            ValueError: always.
        """
        raise ValueError("scheduling.discipline must be one that slices the GPU for a policy of two lanes, got fused")


def _load_s(problem: Problem, lane: Lane) -> float:
    waits = speculates(lane.mode, lane.draft_length) and not problem.draft_loaded
    return problem.server.draft_load_s if waits else 0.0


def _part(problem: Problem, lane: Lane) -> _Part:
    members, inside = members_of(problem, lane), problem.residents
    mine = inside.lane_id == lane.lane_id
    load_s = _load_s(problem, lane)
    new = candidate_rows(problem.server, lane, members, _tokens(members), load_s)
    old = resident_rows(problem.server, lane, inside, load_s)
    first = inside.needs_prefill[mine] & (inside.tokens_out[mine] == 0)
    return _Part(
        lane,
        joined(new, old),
        np.concatenate((members.request_id, inside.request_id[mine])),
        np.concatenate((members.output_tokens - 1, inside.remaining_tokens[mine] - first)),
        np.concatenate((members.acceptance_rate, inside.acceptance_rate[mine])),
        len(members),
    )


def _finish_s(server: ServerSpec, parts: Sequence[_Part]) -> list[FloatArray]:
    """Return start_k + w_k, part by part."""
    sizes = [len(part.request_id) for part in parts]
    if not sum(sizes):
        return [np.empty(0) for _ in parts]
    prefill_s = _prefill_s(server, parts)
    ruled = any(part.lane.draft_rule is not None and part.rows.draft_length for part in parts)
    work_s = _ruled_work_s(server, parts) if ruled else _planned_work_s(server, parts)
    starts = np.concatenate([part.rows.start_s for part in parts])
    return np.split(starts + prefill_s + work_s, np.cumsum(sizes)[:-1])


def _prefill_s(server: ServerSpec, parts: Sequence[_Part]) -> float:
    sums = []
    for part in parts:
        tokens = part.rows.prefill_tokens
        sums.append((float((tokens > 0).sum()), float(tokens.sum()), float((tokens**2).sum())))
    table = np.array(sums)
    drafting = np.array([part.rows.draft_length > 0 for part in parts])
    everyone, drafters = table.sum(axis=0), table[drafting].sum(axis=0)
    return fused_prefill_s(server, everyone, drafters) if everyone[0] else 0.0


def _planned_work_s(server: ServerSpec, parts: Sequence[_Part]) -> FloatArray:
    """Return the time of the steps until each member's last, with the draft lengths of the lanes."""
    steps = np.concatenate([part.rows.steps for part in parts])
    step = np.arange(1, int(steps.max()) + 1)
    deepest = max(part.rows.draft_length for part in parts)
    sequences = [np.zeros(len(step)) for _ in range(deepest + 1)]
    contexts = [np.zeros(len(step)) for _ in range(deepest + 1)]
    for part in parts:
        order = np.argsort(part.rows.steps, kind="stable")
        first = np.searchsorted(part.rows.steps[order], step)  # members order[first:] are still there at this step
        columns = (np.ones(len(order)), part.rows.context_tokens, part.rows.tokens_per_step)
        active, context, growth = (np.append(np.cumsum(c[order][::-1])[::-1], 0.0)[first] for c in columns)
        for depth in range(part.rows.draft_length + 1):
            sequences[depth] += active
            contexts[depth] += context + (step - 1) * growth
    elapsed = np.concatenate(([0.0], np.cumsum(fused_steps_s(server, DepthSums(sequences, contexts)).total_s)))
    return np.asarray(elapsed[steps])


def _ruled_work_s(server: ServerSpec, parts: Sequence[_Part]) -> FloatArray:
    """Return the same where a rule chooses the lengths: step by step, everybody gaining E tokens."""
    rule = next(part.lane.draft_rule for part in parts if part.lane.draft_rule is not None and part.rows.draft_length)
    left = np.concatenate([part.left_tokens for part in parts]) * (1.0 - 2.0 * ROUNDING)
    context = np.concatenate([part.rows.context_tokens for part in parts])
    rate = np.concatenate([part.acceptance_rate for part in parts])
    longest = np.concatenate([part.longest_draft for part in parts])
    work_s, out, elapsed_s = np.zeros(len(left)), np.zeros(len(left)), 0.0
    active = np.flatnonzero(left > 0)
    while len(active):
        at = context[active] + out[active]
        lengths = rule.lengths(server, FusedMembers(at, rate[active], longest[active]))
        elapsed_s += float(fused_steps_s(server, depth_sums(lengths, at)).total_s)
        out[active] += expected_tokens_per_round(rate[active], lengths)
        work_s[active] = elapsed_s
        active = active[out[active] < left[active]]
    return work_s


def _tokens(users: Candidates) -> IntArray:
    return users.prompt_tokens + users.output_tokens
