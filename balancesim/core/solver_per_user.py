"""The sub-problem of one lane with additive cost, exactly (model.md §5, cost form ``per_user``).

The paper's steps (Qu et al., arXiv 2608.05926): enumerate bounds S, N, U, D from the users' own values, keep the users
within them, admit in ascending order of their own contribution while U + Σ c_k/share ≤ D and the padded memory hold.
For a batch of b users the memory only asks for S + N ≤ M/(b·kv) − γ, so that N follows from S and b.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from balancesim.core import solver_per_user_kernel as kernel
from balancesim.core.decision import Lane
from balancesim.core.memory import kv_bytes_per_token, speculates
from balancesim.core.padded import Members, per_user_costs
from balancesim.core.problem import Admissions, Budgets, Problem, SubProblem
from balancesim.core.shares import PairGrid, PairSolution
from balancesim.core.speculation import planned_rounds
from balancesim.core.two_stage import two_stage
from balancesim.units import IntArray


@dataclass(frozen=True)
class PerUserSubProblem:
    """One lane over the candidates of a problem that can be served at all, by falling slack."""

    users: kernel.Users
    row: IntArray  #: candidate of each user
    order: IntArray  #: users by ascending contribution, then request id
    count: int  #: of candidates

    @classmethod
    def of(cls, problem: Problem, lane: Lane, load_s: float) -> Self:
        """Build the sub-problem; users whose upload alone misses the deadline are left out."""
        table, server = problem.candidates, problem.server
        gamma = lane.draft_length if speculates(lane.mode, lane.draft_length) else 0
        start = np.maximum(table.upload_s, load_s)
        with np.errstate(invalid="ignore"):
            row = np.flatnonzero(table.slack_s - start > 0)  # NaN (no channel) is not above 0
        row = row[np.lexsort((table.request_id[row], -table.slack_s[row]))]
        prompt, output, start = table.prompt_tokens[row], table.output_tokens[row], start[row]
        rounds = np.asarray(planned_rounds(output, table.acceptance_rate[row], gamma), dtype=np.int64)
        cost = np.zeros(0)
        if len(row):
            own = per_user_costs(server, lane.mode, lane.draft_length, Members(prompt, output, rounds))
            cost = np.asarray(own.total_s, dtype=float)
        token_bytes = float(kv_bytes_per_token(server, lane.mode, lane.draft_length))
        distinct = (np.unique(prompt), np.unique(start))
        users = kernel.Users(prompt, output, start, table.slack_s[row], cost, *distinct, gamma, token_bytes)
        return cls(users, row, np.lexsort((table.request_id[row], cost)), len(table))

    def admit(self, budgets: Budgets) -> Admissions:
        """Return the largest batch for every alternative."""
        members = np.zeros_like(budgets.available)
        rows = zip(budgets.available, budgets.gpu_share, budgets.memory_bytes, budgets.at_least, strict=True)
        for number, (available, share, memory, least) in enumerate(rows):
            mine = available[self.row]
            bounds = kernel.largest(self.users, mine, (float(share), float(memory)), int(least))
            members[number, self.row] = kernel.members(self.users, mine, bounds, self.order)
        return Admissions(members, np.ones(len(members), dtype=np.bool_))

    def pair(self, other: SubProblem, grid: PairGrid, floor: int) -> PairSolution | None:
        """Return the best cell when this lane is solved over all candidates and the other over the rest."""
        return two_stage((self, other), self.count, grid, floor)
