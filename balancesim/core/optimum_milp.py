"""The exact optimum as one mixed-integer program for HiGHS (scipy), over continuous shares (model.md §5).

Binary x_km: user k in lane m ∈ {AD, SD}. Binary y_mc: lane m has shape c = (b, S, N). Continuous z and C_m.

    maximise  Σ x_km
    Σ_m x_km ≤ 1,   Σ_k x_km = Σ_c b_c·y_mc,   x_km ≤ Σ_{c: S_c ≥ s_k, N_c ≥ n_k} y_mc
    C_A = Σ_c C^A(c)·y_Ac,   C_S ≥ Σ_c (prefill_c + I_k·round_c)·y_Sc − M·(1 − x_kS)     for all k (I = max of members)
    C_m ≤ share_m·(d_k − u_j) + M·(2 − x_km − x_jm)       for all pairs k, j: U is the longest upload of the members
    Σ_mc bytes_mc·y_mc ≤ free,   share_A = z,   share_S = 1 − z

Both modes are in use here; one mode alone, with its own free memory, is solved beside it (`core.optimum.best_alone`).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from balancesim.core.decision import Lane
from balancesim.core.lane_models import load_s
from balancesim.core.memory import padded_kv_bytes, speculates
from balancesim.core.optimum import (
    Optimum,
    best_alone,
    both_free_bytes,
    can_draft,
    lanes_of,
)
from balancesim.core.optimum_exhaustive import decision_of
from balancesim.core.padded import BatchShape, padded_cost
from balancesim.core.problem import Problem
from balancesim.core.speculation import planned_rounds
from balancesim.units import FloatArray, IntArray

_SMALLEST_GAP = 0.999  #: served is a whole number: a smaller gap proves the optimum


@dataclass(frozen=True)
class _Shapes:
    """Possible shapes of one lane's batch: cost = fixed + each·I."""

    size: IntArray
    prompt: IntArray
    output: IntArray
    fixed_s: FloatArray
    each_s: FloatArray
    held_bytes: FloatArray


@dataclass(frozen=True)
class _LaneData:
    shapes: _Shapes
    prompt: IntArray
    output: IntArray
    rounds: IntArray  #: I_k of every user; 0 for AD
    start_s: FloatArray


class _Program:
    """Rows low ≤ row·x ≤ high over the columns x_AD, x_SD (K each), y_AD, y_SD, C_AD, C_SD, z."""

    def __init__(self, lanes: tuple[_LaneData, _LaneData], count: int) -> None:
        self.count = count
        sizes = [len(lane.shapes.size) for lane in lanes]
        self.shapes = (2 * count + np.arange(sizes[0]), 2 * count + sizes[0] + np.arange(sizes[1]))
        first = 2 * count + sum(sizes)
        self.work, self.z, self.columns = (first, first + 1), first + 2, first + 3
        self.rows: list[FloatArray] = []
        self.limits: list[tuple[float, float]] = []

    def row(self, low: float, high: float) -> FloatArray:
        """Return a new row of zeros to fill in."""
        self.rows.append(np.zeros(self.columns))
        self.limits.append((low, high))
        return self.rows[-1]

    def add_lane(self, lane: int, data: _LaneData, slack_s: FloatArray) -> None:
        """Add the rows of one lane."""
        shapes, mine, users = data.shapes, self.shapes[lane], lane * self.count + np.arange(self.count)
        self.row(0.0, 1.0)[mine] = 1.0
        members = self.row(0.0, 0.0)
        members[users], members[mine] = 1.0, -shapes.size
        work = self.row(0.0, math.inf)
        work[self.work[lane]], work[mine] = 1.0, -shapes.fixed_s
        longest = float(np.max(slack_s[:, None] - data.start_s))
        for k in range(self.count):
            covers = self.row(-math.inf, 0.0)
            covers[users[k]] = 1.0
            covers[mine[(shapes.prompt >= data.prompt[k]) & (shapes.output >= data.output[k])]] = -1.0
            if data.rounds[k]:
                cost = shapes.fixed_s + data.rounds[k] * shapes.each_s
                least = self.row(-float(cost.max()), math.inf)
                least[self.work[lane]], least[mine], least[users[k]] = 1.0, -cost, -float(cost.max())
            for j in range(self.count):
                window = float(slack_s[k] - data.start_s[j])
                slack = longest + max(0.0, -window)
                # C − share·window ≤ M·(2 − x_k − x_j), share = z or 1 − z
                late = self.row(-math.inf, 2.0 * slack + (window if lane else 0.0))
                late[self.work[lane]], late[self.z] = 1.0, window if lane else -window
                late[users[k]] += slack
                late[users[j]] += slack

    def constraint(self) -> LinearConstraint:
        """Return all rows."""
        low, high = np.array(self.limits).T
        return LinearConstraint(csr_array(np.array(self.rows)), low, high)


