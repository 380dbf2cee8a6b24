"""First come, first served: continuous batching as today's serving engines do it, blind to deadlines."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.problem import Problem
from balancesim.core.request import Mode
from balancesim.core.shares import free_for, room
from balancesim.policies.lanes import ad_lane, check_draft_length, sd_lane


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: admit in order of arrival while KV memory holds, whatever the deadlines."""

    name: ClassVar[str] = "fcfs"

    mode: Mode = Mode.AD  #: of its one lane
    draft_length: int | None = None  #: γ for SD; None = the server's

    def __post_init__(self) -> None:
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the longest prefix of the queue whose reservations fit; the head of the queue is never overtaken.

        Costs O(new candidates · log) and never looks at residents: memory held is a number of the problem. No
        completion times are predicted.
        """
        lane = ad_lane() if self.mode is Mode.AD else sd_lane(problem, self.draft_length)
        space = room(problem, (lane.lane_id,))
        lane = replace(lane, gpu_share=space.gpu_share, memory_share=space.memory_share)
        members = self._members(problem, lane) if space.gpu_share > 0 else ()
        mine: tuple[Lane, ...] = (replace(lane, members=members),)
        if not members and problem.lane_in_force(lane.lane_id) is None:
            mine = ()
        return Decision((*mine, *space.others))

    @staticmethod
    def _members(problem: Problem, lane: Lane) -> tuple[int, ...]:
        users = problem.candidates
        # Candidates come in order of arrival; sorting makes the answer independent of that. Without a channel: wait.
        first = np.lexsort((users.request_id, -users.waited_s)) if len(users) > 1 else slice(None)
        queue = users.request_id[first][np.isfinite(users.upload_s[first])].tolist()
        free = free_for(problem, (lane,)) - problem.held_bytes
        if problem.lane_in_force(lane.lane_id) is None or len(problem.lanes) > 1:
            free = min(free, lane.memory_share * free_for(problem, (lane,)))
        low, high = 0, len(queue)
        middle = high  # most often all fit
        while low < high:  # reservations grow with the prefix
            fits = problem.lane_model.new_bytes(problem, replace(lane, members=tuple(queue[:middle]))) <= free
            low, high = (middle, high) if fits else (low, middle - 1)
            middle = (low + high + 1) // 2
        return tuple(queue[:low])
