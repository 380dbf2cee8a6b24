"""What a lane is expected to do, for each service discipline (model.md §5, §6, §10)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, overload

import numpy as np

from balancesim.core.aligned import AlignedLane, binding, candidate_rows, joined, resident_rows
from balancesim.core.candidates import Candidates
from balancesim.core.decision import Lane
from balancesim.core.fused_lanes import FusedLanes
from balancesim.core.members import members_of, rows_of
from balancesim.core.memory import batch_kv_bytes, padded_kv_bytes, speculates
from balancesim.core.padded import BatchCost, Members, padded_batch, per_user_batch
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.problem import LaneModel, LanePrediction, Problem, SubProblem
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from balancesim.core.speculation import planned_rounds
from balancesim.units import FloatArray, IntArray


def load_s(problem: Problem, lane: Lane) -> float:
    """Return the time before a lane's draft model is in memory; uploads go on meanwhile."""
    waits = speculates(lane.mode, lane.draft_length) and not problem.draft_loaded
    return problem.server.draft_load_s if waits else 0.0


def _residents(problem: Problem, lane: Lane) -> AlignedLane:
    rows = resident_rows(problem.server, lane, problem.residents, load_s(problem, lane))
    before = problem.lane_in_force(lane.lane_id)
    return binding(rows, 0.0 if before is None else before.gpu_share)


def _at_share(work_s: FloatArray, gpu_share: float) -> FloatArray:
    return work_s / gpu_share if gpu_share > 0 else np.where(work_s > 0, np.inf, 0.0)


#: The GPU time of one batch from its members: `padded_batch` or `per_user_batch`.
CostForm = Callable[[ServerSpec, Mode, int, Members], BatchCost]


def _batch_prediction(problem: Problem, lane: Lane, cost: CostForm) -> LanePrediction:
    members = members_of(problem, lane)
    if len(members) == 0:
        return LanePrediction(members.request_id, np.empty(0), np.empty(0), 0.0)
    gamma = lane.draft_length
    rounds = planned_rounds(
        members.output_tokens, members.acceptance_rate, gamma if speculates(lane.mode, gamma) else 0
    )
    columns = Members(members.prompt_tokens, members.output_tokens, np.asarray(rounds, dtype=np.int64))
    work_s = cost(problem.server, lane.mode, gamma, columns).total_s
    start_s = max(float(members.upload_s.max()), load_s(problem, lane))
    finish_s = start_s + _at_share(np.full(len(members), work_s), lane.gpu_share)
    return LanePrediction(members.request_id, finish_s, members.slack_s, _padded_bytes(problem, lane, members))


def _padded_bytes(problem: Problem, lane: Lane, members: Candidates) -> float:
    if len(members) == 0:
        return 0.0
    tokens = float(members.prompt_tokens.max() + members.output_tokens.max())
    return len(members) * float(padded_kv_bytes(problem.server, lane.mode, lane.draft_length, tokens))


@dataclass(frozen=True, slots=True)
class StaticLanes:
    """Padded batches: a lane starts when all its prompts are in, and all its answers leave together [P1]."""

    name: ClassVar[str] = "static"
    runs_to_end: ClassVar[bool] = True

    def predict(self, problem: Problem, lane: Lane) -> LanePrediction:
        """Return U + C/share for every member (model.md §5).

        U is the longest upload in the lane, or the loading of the draft model where that takes longer; C is the padded
        cost (`core.padded`) of S = max s, N = max n, I = max planned rounds; the memory is M^A or M^S. A static server
        decides when it is empty, so there are no residents. A share of 0 never finishes; an empty lane is done at once.
        """
        return _batch_prediction(problem, lane, padded_batch)

    def new_bytes(self, problem: Problem, lane: Lane) -> float:
        """Return M^A or M^S: b sequences, each padded to the longest prompt and the longest answer."""
        return _padded_bytes(problem, lane, members_of(problem, lane))

    def sub_problem(self, problem: Problem, lane: Lane) -> SubProblem:
        """Return the exact sub-problem of a padded batch."""
        from balancesim.core.solver_static import PaddedSubProblem  # compiled: not needed where lanes are continuous

        return PaddedSubProblem.of(problem, lane, load_s(problem, lane))


@dataclass(frozen=True, slots=True)
class PerUserLanes:
    """Batches whose GPU time is the sum of their members' own: the paper's additive reading of its cost [P1]."""

    name: ClassVar[str] = "static_per_user"
    runs_to_end: ClassVar[bool] = True

    def predict(self, problem: Problem, lane: Lane) -> LanePrediction:
        """Return U + Σ_k C(1, s_k, n_k, I_k)/share for every member (model.md §5, cost form `per_user`).

        All else is as in `StaticLanes`: the memory is padded, the answers leave together.
        """
        return _batch_prediction(problem, lane, per_user_batch)

    def new_bytes(self, problem: Problem, lane: Lane) -> float:
        """Return M^A or M^S: b sequences, each padded to the longest prompt and the longest answer."""
        return _padded_bytes(problem, lane, members_of(problem, lane))

    def sub_problem(self, problem: Problem, lane: Lane) -> SubProblem:
        """Return the exact sub-problem of a batch with additive cost."""
        from balancesim.core.solver_per_user import PerUserSubProblem

        return PerUserSubProblem.of(problem, lane, load_s(problem, lane))


