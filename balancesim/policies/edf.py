"""Earliest deadline first, in the mode in which a request can still make it."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.pair_search import PairSearch
from balancesim.core.problem import Budgets, Problem, SubProblem
from balancesim.core.shares import free_for, room
from balancesim.core.solver import best_of, complete
from balancesim.policies.lanes import ad_lane, check_draft_length, has_draft, sd_lane


@dataclass(frozen=True, slots=True)
class Edf:
    """Earliest deadline first: each request joins the batch in which it ends first, if nobody there becomes late."""

    name: ClassVar[str] = "edf"

    gpu_share: float | None = None  #: z, fixed; None = the best of a grid, and of each mode alone
    share_step: float = 0.25  #: step of that grid; 1/share_step must be a whole number
    draft_length: int | None = None  #: γ of SD; None = the server's

    def __post_init__(self) -> None:
        self._search()
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the walk that admits most, of one for every z and one for the shares in force, if there are residents.

        A walk goes through the candidates by deadline, the earliest first, equal ones by request number. A candidate
        may join a lane if then it, everybody admitted there before it, and the residents whose deadlines count are in
        time, and memory lasts; of the lanes that it may join it takes the one where it ends first, AD when it ends at
        the same time; who may join none is passed over. The lanes hold memory in common: λ follows from the walk.
        """
        ad = ad_lane()
        lanes = (ad, sd_lane(problem, self.draft_length)) if has_draft(problem) else (ad,)
        subs = {lane.lane_id: problem.lane_model.sub_problem(problem, lane) for lane in lanes}
        walks = [
            _Walk(problem, chosen, tuple(subs[lane.lane_id] for lane in chosen)).decision()
            for chosen in self._alternatives(problem, lanes)
        ]
        return best_of(problem, walks)

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest GPU share of a lane: a switch must cost less than its window."""
        return self._search().smallest_gpu_share

    def _search(self) -> PairSearch:
        return PairSearch(self.share_step, refine=False, gpu_share=self.gpu_share)

    def _alternatives(self, problem: Problem, lanes: tuple[Lane, ...]) -> list[tuple[Lane, ...]]:
        """Return lanes with GPU shares: each alone, both at every z, and the shares in force."""
        found: list[tuple[Lane, ...]] = []
        if self.gpu_share is None or len(lanes) == 1:
            for lane in lanes:
                found.append((replace(lane, gpu_share=room(problem, (lane.lane_id,)).gpu_share),))
        if len(lanes) == 1:
            return found
        whole = room(problem, tuple(lane.lane_id for lane in lanes)).gpu_share
        for z in self._search().gpu_axis() * whole:
            found.append((replace(lanes[0], gpu_share=float(z)), replace(lanes[1], gpu_share=float(whole - z))))
        before = [problem.lane_in_force(lane.lane_id) for lane in lanes]
        if any(before):
            known = math.fsum(lane.gpu_share for lane in before if lane is not None)
            now = [max(0.0, whole - known) if lane is None else lane.gpu_share for lane in before]
            found.append(tuple(replace(lane, gpu_share=share) for lane, share in zip(lanes, now, strict=True)))
        return found


class _Walk:
    """One walk through the candidates with lanes of given GPU shares."""

    def __init__(self, problem: Problem, lanes: tuple[Lane, ...], subs: tuple[SubProblem, ...]) -> None:
        self.problem = problem
        self.lanes = list(lanes)
        self.subs = subs
        self.members = [np.zeros(len(problem.candidates), dtype=np.bool_) for _ in lanes]
        self.room = room(problem, tuple(lane.lane_id for lane in lanes))
        self.free = free_for(problem, lanes)
        self.reserved = [problem.lane_model.predict(problem, lane).reserved_bytes for lane in lanes]
        elsewhere = problem.held_bytes - math.fsum(self.reserved)
        self.limit = min(self.room.memory_share * self.free, self.free - elsewhere)

    def decision(self) -> Decision:
        users = self.problem.candidates
        for row in np.lexsort((users.request_id, users.slack_s)).tolist():
            open_to = [place for place in range(len(self.lanes)) if self._may_join(place, row)]
            if open_to:
                self._join(open_to, row)
        return self._complete()

    def _may_join(self, place: int, row: int) -> bool:
        """Return whether all of the lane and this candidate are the largest batch among themselves."""
        self.members[place][row] = True
        available = self.members[place][None, :]
        memory = self.limit - (math.fsum(self.reserved) - self.reserved[place])
        count = np.array([available.sum()])
        budgets = Budgets(available, np.array([self.lanes[place].gpu_share]), np.array([memory]), count)
        fits = bool(self.subs[place].admit(budgets).members.sum() == count[0])
        self.members[place][row] = False
        return fits

    def _join(self, open_to: list[int], row: int) -> None:
        request_id = int(self.problem.candidates.request_id[row])
        trials = [replace(self.lanes[p], members=(*self.lanes[p].members, request_id)) for p in open_to]
        predictions = [self.problem.lane_model.predict(self.problem, lane) for lane in trials]
        ends_s = [float(p.finish_s[len(lane.members) - 1]) for lane, p in zip(trials, predictions, strict=True)]
        first = int(np.argmin(ends_s))
        place = open_to[first]
        self.lanes[place], self.reserved[place] = trials[first], predictions[first].reserved_bytes
        self.members[place][row] = True

    def _complete(self) -> Decision:
        """Return the decision; memory left over is divided equally, memory outgrown (by residents) in proportion."""
        used, whole = math.fsum(self.reserved), self.room.memory_share * self.free
        lanes = []
        for lane, reserved in zip(self.lanes, self.reserved, strict=True):
            part = (reserved + (whole - used) / len(self.lanes)) / self.free if used <= whole and self.free > 0 else 0.0
            if used > whole:
                part = self.room.memory_share * reserved / used
            lanes.append(replace(lane, members=(), memory_share=part))
        return complete(self.problem, tuple(lanes), tuple(self.members))
