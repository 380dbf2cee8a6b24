"""All 3^K assignments of a padded static problem, vectorised, with the shares in closed form (model.md §5, P0).

For disjoint sets A (AD) and S (SD) shares exist iff ζ_A + ζ_S ≤ 1 and M^A + M^S ≤ free, where ζ = C/(D − U) is the
smallest share that a set needs, D its smallest slack and U its longest upload: z = ζ_A … 1 − ζ_S, and λ likewise. So
this
optimum is over continuous shares. No pruning; every assignment's costs are computed from its members.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from balancesim.core.decision import Lane
from balancesim.core.memory import padded_kv_bytes, speculates
from balancesim.core.padded import BatchShape, padded_cost
from balancesim.core.problem import Problem
from balancesim.core.speculation import planned_rounds
from balancesim.units import BoolArray, FloatArray, IntArray

_TAIL = 11  # users whose assignments form one block: 177,147 rows
_SHARES = 1.0 + 1e-12


@dataclass(frozen=True)
class Optimum:
    """The most users served and one assignment (0 waits, 1 first lane, 2 second lane) that serves them."""

    served: int
    assignment: IntArray
    assignments_tried: int


def optimum_by_assignments(problem: Problem, lanes: tuple[Lane, Lane]) -> Optimum:
    """Return the optimum over all assignments and continuous shares; a draft model that is not loaded delays as usual.

    Time O(3^K): 10 users take milliseconds, 16 take many seconds.
    """
    best = Optimum(0, np.zeros(len(problem.candidates), dtype=np.int64), 0)
    tried = 0
    for block in _blocks(len(problem.candidates)):
        tried += len(block)
        possible, served = _feasible(problem, lanes, block)
        served = np.where(possible, served, 0)
        row = int(np.argmax(served))
        if served[row] > best.served:
            best = Optimum(int(served[row]), block[row].astype(np.int64), 0)
    return Optimum(best.served, best.assignment, tried)


def _blocks(count: int) -> Iterator[IntArray]:
    """Yield all assignments of ``count`` users as (rows, users) blocks."""
    tail = min(count, _TAIL)
    digits = np.indices((3,) * tail, dtype=np.int8).reshape(tail, -1).T if tail else np.zeros((1, 0), np.int8)
    for head in np.ndindex(*(3,) * (count - tail)):
        yield np.concatenate((np.tile(np.array(head, dtype=np.int8), (len(digits), 1)), digits), axis=1)


def _feasible(problem: Problem, lanes: tuple[Lane, Lane], block: IntArray) -> tuple[BoolArray, IntArray]:
    shares, memory = np.zeros(len(block)), np.zeros(len(block))
    served = np.zeros(len(block), dtype=np.int64)
    drafts = np.zeros(len(block), dtype=np.bool_)
    for number, lane in enumerate(lanes, start=1):
        share, size, count = _needs(problem, lane, block == number)
        shares, memory, served = shares + share, memory + size, served + count
        if speculates(lane.mode, lane.draft_length):
            drafts |= count > 0
    server = problem.server
    free = np.where(drafts, server.free_bytes(uses_sd=True), server.free_bytes(uses_sd=False))
    return (shares <= _SHARES) & (memory <= free), served


def _needs(problem: Problem, lane: Lane, member: BoolArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return ζ, M and b of the sets in the rows of ``member``."""
    users, server = problem.candidates, problem.server
    gamma = lane.draft_length if speculates(lane.mode, lane.draft_length) else 0
    rounds = np.asarray(planned_rounds(users.output_tokens, users.acceptance_rate, gamma), dtype=np.int64)
    load = server.draft_load_s if gamma and not problem.draft_loaded else 0.0
    start = np.nan_to_num(np.maximum(users.upload_s, load), nan=np.inf)
    count, prompt, output, most = (np.zeros(len(member), dtype=np.int64) for _ in range(4))
    upload, slack = np.zeros(len(member)), np.full(len(member), np.inf)
    for column, inside in enumerate(member.T):
        count += inside
        np.maximum(prompt, inside * users.prompt_tokens[column], out=prompt)
        np.maximum(output, inside * users.output_tokens[column], out=output)
        np.maximum(most, inside * rounds[column], out=most)
        np.maximum(upload, np.where(inside, start[column], 0.0), out=upload)
        np.minimum(slack, np.where(inside, users.slack_s[column], np.inf), out=slack)
    shape = BatchShape(np.maximum(count, 1), np.maximum(prompt, 1), np.maximum(output, 1), most)
    cost = np.asarray(padded_cost(server, lane.mode, lane.draft_length, shape).total_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(slack - upload > 0, cost / (slack - upload), np.inf)
    tokens = (prompt + output).astype(float)
    memory = count * np.asarray(padded_kv_bytes(server, lane.mode, lane.draft_length, tokens))
    return np.where(count > 0, share, 0.0), memory, count
