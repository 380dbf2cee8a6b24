"""Discipline ``continuous``: every epoch may admit and change shares; requests come and go while lanes run.

Mode and reserved memory of a request are fixed when it is admitted. When its answer outgrows the reservation, the
reservation grows by ``kv_growth_tokens`` (paged: by a block); when no memory is left, the youngest request of the lane
is preempted: its cache is dropped, and built again from prompt and answer so far once memory is free. The pass that
builds it again emits no token [A].
"""

import math
from collections import Counter

import numpy as np
import simpy

from balancesim.core.decision import Lane
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.memory import kv_bytes_per_token, request_kv_bytes, speculates
from balancesim.core.problem import Residents
from balancesim.processes.continuous_lane import ContinuousLane
from balancesim.processes.discipline import Host
from balancesim.processes.prefix_cache import PrefixCache, blocks_in
from balancesim.processes.resident import Freed, LaneHooks, LaneProcess, Resident
from balancesim.processes.resident_table import ResidentView, resident_table
from balancesim.processes.visit import Visit


class ContinuousDiscipline:
    """Lanes that live as long as somebody is in them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lanes: dict[int, LaneProcess] = {}
        self._decided: dict[int, Lane] = {}  #: the latest decision on each lane
        self._members: Counter[int] = Counter()  #: requests inside, by lane
        self._inside: dict[int, Resident] = {}  #: by request id, in order of admission
        self._uploading: set[int] = set()
        self._preempted: dict[int, Resident] = {}
        self._order = 0
        self._left = False  #: somebody has left since memory was last given to others
        model = host.lane_model
        self._engine = model if isinstance(model, ContinuousLanes) else ContinuousLanes()  # fused: without options
        self._prefixes = PrefixCache(blocks_in(self._engine.prefix_cache_gib, host.spec))
        self._growth = self._engine.block_tokens if self._engine.paged else host.kv_growth_tokens

    def ready(self) -> bool:
        """Return whether a decision may be taken: there is room for a sequence, and (paged) nobody was preempted."""
        most = self._engine.max_sequences
        return (most is None or len(self._inside) < most) and not (self._engine.paged and self._preempted)

    def count(self) -> int:
        """Return how many requests are inside."""
        return len(self._inside)

    def unfinished(self) -> list[Visit]:
        """Return the visits still inside."""
        for resident in self._inside.values():
            lane = self._lanes[self._lane_id(resident)]
            if resident.prefilled:
                resident.visit.tokens_out = resident.tokens_at(lane.steps_now())
        return [resident.visit for resident in self._inside.values()]

    def resident_lanes(self) -> dict[int, Lane]:
        """Return the lanes that have somebody inside."""
        return {lane_id: lane for lane_id, lane in self._decided.items() if self._members[lane_id]}

    def residents(self) -> Residents:
        """Return who is inside, as a policy may see it; who is preempted waits for memory and is left out."""
        view = ResidentView(self._host, self._lanes, self._uploading)
        return resident_table(view, [r for k, r in self._inside.items() if k not in self._preempted])

    def admit(self, lane: Lane, visits: list[Visit], draft_load_s: float = 0.0) -> None:
        """Reserve each member's memory; it joins the lane when its prompt (and the draft model) is in."""
        host = self._host
        self._decided[lane.lane_id] = lane
        if not self._members[lane.lane_id]:  # an empty lane may change its mode
            self._lanes[lane.lane_id] = self._process(lane)
        ready_s = host.env.now + (draft_load_s if speculates(lane.mode, lane.draft_length) else 0.0)
        for visit in visits:
            request = visit.request
            tokens = self._engine.reserved_tokens(request.prompt_tokens, request.predicted_output_tokens)
            size = float(request_kv_bytes(host.spec, lane.mode, lane.draft_length, tokens))
            host.memory.reserve(request.request_id, size)
            visit.reserved_bytes = size
            resident = self._resident(lane, visit)
            resident.reserved_tokens = tokens - request.prompt_tokens
            self._order += 1
            self._inside[request.request_id] = resident
            self._members[lane.lane_id] += 1
            self._bring_in(resident, ready_s)

    def _begin(self, resident: Resident) -> None:
        """A prefill begins: what the server has seen of the prompt need not be computed."""
        visit = resident.visit
        if visit.prefill_start_s is None:
            visit.prefill_start_s = self._host.env.now
            visit.cached_tokens = resident.chunked_tokens = self._prefixes.cached_tokens(visit.request)

    def _first_token(self, resident: Resident) -> None:
        self._prefixes.keep(resident.visit.request)
        self._host.first_token(resident.visit)

    def _hooks(self) -> LaneHooks:
        return LaneHooks(self._begin, self._first_token, self._done, self._outgrown, self._settled)

    def _process(self, lane: Lane) -> LaneProcess:
        """Return the process of a lane that nobody is in yet."""
        return ContinuousLane(self._host, lane, self._hooks(), self._engine)

    def _resident(self, lane: Lane, visit: Visit) -> Resident:
        """Return a new member with the luck that it will have."""
        emitted = None
        if speculates(lane.mode, lane.draft_length):
            rounds = self._host.acceptance.rounds(visit.request, lane.draft_length, self._host.luck)
            emitted = 1 + np.cumsum(rounds)
        return Resident(visit, self._order, visit.request.predicted_output_tokens, emitted)

    def _bring_in(self, resident: Resident, ready_s: float) -> None:
        """Start the upload where it is still to be made, then join the lane."""
        host, visit = self._host, resident.visit
        request_id = visit.request.request_id
        if math.isfinite(visit.deadline_at_s) and (host.abort_late or visit.upload_end_s is None):
            left_s = max(0.0, visit.deadline_at_s - host.env.now)
            host.env.timeout(left_s).callbacks.append(lambda _: self._deadline(resident))
        if visit.upload_end_s is None:
            self._uploading.add(request_id)

            def arrived(_: Visit) -> None:
                self._uploading.discard(request_id)
                self._join_at(resident, ready_s)

            host.uploads.start(visit, arrived)
        else:
            self._join_at(resident, ready_s)

    def _join_at(self, resident: Resident, ready_s: float) -> None:
        wait_s = ready_s - self._host.env.now

        def join(_: simpy.Event | None = None) -> None:
            if resident.visit.request.request_id in self._inside:
                self._lanes[self._lane_id(resident)].join(resident)

        if wait_s > 0:
            self._host.env.timeout(wait_s).callbacks.append(join)
        else:
            join()

    def _deadline(self, resident: Resident) -> None:
        """The deadline passes: an upload is given up; with ``abort_late`` a request in service is stopped."""
        request_id = resident.visit.request.request_id
        if self._inside.get(request_id) is not resident:
            return
        if request_id in self._uploading:
            self._uploading.discard(request_id)
            self._host.uploads.cancel(resident.visit)
            self._leave(resident)
            self._host.expired(resident.visit)
            self._freed()
        elif self._host.abort_late and request_id in self._preempted:
            self._done(resident)
            self._settled()
        elif self._host.abort_late:
            self._lanes[self._lane_id(resident)].stop(resident)

    def _done(self, resident: Resident) -> None:
        """A request leaves its lane with its answer, or with what there is of it at its deadline."""
        visit = resident.visit
        visit.tokens_out = resident.tokens_out
        visit.draft_rounds = resident.steps_done
        visit.truncated = visit.tokens_out < visit.request.output_tokens
        visit.server_last_token_s = self._host.env.now
        self._leave(resident)
        self._host.answered(visit)
        self._left = True

    def _settled(self) -> None:
        """A lane is through with its boundary: what has become free goes to others only now, after those who run."""
        if self._left:
            self._left = False
            self._freed()

    def _leave(self, resident: Resident) -> None:
        request_id = resident.visit.request.request_id
        del self._inside[request_id]
        self._members[self._lane_id(resident)] -= 1
        if self._preempted.pop(request_id, None) is None:
            self._host.memory.release(request_id)

    def _freed(self) -> None:
        """Memory was released: preempted requests come back first, in order of admission; then an epoch may be due."""
        memory = self._host.memory
        for request_id, resident in sorted(self._preempted.items(), key=lambda item: item[1].order):
            size = self._return_bytes(resident)
            if not memory.fits(size):
                break
            del self._preempted[request_id]
            memory.reserve(request_id, size)
            if self._engine.paged:  # as engines do: who came back last is preempted first
                resident.order = self._order
                self._order += 1
            if self._engine.prefix_caching:
                lane, since = self._decided[self._lane_id(resident)], memory.taken_bytes - size
                token_bytes = kv_bytes_per_token(self._host.spec, lane.mode, lane.draft_length)
                kept = resident.freed.cached_tokens(since, token_bytes, self._engine.block_tokens)
                resident.chunked_tokens = min(kept, resident.context_tokens - 1)
            self._lanes[self._lane_id(resident)].join(resident)
        self._host.departed()

    def _return_bytes(self, resident: Resident) -> float:
        lane = self._decided[self._lane_id(resident)]
        prompt = resident.visit.request.prompt_tokens
        if self._engine.paged:
            blocks = self._engine.reserved_tokens(prompt + resident.tokens_out, 0)
            resident.reserved_tokens = blocks - prompt
        else:
            resident.reserved_tokens = max(resident.reserved_tokens, resident.tokens_out + self._growth)
        tokens = prompt + resident.reserved_tokens
        return float(request_kv_bytes(self._host.spec, lane.mode, lane.draft_length, tokens))

    def _outgrown(self, resident: Resident) -> bool:
        """Grow a reservation; preempt the youngest of the lane until it fits. False = it was preempted itself."""
        lane_id = self._lane_id(resident)
        share, lane, memory = self._decided[lane_id], self._lanes[lane_id], self._host.memory
        size = self._growth * kv_bytes_per_token(self._host.spec, share.mode, share.draft_length)
        while not memory.fits(size):
            inside = [*lane.running.values(), *(lane.pending.values() if self._engine.paged else ())]
            youngest = max(inside, key=lambda other: other.order)
            self._preempt(lane, youngest)
            if youngest is resident:
                return False
        memory.reserve(resident.visit.request.request_id, size)
        resident.reserved_tokens += self._growth
        return True

    def _preempt(self, lane: LaneProcess, resident: Resident) -> None:
        """Drop a request's cache; give the request up (cut short) where it can never fit again."""
        lane.remove(resident)
        resident.visit.preemptions += 1
        memory = self._host.memory
        resident.freed = Freed(
            memory.taken_bytes, memory.free_bytes, memory.size_bytes(resident.visit.request.request_id)
        )
        memory.release(resident.visit.request.request_id)
        self._preempted[resident.visit.request.request_id] = resident
        if self._return_bytes(resident) > self._host.memory.capacity_bytes:
            self._done(resident)

    def _lane_id(self, resident: Resident) -> int:
        lane_id = resident.visit.lane_id
        assert lane_id is not None
        return lane_id
