"""Joining a running lane: most candidates in time, by insertion in several orders (model.md §5).

A continuous lane has a cost of its own for every set of members, so that the bounds S, N of a padded batch do not
describe it, and no exact polynomial method is known. Candidates are inserted one after another in several orders; each
insertion is checked against the deadlines of all members and residents (the aligned prediction of `core.aligned`) and
the
memory; the best order wins. With one alternative an exchange pass follows: one out, two or more in.

Times come from tables (`core.surfaces`) and are summed by the trapezoidal rule between departures: exact for laws
linear
in the context, never too small for convex ones. The policies' last check (`core.solver.settle`) uses the full sum.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from balancesim.core import solver_continuous_kernel as kernel
from balancesim.core.aligned import AlignedLane, joined
from balancesim.core.candidates import Candidates
from balancesim.core.problem import Admissions, Budgets, SubProblem
from balancesim.core.shares import PairGrid, PairSolution
from balancesim.core.surfaces import surfaces
from balancesim.core.two_stage import two_stage
from balancesim.units import FloatArray, IntArray

#: Rounding must not let a lane through that the check of the whole decision rejects.
_MARGIN = 1.0 - 1e-12
#: Sums of reservations round by less than this part; what fills the memory to the last byte must be found.
_ROUNDING = 1.0 + 1e-13


@dataclass(frozen=True)
class ContinuousSubProblem:
    """One continuous lane: candidates that may join (rows of ``new``) and residents that stay (rows of ``old``)."""

    new: AlignedLane
    old: AlignedLane
    candidates: Candidates

    @cached_property
    def _lane(self) -> kernel.Lane:
        rows = joined(self.new, self.old)
        count = len(self.new.steps)
        leaving = np.argsort(rows.steps, kind="stable")
        rows = rows.take(leaving)
        with np.errstate(invalid="ignore"):
            window = rows.slack_s - rows.start_s
        tables = surfaces(rows.server, rows.draft_length)
        # No mean over any set of members exceeds the longest context that one member reaches.
        longest = rows.context_tokens + rows.steps * rows.tokens_per_step + rows.prefill_tokens
        tables.cover(len(rows.steps), float(longest.max(initial=0.0)))
        return kernel.Lane(
            steps=rows.steps,
            context=rows.context_tokens,
            growth=rows.tokens_per_step,
            prefill=rows.prefill_tokens,
            window_s=np.where(np.isnan(window), -np.inf, window),
            reserved_bytes=np.where(leaving < count, rows.reserved_bytes, 0.0),
            candidate=np.where(leaving < count, leaving, -1),
            step_s=tables.step_s,
            prefill_s=tables.prefill_s,
            tokens=tables.tokens,
        )

    @cached_property
    def _orders(self) -> IntArray:
        """Rows of the lane in the orders of insertion; ties by request id.

        Fewest steps first, least memory first, most patient first, least cost for its patience first, arrival.
        """
        lane = self._lane
        rows = np.flatnonzero(lane.candidate >= 0)
        mine = lane.candidate[rows]
        steps, context = lane.steps[rows], lane.context[rows]
        window, memory = lane.window_s[rows], lane.reserved_bytes[rows]
        ids, waited = self.candidates.request_id[mine], self.candidates.waited_s[mine]
        cost = steps + context / max(1.0, float(context.mean())) if len(rows) else context
        keys: list[tuple[FloatArray | IntArray, ...]] = [(ids, -window, cost), (ids, cost, memory), (ids, -waited)]
        if np.isfinite(window).any():
            relative = np.divide(cost, window, out=np.full(len(rows), np.inf), where=window > 0)
            keys += [(ids, cost, -window), (ids, cost, relative)]
        return rows[np.array([np.lexsort(key) for key in keys], dtype=np.int64).reshape(len(keys), len(rows))]

    def admit(self, budgets: Budgets) -> Admissions:
        """Return, for every alternative, the largest of the sets that the insertion orders reach."""
        shares = budgets.gpu_share * _MARGIN
        free = budgets.memory_bytes * _ROUNDING - float(self.old.reserved_bytes.sum())
        alone = len(shares) == 1
        available = np.ascontiguousarray(budgets.available)
        return Admissions(*kernel.admit(self._lane, self._orders, available, (shares, free), alone))

    def pair(self, other: SubProblem, grid: PairGrid, floor: int) -> PairSolution | None:
        """Return the best cell when this lane is solved over all candidates and the other over the rest."""
        return two_stage((self, other), len(self.candidates), grid, floor)
