"""The padded sub-problem of one lane, exactly (model.md §5, step "solve the AD (SD) sub-problem" of [P1]).

Inside bounds on prompt S, answer N, rounds I (SD) and upload U all users are interchangeable: only the count b matters,
and the b-th largest slack among the users inside must reach U + C(b, S, N, I)/share. So the paper's enumeration of a
deadline bound D is not needed, and the rest is a compiled branch and bound (`core.solver_kernel`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from balancesim.core import solver_kernel as kernel
from balancesim.core.decision import Lane
from balancesim.core.memory import kv_bytes_per_token, speculates
from balancesim.core.padded import step_table
from balancesim.core.problem import Admissions, Budgets, Problem, SubProblem
from balancesim.core.shares import PairGrid, PairSolution
from balancesim.core.speculation import expected_tokens_per_round, planned_rounds
from balancesim.core.two_stage import solution_at
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True)
class PaddedSubProblem:
    """One padded lane over the candidates of a problem that can be served at all, in order of preference."""

    users: kernel.Users
    row: IntArray  #: candidate of each user
    count: int  #: of candidates

    @classmethod
    def of(cls, problem: Problem, lane: Lane, load_s: float) -> Self:
        """Build the sub-problem; users whose upload alone misses the deadline are left out.

        Of users who fit a batch equally, AD prefers those that speculation helps least (smallest E), SD those it helps
        most, so that the lane solved first leaves the other its best users; then the shorter, then the smaller id.
        """
        table = problem.candidates
        gamma = lane.draft_length if speculates(lane.mode, lane.draft_length) else 0
        start = np.maximum(table.upload_s, load_s)
        with np.errstate(invalid="ignore"):
            possible = np.flatnonzero(table.slack_s - start > 0)  # NaN (no channel) is not above 0
        gain = np.asarray(expected_tokens_per_round(table.acceptance_rate, problem.server.draft_length), dtype=float)
        keys = (table.request_id, table.prompt_tokens + table.output_tokens, -gain if gamma else gain)
        row = possible[np.lexsort([key[possible] for key in keys])]
        return cls(users_of(problem, lane, row, start[row]), row, len(table))

    def admit(self, budgets: Budgets) -> Admissions:
        """Return the largest batch for every alternative."""
        members = np.zeros_like(budgets.available)
        rows = zip(budgets.available, budgets.gpu_share, budgets.memory_bytes, budgets.at_least, strict=True)
        for number, (available, share, memory, least) in enumerate(rows):
            mine = available[self.row]
            between = (max(0, int(least) - 1), len(mine))
            batch = kernel.largest(self.users, mine, (share, memory), between, self._overlap)
            members[number, self.row] = kernel.members(self.users, mine, batch)
        return Admissions(members, np.ones(len(members), dtype=np.bool_))

    @cached_property
    def _overlap(self) -> IntArray:
        return np.zeros(len(self.users.bounds) + 1, dtype=np.int64)

    def _over_all(self, gpu: FloatArray, memory: FloatArray) -> IntArray:
        key = (gpu.tobytes(), memory.tobytes())
        if key not in self._cells:
            self._cells[key] = kernel.counts_over_all(self.users, gpu, memory)
        return self._cells[key]

    @cached_property
    def _cells(self) -> dict[tuple[bytes, bytes], IntArray]:
        return {}

    def pair(self, other: SubProblem, grid: PairGrid, floor: int) -> PairSolution | None:
        """Return the best cell when this lane is solved over all users and the other over the rest."""
        assert isinstance(other, PaddedSubProblem)  # both lanes are of one lane model
        first, second = (np.ascontiguousarray(axis) for axis in (grid.gpu[0], grid.gpu[1][::-1]))
        lower, upper = (np.ascontiguousarray(axis) for axis in (grid.limits_bytes[0], grid.limits_bytes[1][::-1]))
        counts = (self._over_all(first, lower), np.ascontiguousarray(other._over_all(second, upper)[::-1, ::-1]))
        axes = kernel.Grid(first, second[::-1], lower, upper[::-1], np.ascontiguousarray(grid.order))
        served, i, j, one, two = kernel.best_pair(
            (self.users, other.users), (self.row, other.row), axes, counts, (floor, self.count)
        )
        if served <= floor:
            return None
        masks = np.zeros((2, self.count), dtype=np.bool_)
        masks[0, self.row], masks[1, other.row] = one, two
        return solution_at(grid, (i, j), (masks[0], masks[1]))


def users_of(problem: Problem, lane: Lane, row: IntArray, start_s: FloatArray) -> kernel.Users:
    """Return these candidates as users of a lane, in this order, with what its batches cost."""
    table, server = problem.candidates, problem.server
    drafting = speculates(lane.mode, lane.draft_length)
    gamma = lane.draft_length if drafting else 0
    prompt, output = table.prompt_tokens[row], table.output_tokens[row]
    prompts, outputs = np.unique(prompt), np.unique(output)
    token_bytes = kv_bytes_per_token(server, lane.mode, lane.draft_length)
    costs = step_table(server, lane.mode, lane.draft_length)
    if len(row):
        shortest = float(prompts[0] + outputs[0] + gamma) * token_bytes
        most = min(len(row), int(max(0.0, server.free_bytes(uses_sd=False)) / shortest) + 1)
        costs.cover(most, int(prompts[-1] + outputs[-1]))
    rounds = np.asarray(planned_rounds(output, table.acceptance_rate[row], gamma), dtype=np.int64)
    # AD knows no bound I: one that everybody keeps stands for none
    bounds, rank = np.unique(rounds, return_inverse=True) if drafting else (np.zeros(1, np.int64), 0 * rounds)
    return kernel.Users(
        prompt,
        output,
        rounds,
        start_s,
        table.slack_s[row],
        prompts,
        outputs,
        bounds,
        rank.astype(np.int64),
        bounds.searchsorted(np.arange(bounds.max(initial=0) + 1), side="right") - 1,
        costs.prefill_s,
        costs.total_s,
        drafting,
        gamma,
        float(token_bytes),
    )
