"""Whether a decision may be carried out, with every reason in words (constraints of P0, model.md §5, and of §10)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.memory import any_speculates, speculates
from balancesim.core.problem import TOLERANCE, LanePrediction, Problem, is_coupled, tolerance
from balancesim.core.request import Mode


@dataclass(frozen=True, slots=True)
class Feasibility:
    """The verdict on a decision; true when there is no reason against it."""

    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.reasons


def uses_sd(problem: Problem, decision: Decision) -> bool:
    """Return whether the draft model must be in memory: a lane in use speculates, or residents do."""
    return problem.uses_sd or any_speculates(decision.lanes)


def free_bytes(problem: Problem, decision: Decision) -> float:
    """Return the memory for KV caches under a decision: usable − W_L − 1{SD}·W_S."""
    return problem.server.free_bytes(uses_sd=uses_sd(problem, decision))


def is_feasible(problem: Problem, decision: Decision) -> Feasibility:
    """Check a decision against every rule and say which are broken: field, rule, value.

    Known, distinct members; shares within [0, 1] and in sum; SD only with a draft model; memory of every lane that
    admits
    within its share, and of all together (an epoch that admits nobody breaks neither); lanes with residents kept, in
    their mode; every new member in time, and every
    resident whose deadline is met with the shares in force (`core.aligned.binding`).
    """
    reasons = list(_structure(problem, decision))
    if reasons:
        return Feasibility(tuple(reasons))
    predictions = predict(problem, decision)
    reasons += _memory(problem, decision, predictions)
    for lane, prediction in zip(decision.lanes, predictions, strict=True):
        reasons += _deadlines(lane, prediction)
    return Feasibility(tuple(reasons))


def predict(problem: Problem, decision: Decision) -> list[LanePrediction]:
    """Return what every lane of a decision is expected to do."""
    model = problem.lane_model
    if is_coupled(model):
        return model.predictions(problem, decision)
    return [model.predict(problem, lane) for lane in decision.lanes]


def check_structure(problem: Problem, decision: Decision) -> None:
    """Check what a server enforces on every decision: all rules but deadlines and memory shares. Residents are not
    built.

    Raises:
        ValueError: the first broken rule, in one line.
    """
    reason = next(chain(_structure(problem, decision), _whole_memory(problem, decision)), None)
    if reason is not None:
        raise ValueError(f"decision at epoch {problem.epoch}: {reason}")


def _structure(problem: Problem, decision: Decision) -> Iterator[str]:
    yield from _members(problem, decision)
    lanes = decision.lanes
    yield from _shares(lanes)
    by_id = {lane.lane_id: lane for lane in lanes}
    if len(by_id) < len(lanes):
        yield f"lane_id must be unique, got {[lane.lane_id for lane in lanes]}"
    for lane in lanes:
        if lane.draft_length != 0 or lane.mode is not Mode.AD:
            yield from _mode(problem, lane)
    for before in problem.lanes if lanes else ():
        yield from _kept(before, by_id.get(before.lane_id))
    model = problem.lane_model
    if is_coupled(model):
        yield from model.broken_rules(problem, decision)


def _members(problem: Problem, decision: Decision) -> Iterator[str]:
    named = (*decision.admitted, *decision.rejected)
    if len(set(named)) < len(named):
        twice = sorted({request_id for request_id in named if named.count(request_id) > 1})
        yield f"members and rejected must be disjoint, got request ids {twice} more than once"
    try:
        problem.rows(named)
    except KeyError as error:
        yield f"members and rejected must be candidates, got request ids {sorted(set(error.args[0]))}"
    if decision.bandwidth_weights:
        yield from _weights(problem, decision.bandwidth_weights)


def _weights(problem: Problem, weights: Mapping[int, float]) -> Iterator[str]:
    if any(not 0 < weight < math.inf for weight in weights.values()):
        yield f"bandwidth_weights must be finite and above 0, got {dict(weights)}"
    candidates = set(problem.candidates.request_id.tolist())
    strangers = sorted(key for key in weights if key not in candidates)
    if strangers:
        yield f"bandwidth_weights must be of candidates, got request ids {strangers}"


def _shares(lanes: Sequence[Lane]) -> Iterator[str]:
    gpu = memory = 0.0
    for lane in lanes:
        gpu += lane.gpu_share
        memory += lane.memory_share
        for field, share in (("gpu_share", lane.gpu_share), ("memory_share", lane.memory_share)):
            if not -TOLERANCE <= share <= 1 + TOLERANCE:
                yield f"lane {lane.lane_id}: {field} must be between 0 and 1, got {share}"
        if lane.members and not lane.gpu_share > 0:
            yield f"lane {lane.lane_id}: gpu_share must be above 0 where requests are admitted, got {lane.gpu_share}"
    for field, total in (("gpu_share", gpu), ("memory_share", memory)):
        if total > 1 + TOLERANCE:
            yield f"{field} of all lanes must sum to at most 1, got {total:.6g}"


def _mode(problem: Problem, lane: Lane) -> Iterator[str]:
    if lane.draft_length < 0 or (lane.mode is Mode.AD and lane.draft_length != 0):
        rule = "0 for AD and at least 0 for SD"
        yield f"lane {lane.lane_id}: draft_length must be {rule}, got {lane.draft_length} for {lane.mode}"
    server = problem.server
    if speculates(lane.mode, lane.draft_length) and (server.draft is None or server.draft_law is None):
        yield f"lane {lane.lane_id}: mode must be AD on a server without a draft model, got {lane.mode}"


def _kept(before: Lane, after: Lane | None) -> Iterator[str]:
    name = f"lane {before.lane_id}"
    if after is None:
        yield f"{name}: must stay in the decision while it has residents"
        return
    if (after.mode, after.draft_length) != (before.mode, before.draft_length):
        kinds = f"{after.mode} with draft_length {after.draft_length}"
        yield f"{name}: mode must stay {before.mode} with draft_length {before.draft_length}, got {kinds}"
    if after.draft_rule != before.draft_rule:
        yield f"{name}: draft_rule must stay {before.draft_rule} while it has residents, got {after.draft_rule}"
    if not after.gpu_share > 0:
        yield f"{name}: gpu_share must stay above 0 while it has residents, got {after.gpu_share}"


def _memory(problem: Problem, decision: Decision, predictions: list[LanePrediction]) -> Iterator[str]:
    """Lanes that admit keep to their share; what all hold fits. A lane that admits nobody may exceed a smaller
    share."""
    free = free_bytes(problem, decision)
    for lane, prediction in zip(decision.lanes, predictions, strict=True):
        limit = lane.memory_share * free
        if lane.members and prediction.reserved_bytes > limit + float(tolerance(limit)):
            got = f"{prediction.reserved_bytes:.6g} bytes"
            yield f"lane {lane.lane_id}: memory must be at most memory_share·free = {limit:.6g} bytes, got {got}"
    yield from _whole_memory(problem, decision)


def _whole_memory(problem: Problem, decision: Decision) -> Iterator[str]:
    if not any(lane.members for lane in decision.lanes):
        return
    free = free_bytes(problem, decision)
    new = sum([problem.new_bytes(lane) for lane in decision.lanes])
    if problem.held_bytes + new > free + TOLERANCE * max(1.0, abs(free)):
        got = f"{problem.held_bytes:.6g} held + {new:.6g} new"
        yield f"memory of all lanes must be at most {free:.6g} bytes, got {got}"


def _deadlines(lane: Lane, prediction: LanePrediction) -> Iterator[str]:
    new = len(lane.members)
    never = ~np.isfinite(prediction.finish_s)
    never[new:] = False  # a resident in outage imposes nothing
    for row in (prediction.late | never).nonzero()[0].tolist():
        who = "member" if row < new else "resident"
        times = f"{prediction.slack_s[row]:.6g} s, got {prediction.finish_s[row]:.6g} s"
        yield f"lane {lane.lane_id}: {who} {prediction.request_id[row]} must finish within {times}"
