"""The exact optimum by branch and bound over bounds, with Hall's condition for two colours (model.md §5)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from balancesim.core import solver_two_colour_kernel as kernel
from balancesim.core.decision import Decision
from balancesim.core.lane_models import load_s
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
from balancesim.core.pair_search import PairSearch, best_two_lanes
from balancesim.core.problem import Problem
from balancesim.core.solver_kernel import Users, largest
from balancesim.core.solver_static import users_of
from balancesim.units import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class _Pair:
    """Both lanes over the candidates that can be served at all, in the order of their request ids."""

    lanes: tuple[Users, Users]
    values: tuple[FloatArray, ...]
    row: IntArray
    shares: kernel.Shares


def two_colour(problem: Problem, choice: ShareChoice | None = None, node_limit: int = 1_000_000) -> Optimum:
    """Return an optimum of P0 over all shares, or over those of a choice.

    Starts from BALANCE's decision with T users and asks for every split b_A + b_S = T + 1 whether such batches exist,
    until none does. One mode alone is solved exactly beside it. Above ``node_limit`` nodes for one T the search stops:
    the decision is the best found and ``bound`` what is proved.

    Raises:
        ValueError: the problem is not one of padded batches.
    """
    choice = choice or ShareChoice()
    alone = best_alone(problem)
    if not can_draft(problem) or len(alone.admitted) == len(problem.candidates):
        return Optimum(alone, len(alone.admitted), 0)
    free = both_free_bytes(problem)
    if free <= 0:
        return Optimum(alone, len(alone.admitted), 0)
    best = alone if len(choice.gpu) or len(choice.memory) else _start(problem, alone)
    pair = _pair(problem, choice, free)
    most = _alone_at_most(pair)
    nodes = 0
    while (target := len(best.admitted) + 1) <= min(len(pair.row), sum(most)):
        found: kernel.Search | None = None
        left = node_limit
        for sizes in _splits(target, most):
            found = kernel.search(pair.lanes, pair.values, sizes, pair.shares, left)
            nodes, left = nodes + found.nodes, left - found.nodes
            if found.found or left < 0:
                break
        if left < 0:
            return Optimum(best, min(len(pair.row), sum(most)), nodes)
        if found is None or not found.found:
            break
        best = side_by_side(problem, *_placed(problem, pair, found, choice))
        if len(best.admitted) < target:
            raise RuntimeError(f"optimum: {target} users found, {len(best.admitted)} kept by the prediction")
    return Optimum(best, len(best.admitted), nodes)


def _start(problem: Problem, alone: Decision) -> Decision:
    """Return the better of a decision and BALANCE's, whose shares are among all."""
    both = best_two_lanes(problem, lanes_of(problem), PairSearch(), alone=False)
    return both if len(both.admitted) > len(alone.admitted) else alone


def _pair(problem: Problem, choice: ShareChoice, free: float) -> _Pair:
    ad, sd = lanes_of(problem)
    table = problem.candidates
    with np.errstate(invalid="ignore"):
        row = np.flatnonzero(table.slack_s - table.upload_s > 0)  # NaN (no channel) is not above 0
    row = row[np.argsort(table.request_id[row])]
    starts = (table.upload_s[row], np.maximum(table.upload_s[row], load_s(problem, sd)))
    lanes = (users_of(problem, ad, row, starts[0]), users_of(problem, sd, row, starts[1]))
    values: list[FloatArray] = []
    for users in lanes:
        rounds = users.rounds if users.drafting else np.zeros(1)
        values += [np.unique(column).astype(float) for column in (users.prompt, users.output, rounds, users.start_s)]
    return _Pair(lanes, tuple(values), row, kernel.Shares(choice.gpu, choice.memory, free))


def _alone_at_most(pair: _Pair) -> tuple[int, int]:
    """Return the largest batch of either lane with the whole GPU and all the memory that both share."""
    sizes = []
    for users in pair.lanes:
        overlap = np.zeros(len(users.bounds) + 1, dtype=np.int64)
        everyone = np.ones(len(pair.row), dtype=np.bool_)
        sizes.append(largest(users, everyone, (1.0, pair.shares.free_bytes), (0, len(pair.row)), overlap).size)
    return sizes[0], sizes[1]


def _splits(total: int, most: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield all (b_A, b_S) of this total with both above 0, the most even first."""
    splits = [(first, total - first) for first in range(1, total) if first <= most[0] and total - first <= most[1]]
    yield from sorted(splits, key=lambda sizes: abs(sizes[0] - sizes[1]))


def _placed(
    problem: Problem, pair: _Pair, found: kernel.Search, choice: ShareChoice
) -> tuple[tuple[BoolArray, BoolArray], float, float]:
    """Return the masks over the candidates, z and λ of what the search found; spare GPU time is split evenly."""
    needs = [kernel.needed(users, mask) for users, mask in zip(pair.lanes, (found.first, found.second), strict=True)]
    masks = [np.zeros(len(problem.candidates), dtype=np.bool_) for _ in range(2)]
    masks[0][pair.row], masks[1][pair.row] = found.first, found.second
    z = found.gpu_share if len(choice.gpu) else (needs[0][0] + 1.0 - needs[1][0]) / 2.0
    memory = memory_share_for(choice, needs[0][1], needs[1][1], pair.shares.free_bytes)
    return (masks[0], masks[1]), z, memory
