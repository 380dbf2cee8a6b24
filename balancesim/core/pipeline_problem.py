"""From a scheduling problem to the joint problem of the pipeline, and from a joint plan to lanes (model.md §7)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import predict
from balancesim.core.pipeline import Batches
from balancesim.core.pipeline_instance import PipelineInstance, PipelineTasks
from balancesim.core.pipeline_lanes import batch_kv_tokens
from balancesim.core.problem import Problem
from balancesim.core.request import Mode
from balancesim.units import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class DraftLengths:
    """Which draft lengths may be chosen."""

    most: int  #: l_max
    given: int | None = None  #: l where it is not to be chosen


def instance_of(problem: Problem, rows: IntArray, lengths: DraftLengths, *, held: bool = True) -> PipelineInstance:
    """Return the joint problem of some candidates, in the order of ``rows``.

    The memories are what batches under way leave, or with ``held=False`` the empty nodes'. The band is 1 Hz: policies
    do not know its width, and the optimal shares do not depend on it. A fronthaul that is down leaves l = 0.
    """
    nodes, users = problem.server.nodes, problem.candidates.take(rows)
    in_already = ~(users.prompt_bits > 0)
    down = math.isinf(nodes.fronthaul.delay_s)
    sbs_bytes, mbs_bytes = (problem.sbs_held_bytes, problem.held_bytes) if held else (0.0, 0.0)
    return PipelineInstance(
        tasks=PipelineTasks(
            users.prompt_tokens,
            users.output_tokens,
            users.acceptance_rate,
            users.prompt_bits,
            np.where(in_already, 1.0, users.spectral_efficiency_bps_hz),
        ),
        draft=replace(nodes.draft, memory_bytes=nodes.draft.memory_bytes - sbs_bytes),
        target=replace(nodes.target, memory_bytes=nodes.target.memory_bytes - mbs_bytes),
        bandwidth_hz=1.0,
        max_draft_length=lengths.most,
        fronthaul=nodes.fronthaul,
        draft_length=0 if down else lengths.given,
    )


def fits_alone(instance: PipelineInstance) -> BoolArray:
    """Return which tasks' own KV caches, I_k + O_k tokens, fit beside the weights on every node they need."""
    tasks, room = instance.tasks, instance.kv_room_tokens(instance.draft_lengths[-1])
    return np.asarray(tasks.prompt_tokens + tasks.output_tokens <= room)


def lanes_of(problem: Problem, rows: IntArray, batches: Batches, draft_length: int) -> tuple[Lane, ...]:
    """Return a lane for every batch of tasks, numbered behind those under way; ``rows``: candidates by task.

    A pipeline has no shares: every lane is given an equal part of the GPU's time, a new one the part of the MBS's
    memory that it reserves and those under way the rest, so that the rules of all decisions hold.
    """
    users, server = problem.candidates, problem.server
    free_bytes = server.free_bytes(uses_sd=False)
    first = max((lane.lane_id for lane in problem.lanes), default=-1) + 1
    lanes = []
    for place, batch in enumerate(batches):
        members = rows[list(batch)]
        tokens = batch_kv_tokens(users.prompt_tokens[members], users.output_tokens[members])
        lanes.append(
            Lane(
                lane_id=first + place,
                mode=Mode.SD if draft_length else Mode.AD,
                gpu_share=0.0,  # set by `behind`
                memory_share=tokens * server.target.kv_bytes_per_token / free_bytes,
                members=tuple(users.request_id[members].tolist()),
                draft_length=draft_length,
            )
        )
    return tuple(lanes)


def behind(problem: Problem, lanes: Sequence[Lane]) -> Decision:
    """Return the decision of new batches behind those under way, with its predictions."""
    left = max(0.0, 1.0 - sum(lane.memory_share for lane in lanes)) / max(len(problem.lanes), 1)
    running = [replace(lane, members=(), memory_share=left, predicted_finish_s=None) for lane in problem.lanes]
    everyone = [*running, *lanes]
    share = 1.0 / max(len(everyone), 1)
    decision = Decision(tuple(replace(lane, gpu_share=share) for lane in everyone))
    if not lanes:
        return decision
    predicted = []
    for lane, prediction in zip(decision.lanes, predict(problem, decision), strict=True):
        finish_s = float(prediction.finish_s.max()) if lane.members else None
        predicted.append(replace(lane, predicted_finish_s=finish_s))
    return Decision(tuple(predicted))


def late_members(problem: Problem, decision: Decision) -> list[int]:
    """Return the new members that are expected after their deadline."""
    late = []
    for lane, prediction in zip(decision.lanes, predict(problem, decision), strict=True):
        if lane.members:
            late += prediction.request_id[prediction.late].tolist()
    return late


def without_late(problem: Problem, decision: Decision) -> Decision:
    """Return the decision without members that would be late, the others as they are.

    Taking members out makes no batch slower, so every pass leaves fewer of them.
    """
    while late := late_members(problem, decision):
        new = [lane for lane in decision.lanes if lane.members]
        kept = [replace(lane, members=tuple(m for m in lane.members if m not in late)) for lane in new]
        weights = {k: weight for k, weight in decision.bandwidth_weights.items() if k not in late}
        decision = replace(behind(problem, [lane for lane in kept if lane.members]), bandwidth_weights=weights)
    return decision
