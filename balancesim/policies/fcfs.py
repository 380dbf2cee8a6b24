"""First come, first served: continuous batching as today's serving engines do it, blind to deadlines."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision, Lane
from balancesim.core.problem import Problem
from balancesim.core.request import Mode
from balancesim.core.shares import free_for, room
from balancesim.policies.lanes import ONE_LANE, ad_lane, check_draft_length, sd_lane

_AD = ad_lane()


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: admit in order of arrival while KV memory holds, whatever the deadlines."""

    name: ClassVar[str] = "fcfs"
    disciplines: ClassVar[tuple[str, ...]] = ONE_LANE

    mode: Mode = Mode.AD  #: of its one lane
    draft_length: int | None = None  #: γ for SD; None = the server's

    def __post_init__(self) -> None:
        check_draft_length(self.draft_length)

    def decide(self, problem: Problem) -> Decision:
        """Return the longest prefix of the queue whose reservations fit; the head of the queue is never overtaken.

        Costs O(new candidates · log) and never looks at residents: memory held is a number of the problem. No
        completion times are predicted.
        """
        empty = _AD if self.mode is Mode.AD else sd_lane(problem, self.draft_length)
        before = problem.lane_in_force(empty.lane_id)
        space = room(problem, (empty.lane_id,))
        alone = before is not None and len(problem.lanes) == 1
        share = 1.0 if alone else space.memory_share  # whoever runs alone fills what there is
        lane = Lane(empty.lane_id, empty.mode, space.gpu_share, space.memory_share, (), empty.draft_length)
        if space.gpu_share > 0:
            lane = self._filled(problem, lane, share)
        unused = not lane.members and before is None
        return Decision(space.others if unused else (lane, *space.others))

    @staticmethod
    def _filled(problem: Problem, lane: Lane, memory_share: float) -> Lane:
        """Return the lane with its new members."""
        users = problem.candidates
        queue, reachable = users.request_id, np.isfinite(users.upload_s)  # without a channel: wait
        if len(queue) > 1:  # candidates come in order of arrival; sorting makes the answer independent of that
            first = np.lexsort((queue, -users.waited_s))
            queue, reachable = queue[first], reachable[first]
        queue = queue[reachable]
        whole = free_for(problem, (lane,))
        free = min(whole - problem.held_bytes, memory_share * whole)
        # Reservations grow with the prefix. It doubles while it fits, from one, since most epochs can admit a few at
        # most; then the interval that is left is halved.
        high, step = len(queue), 1
        while len(lane.members) < high:
            members = tuple(queue[: min(len(lane.members) + step, high)].tolist())
            longer = Lane(lane.lane_id, lane.mode, lane.gpu_share, lane.memory_share, members, lane.draft_length)
            if problem.new_bytes(longer) <= free:
                lane, step = longer, 2 * step
            else:
                high, step = len(members) - 1, max(1, step // 2)
        return lane
