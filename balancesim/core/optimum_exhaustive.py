"""The exact optimum by trying all 3^K assignments: the honest, unpruned reference."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.lane_models import load_s
from balancesim.core.memory import padded_kv_bytes, speculates
from balancesim.core.optimum import (
    Optimum,
    ShareChoice,
    best_alone,
    both_free_bytes,
    can_draft,
    lanes_of,
    memory_share_for,
    side_by_side,
)
from balancesim.core.padded import BatchShape, padded_cost
from balancesim.core.problem import Problem
from balancesim.core.speculation import planned_rounds
from balancesim.units import BoolArray, FloatArray

_LARGEST = 20
_ROUNDING = 1e-12
_AD, _SD = 1, 2  # 0 waits


@dataclass(frozen=True)
class _Best:
    served: int
    assignment: BoolArray  #: (2, K): members of AD and of SD


def exhaustive_optimum(problem: Problem, chunk: int = 1 << 16) -> Optimum:
    """Return an optimum of P0 over continuous shares from all 3^K assignments (wait, AD, SD) of K users.

    Shares in closed form: AD needs z ≥ C^A/(min d − U), SD needs 1 − z ≥ C^S/(min d − U), both KV caches fit together;
    an assignment to one mode has the GPU and its own free memory. No pruning; ``chunk`` assignments at a time.

    Raises:
        ValueError: more than 20 candidates, or not a problem of padded batches.
    """
    count = len(problem.candidates)
    if count > _LARGEST:
        raise ValueError(f"candidates must be at most {_LARGEST} for an exhaustive search, got {count}; use two_colour")
    if not can_draft(problem):
        alone = best_alone(problem)
        return Optimum(alone, len(alone.admitted), 2**count)
    lanes, best = lanes_of(problem), _Best(0, np.zeros((2, count), np.bool_))
    free = (problem.server.free_bytes(uses_sd=False), both_free_bytes(problem))
    for modes in _assignments(count, chunk):
        masks = (modes == _AD, modes == _SD)
        served = masks[0].sum(axis=1) + masks[1].sum(axis=1)
        share_ad, bytes_ad = lane_needs(problem, lanes[0], masks[0])
        share_sd, bytes_sd = lane_needs(problem, lanes[1], masks[1])
        room = np.where(masks[1].any(axis=1), free[1], free[0])
        fits = (share_ad + share_sd <= 1.0 + _ROUNDING) & (bytes_ad + bytes_sd <= room * (1.0 + _ROUNDING))
        served = np.where(fits, served, 0)
        top = int(np.argmax(served))
        if served[top] > best.served:
            best = _Best(int(served[top]), np.array([masks[0][top], masks[1][top]]))
    return Optimum(_decision(problem, best), best.served, 3**count)


def _assignments(count: int, chunk: int) -> Iterator[np.ndarray[tuple[int, int], np.dtype[np.int8]]]:
    """Yield all rows of {wait, AD, SD}^K, some at a time: the digits of 0 … 3^K − 1 in base 3."""
    powers = 3 ** np.arange(count, dtype=np.int64)
    for first in range(0, 3**count, chunk):
        numbers = np.arange(first, min(first + chunk, 3**count), dtype=np.int64)
        yield (numbers[:, None] // powers % 3).astype(np.int8)


def lane_needs(problem: Problem, lane: Lane, masks: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return the GPU share and the bytes that each of many batches needs, (rows, K) → (rows,); 0 for an empty one."""
    table, server = problem.candidates, problem.server
    drafting = speculates(lane.mode, lane.draft_length)
    rounds = planned_rounds(table.output_tokens, table.acceptance_rate, lane.draft_length if drafting else 0)
    columns = (table.prompt_tokens, table.output_tokens, np.asarray(rounds, dtype=np.int64))
    prompt, output, steps = (np.max(masks * column, axis=1, initial=0) for column in columns)
    size = masks.sum(axis=1)
    used = size > 0
    start_s = np.maximum(table.upload_s, load_s(problem, lane))
    last_s = np.max(np.where(masks, start_s, -np.inf), axis=1, initial=-np.inf)
    slack_s = np.min(np.where(masks, table.slack_s, np.inf), axis=1, initial=np.inf)
    shape = BatchShape(np.maximum(size, 1), np.maximum(prompt, 1), np.maximum(output, 1), steps)
    work_s = np.asarray(padded_cost(server, lane.mode, lane.draft_length, shape).total_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(slack_s > last_s, work_s / (slack_s - last_s), np.inf)  # NaN uploads never fit
    held = size * np.asarray(padded_kv_bytes(server, lane.mode, lane.draft_length, prompt + output))
    return np.where(used, share, 0.0), np.where(used, held, 0.0)


def _decision(problem: Problem, best: _Best) -> Decision:
    ad, sd = best.assignment
    if not ad.any() or not sd.any():
        return best_alone(problem)  # exact where one mode is enough
    return decision_of(problem, (ad, sd))


def decision_of(problem: Problem, masks: tuple[BoolArray, BoolArray]) -> Decision:
    """Return the decision with these feasible batches side by side; spare GPU time and memory are split evenly."""
    pairs = zip(lanes_of(problem), masks, strict=True)
    (share_ad, bytes_ad), (share_sd, bytes_sd) = (
        (float(value[0]) for value in lane_needs(problem, lane, mask[None, :])) for lane, mask in pairs
    )
    memory = memory_share_for(ShareChoice(), bytes_ad, bytes_sd, both_free_bytes(problem))
    return side_by_side(problem, masks, (share_ad + 1.0 - share_sd) / 2.0, memory)
