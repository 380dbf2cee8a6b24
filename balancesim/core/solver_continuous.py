"""Joining a running lane: most candidates in time, by insertion in several orders (model.md §5, no exact method known).

A continuous lane has a different cost for every set of members, so the bounds S, N of a padded batch do not describe it.
Candidates are inserted one after another; each insertion is checked against the deadlines of all members and residents
(the aligned prediction of `core.aligned`) and the memory. All alternatives of a grid of shares advance together: one
insertion step is a handful of array operations over (alternatives × members).

Step times are summed by the trapezoidal rule between departures, which is exact for laws linear in the context and never
too small for convex ones (roofline); policies check the final decision against the full sum.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from balancesim.core.aligned import AlignedLane, joined
from balancesim.core.problem import Admissions, Budgets, Candidates, SubProblem
from balancesim.core.shares import PairGrid, PairSolution
from balancesim.core.two_stage import two_stage
from balancesim.units import BoolArray, FloatArray, IntArray

#: Rounding must not let a lane through that the check of the whole decision rejects.
_MARGIN = 1.0 - 1e-12


@dataclass(frozen=True)
class ContinuousSubProblem:
    """One continuous lane: candidates that may join (rows of ``new``) and residents that stay (rows of ``old``)."""

    new: AlignedLane
    old: AlignedLane
    candidates: Candidates

    @cached_property
    def _rows(self) -> AlignedLane:
        """All possible members, by steps: the order in which they leave."""
        rows = joined(self.new, self.old)
        return rows.take(self._leaving)

    @cached_property
    def _leaving(self) -> IntArray:
        steps = np.concatenate((self.new.steps, self.old.steps))
        return np.argsort(steps, kind="stable")

    @cached_property
    def _rank(self) -> IntArray:
        """Row of each candidate in the order of leaving."""
        return np.argsort(self._leaving)[: len(self.new.steps)]

    @cached_property
    def _window_s(self) -> FloatArray:
        """Time that each possible member has for its work."""
        with np.errstate(invalid="ignore"):
            window = self._rows.slack_s - self._rows.start_s
        return np.where(np.isnan(window), -np.inf, window)

    @cached_property
    def _residents(self) -> BoolArray:
        return self._leaving >= len(self.new.steps)

    def required_share(self, present: BoolArray) -> FloatArray:
        """Return the smallest GPU share with which every present member is in time, (G, M) → (G,); inf if none is."""
        rows, here = self._rows, present.astype(float)
        active = np.cumsum(here[:, ::-1], axis=1)[:, ::-1]
        context = np.cumsum((here * rows.context_tokens)[:, ::-1], axis=1)[:, ::-1]
        growth = np.cumsum((here * rows.tokens_per_step)[:, ::-1], axis=1)[:, ::-1]
        done = np.concatenate(([0], rows.steps[:-1]))
        length = rows.steps - done
        batch = np.maximum(active, 1.0)
        ends = rows.step_s(
            np.stack((batch, batch)),
            np.stack((context + done * growth, context + np.maximum(rows.steps - 1, 0) * growth)),
        )
        seconds = np.where(active > 0, 0.5 * length * (ends[0] + ends[1]), 0.0)
        work = rows.prefill_work_s(here)[:, None] + np.cumsum(seconds, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(self._window_s > 0, work / self._window_s, np.inf)
        return np.max(np.where(present, share, 0.0), axis=1, initial=0.0)

    def admit(self, budgets: Budgets) -> Admissions:
        """Return, for every alternative, the largest of the sets that the insertion orders reach."""
        alternatives = len(budgets.gpu_share)
        present = np.tile(self._residents, (alternatives, 1))
        shares = budgets.gpu_share * _MARGIN
        free = budgets.memory_bytes * _MARGIN - self.old.reserved_bytes.sum()
        feasible = self._keeps_residents(budgets)
        best = np.zeros_like(budgets.available)
        open_rows = np.flatnonzero(feasible & (budgets.available.any(axis=1)))
        if len(open_rows) == 0:
            return Admissions(best, feasible)
        state = _State(present[open_rows], budgets.available[open_rows], shares[open_rows], free[open_rows])
        best[open_rows] = self._fill(state)
        return Admissions(best, feasible)

    def pair(self, other: SubProblem, grid: PairGrid, floor: int) -> PairSolution | None:
        """Return the best cell when this lane is solved over all candidates and the other over the rest."""
        return two_stage((self, other), len(self.candidates), grid, floor)

    def _keeps_residents(self, budgets: Budgets) -> BoolArray:
        """Return where the residents alone are in time; a lane without residents needs nothing."""
        if len(self.old.steps) == 0:
            return np.ones(len(budgets.gpu_share), dtype=np.bool_)
        needed = self.required_share(self._residents[None, :])[0]
        return (budgets.gpu_share > 0) & (needed <= budgets.gpu_share * (1.0 + 1e-9))

    def _fill(self, state: "_State") -> BoolArray:
        """Return the best members over the orders, each with the rest tried after the longest prefix that fits."""
        whole = self._with(state.present, state.available)
        reserved = (state.available * self.new.reserved_bytes).sum(axis=1)
        fits = (reserved <= state.free) & (self.required_share(whole) <= state.shares)
        best = np.where(fits[:, None], state.available, False)
        rest = np.flatnonzero(~fits)
        if len(rest) == 0:
            return best
        sub = _State(state.present[rest], state.available[rest], state.shares[rest], state.free[rest])
        for order in self._orders():
            members = self._insert(sub, order)
            more = members.sum(axis=1) > best[rest].sum(axis=1)
            best[rest[more]] = members[more]
        return best

    def _orders(self) -> list[IntArray]:
        """Cheapest first, most patient first, cheapest for its patience first, arrival; ties by request id."""
        cost = self.new.steps + self.new.context_tokens / max(1.0, float(np.mean(self.new.context_tokens)))
        window, ids = self._window_s[self._rank], self.candidates.request_id
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(window > 0, cost / window, np.inf)
        memory = self.new.reserved_bytes
        orders = [np.lexsort((ids, -window, cost)), np.lexsort((ids, cost, memory))]
        if np.isfinite(window).any():
            orders += [np.lexsort((ids, cost, -window)), np.lexsort((ids, cost, relative))]
        orders.append(np.lexsort((ids, -self.candidates.waited_s)))
        return orders

    def _with(self, present: BoolArray, members: BoolArray) -> BoolArray:
        result = present.copy()
        result[:, self._rank] |= members
        return result

    def _insert(self, state: "_State", order: IntArray) -> BoolArray:
        """Insert in this order wherever all stay in time and memory lasts."""
        sizes = self.new.reserved_bytes[order]
        wanted = state.available[:, order]
        taken = self._longest_prefix(state, order)
        members = np.zeros_like(state.available)
        members[:, order] = wanted & (np.arange(len(order)) < taken[:, None])
        used = (members * self.new.reserved_bytes).sum(axis=1)
        for step in range(int(taken.min()), len(order)):
            candidate = order[step]
            trying = wanted[:, step] & (step >= taken) & (used + sizes[step] <= state.free)
            rows = np.flatnonzero(trying)
            if len(rows) == 0:
                continue
            trial = members[rows]
            trial[:, candidate] = True
            accepted = rows[self.required_share(self._with(state.present[rows], trial)) <= state.shares[rows]]
            members[accepted, candidate] = True
            used[accepted] += sizes[step]
        return members

    def _longest_prefix(self, state: "_State", order: IntArray) -> IntArray:
        """Return how many of the order fit as a prefix, by bisection: costs only grow with members."""
        wanted = state.available[:, order]
        reserved = np.cumsum(wanted * self.new.reserved_bytes[order], axis=1)
        high = (reserved <= state.free[:, None]).sum(axis=1)
        low = np.zeros_like(high)
        places = np.arange(len(order))
        while (low < high).any():
            middle = (low + high + 1) // 2
            trial = np.zeros_like(state.available)
            trial[:, order] = wanted & (places < middle[:, None])
            fits = self.required_share(self._with(state.present, trial)) <= state.shares
            low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        return low


@dataclass(frozen=True, slots=True)
class _State:
    """Alternatives under way."""

    present: BoolArray  #: (G, M): residents
    available: BoolArray  #: (G, K)
    shares: FloatArray
    free: FloatArray  #: memory left for new members