def _solve(lanes: tuple[_LaneData, _LaneData], slack_s: FloatArray, free: float, node_limit: int) -> Any:
    program = _Program(lanes, len(slack_s))
    for k in range(len(slack_s)):
        program.row(0.0, 1.0)[[k, len(slack_s) + k]] = 1.0
    memory = program.row(-math.inf, 1.0)
    for lane, data in enumerate(lanes):
        program.add_lane(lane, data, slack_s)
        memory[program.shapes[lane]] = data.shapes.held_bytes / free
        program.row(1.0, 1.0)[program.shapes[lane]] = 1.0  # both modes are in use
    objective, integer = np.zeros(program.columns), np.ones(program.columns, dtype=np.int64)
    objective[: 2 * len(slack_s)] = -1.0
    integer[[*program.work, program.z]] = 0
    high = np.ones(program.columns)
    high[list(program.work)] = math.inf
    return milp(
        objective,
        integrality=integer,
        bounds=Bounds(np.zeros(program.columns), high),
        constraints=program.constraint(),
        options={"node_limit": node_limit},
    )


def integer_program(problem: Problem, node_limit: int = 100_000) -> Optimum:
    """Return an optimum of P0 over continuous shares, or what HiGHS has proved within ``node_limit`` nodes.

    The program has O(K³) binary variables a lane; meant for K up to about 12.

    Raises:
        ValueError: the problem is not one of padded batches.
    """
    alone = best_alone(problem)
    free = both_free_bytes(problem) if can_draft(problem) else 0.0
    table = problem.candidates
    with np.errstate(invalid="ignore"):
        row = np.flatnonzero(table.slack_s - table.upload_s > 0)  # NaN (no channel) is not above 0
    if free <= 0 or len(row) < 2:
        return Optimum(alone, len(alone.admitted), 0)
    lanes = lanes_of(problem)
    data = tuple(_lane_data(problem, lane, row, free) for lane in lanes)
    if any(not len(lane.shapes.size) for lane in data):
        return Optimum(alone, len(alone.admitted), 0)
    result = _solve((data[0], data[1]), np.minimum(table.slack_s[row], 1e6), free, node_limit)
    nodes, bound = int(result.mip_node_count or 0), len(row)
    if result.status == 2:  # infeasible: there are no two non-empty batches
        return Optimum(alone, len(alone.admitted), nodes)
    if result.mip_dual_bound is not None:
        bound = int(np.floor(-result.mip_dual_bound + 1.0 - _SMALLEST_GAP))
    best = alone
    if result.x is not None:
        masks = [np.zeros(len(table), dtype=np.bool_) for _ in lanes]
        for lane in range(2):
            masks[lane][row] = result.x[lane * len(row) : (lane + 1) * len(row)] > 0.5
        if masks[0].sum() + masks[1].sum() > len(alone.admitted):
            best = decision_of(problem, (masks[0], masks[1]))
    return Optimum(best, max(bound, len(alone.admitted)), nodes)


def _lane_data(problem: Problem, lane: Lane, row: IntArray, free: float) -> _LaneData:
    table, server = problem.candidates, problem.server
    gamma = lane.draft_length if speculates(lane.mode, lane.draft_length) else 0
    prompt, output = table.prompt_tokens[row], table.output_tokens[row]
    grid = np.meshgrid(np.arange(1, len(row) + 1), np.unique(prompt), np.unique(output), indexing="ij")
    size, longest, most = (axis.ravel() for axis in grid)
    inside = ((prompt <= longest[:, None]) & (output <= most[:, None])).sum(axis=1)
    held = size * np.asarray(padded_kv_bytes(server, lane.mode, lane.draft_length, (longest + most).astype(float)))
    keep = (inside >= size) & (held <= free)
    size, longest, most, held = size[keep], longest[keep], most[keep], held[keep]
    if not len(size):
        empty = np.empty(0)
        return _LaneData(_Shapes(size, longest, most, empty, empty, empty), prompt, output, 0 * prompt, empty)
    none = padded_cost(server, lane.mode, lane.draft_length, BatchShape(size, longest, most, 0 * size))
    one = padded_cost(server, lane.mode, lane.draft_length, BatchShape(size, longest, most, 0 * size + 1))
    fixed = np.asarray(none.total_s, dtype=float)
    rounds = np.asarray(planned_rounds(output, table.acceptance_rate[row], gamma), dtype=np.int64)
    shapes = _Shapes(size, longest, most, fixed, np.asarray(one.total_s) - fixed, held)
    start_s = np.maximum(table.upload_s[row], load_s(problem, lane))
    return _LaneData(shapes, prompt, output, rounds if gamma else 0 * rounds, start_s)