@dataclass(frozen=True, slots=True)
class ContinuousLanes:
    """Continuous batching: members join at step boundaries, prefill first, and leave when they are done."""

    name: ClassVar[str] = "continuous"
    runs_to_end: ClassVar[bool] = False

    #: tokens of one step: running requests first, then chunks of prompts; None = whole prompts in steps of their own
    token_budget: int | None = None
    prefill_first: bool = False  #: with a token budget: chunks of prompts run alone, before anybody decodes
    max_sequences: int | None = None  #: requests inside at once; None = as many as memory holds
    #: "prediction": prompt and predicted answer in full; "paged": blocks for the prompt, further ones as tokens come
    kv_reservation: Literal["prediction", "paged"] = "prediction"
    block_tokens: int = 16  #: size of a block of the paged KV cache
    #: blocks of a preempted request can be used again while nobody has overwritten them (needs a token budget)
    prefix_caching: bool = False
    prefix_cache_gib: float = 0.0  #: memory beside the KV cache for prompt blocks that later requests share
    watermark: float = 0.0  #: part of the KV memory that admission leaves free for those who run

    def __post_init__(self) -> None:
        for field in ("token_budget", "max_sequences", "block_tokens"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")
        if self.kv_reservation not in ("prediction", "paged"):
            raise ValueError(f"kv_reservation must be prediction or paged, got {self.kv_reservation!r}")
        if self.prefix_caching and (not self.paged or self.token_budget is None):
            raise ValueError(
                'prefix_caching must be false without kv_reservation = "paged" and a token_budget, got true'
            )
        if not 0 <= self.prefix_cache_gib < math.inf:
            raise ValueError(f"prefix_cache_gib must be finite and at least 0, got {self.prefix_cache_gib}")
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark must be at least 0 and below 1, got {self.watermark}")

    @property
    def paged(self) -> bool:
        """Whether memory is taken block by block."""
        return self.kv_reservation == "paged"

    @overload
    def reserved_tokens(self, prompt_tokens: int, output_tokens: int) -> int: ...
    @overload
    def reserved_tokens(self, prompt_tokens: IntArray, output_tokens: IntArray) -> IntArray: ...
    def reserved_tokens(self, prompt_tokens: int | IntArray, output_tokens: int | IntArray) -> int | IntArray:
        """Return the tokens that admission reserves: s + n_pred, or the blocks of the prompt and the first token."""
        if not self.paged:
            return prompt_tokens + output_tokens
        return -(-(prompt_tokens + 1) // self.block_tokens) * self.block_tokens

    def predict(self, problem: Problem, lane: Lane) -> LanePrediction:
        """Return start_k + w_k/share for new members and the lane's residents.

        w_k is the work until k's last token when all members prefill first and then step together (`core.aligned`);
        start_k is the rest of its upload, or the loading of the draft model where that takes longer. A prediction:
        exact when every prompt is in, nobody else joins, rounds go as planned and the other lanes stay busy. Deadlines
        of residents that are late already, or that will be late with the shares in force even if nobody joins, impose
        nothing (slack = inf). A share of 0 never finishes.
        """
        members = members_of(problem, lane)
        rows = self._new(problem, lane, members)
        ids = members.request_id
        if problem.lane_in_force(lane.lane_id) is not None:
            rows = joined(rows, _residents(problem, lane))
            ids = np.concatenate((ids, problem.residents.request_id[problem.residents.lane_id == lane.lane_id]))
        finish_s = rows.start_s + _at_share(rows.work_s(), lane.gpu_share)
        return LanePrediction(ids, finish_s, rows.slack_s, float(rows.reserved_bytes.sum()))

    def new_bytes(self, problem: Problem, lane: Lane) -> float:
        """Return Σ over new members of their reservations."""
        if not lane.members:
            return 0.0
        rows, users = rows_of(problem, lane), problem.candidates
        tokens = float(self.reserved_tokens(users.prompt_tokens[rows], users.output_tokens[rows]).sum())
        return batch_kv_bytes(problem.server, lane.mode, lane.draft_length, len(rows), tokens)

    def sub_problem(self, problem: Problem, lane: Lane) -> SubProblem:
        """Return the sub-problem of joining a running lane, solved by insertion (`core.solver_continuous`)."""
        from balancesim.core.solver_continuous import ContinuousSubProblem  # compiled: policies like fcfs do without

        return ContinuousSubProblem(
            self._new(problem, lane, problem.candidates), _residents(problem, lane), problem.candidates
        )

    def _new(self, problem: Problem, lane: Lane, users: Candidates) -> AlignedLane:
        tokens = self.reserved_tokens(users.prompt_tokens, users.output_tokens)
        return candidate_rows(problem.server, lane, users, tokens, load_s(problem, lane))


#: The lane models, by discipline.
LANE_MODELS: tuple[type[LaneModel], ...] = (StaticLanes, PerUserLanes, ContinuousLanes, FusedLanes, PipelineLanes)
