"""One lane of continuous batching: requests join at step boundaries, prefill first, each leaves when it is done.

Between two changes of the batch the durations of all coming steps are known: they are one array (contexts grow by a
token a step, or by the drawn tokens of a round), and one event stands for all of them. A request that joins cuts the
array at the end of the step in progress.
"""

import heapq

import numpy as np

from balancesim.columns import GpuRow
from balancesim.core.decision import Lane
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.latency import Batch, StepCost, decode_steps_s, mixed_cost, rounds_s
from balancesim.core.memory import speculates
from balancesim.processes.chunks import Chunk, divided, work_of
from balancesim.processes.discipline import Host
from balancesim.processes.resident import LaneHooks, Resident, RoundTokens
from balancesim.processes.step_plan import steps_done, stop_at_boundary
from balancesim.units import FloatArray

_MOST_STEPS = 4096  #: longest array of coming steps


class ContinuousLane:
    """The batch of one lane."""

    def __init__(self, host: Host, lane: Lane, hooks: LaneHooks, engine: ContinuousLanes) -> None:
        self.lane_id, self.mode, self.draft_length = lane.lane_id, lane.mode, lane.draft_length
        self.pending: dict[int, Resident] = {}  #: at the server, waiting for a prefill; by request id
        self.running: dict[int, Resident] = {}
        self.step = 0  #: steps (AD) or rounds (SD) done
        self._host, self._hooks = host, hooks
        self._drafting = speculates(lane.mode, lane.draft_length)
        self._budget, self._prefill_first = engine.token_budget, engine.prefill_first
        self._round_tokens = RoundTokens()
        self._context = 0  #: Σ over running of the context of the next step
        self._ends: list[tuple[int, int, Resident]] = []
        self._busy = False
        self._stopping = False
        self._plan: FloatArray | None = None  #: GPU seconds to the end of each coming step; None = prefilling or idle
        self._parts: tuple[FloatArray, FloatArray] | None = None
        self._steps = 0
        self._start_s = 0.0

    def join(self, resident: Resident) -> None:
        """Take a request whose prompt is in; it starts at the next step boundary."""
        self.pending[resident.visit.request.request_id] = resident
        self._stopping |= resident.stop
        self._wake()

    def stop(self, resident: Resident) -> None:
        """Remove a request at the next step boundary."""
        resident.stop = True
        self._stopping = True
        self._wake()

    def remove(self, resident: Resident) -> None:
        """Remove a request now, at a step boundary, and settle what it has emitted."""
        request_id = resident.visit.request.request_id
        if self.pending.pop(request_id, None) is not None:
            resident.chunked_tokens = 0
        else:
            del self.running[request_id]
            self._context -= resident.visit.request.prompt_tokens + resident.tokens_at(self.step)
            if resident.emitted is not None:
                done = resident.steps_done + self.step - resident.joined_step
                self._round_tokens.add(np.diff(resident.emitted, prepend=1)[done:], -1)
            resident.gone = True
            resident.pause(self.step)

    def steps_now(self) -> int:
        """Return the steps done by now, those of the plan in progress included."""
        if self._plan is None:
            return self.step
        return self.step + steps_done(self._host.gpu, self.lane_id, self._plan[: self._steps])

    def _wake(self) -> None:
        if not self._busy:  # an idle lane starts with all who come at this instant
            self._busy = True
            self._host.env.timeout(0).callbacks.append(lambda _: self._next())
        elif self._plan is not None:
            self._steps = stop_at_boundary(self._host.gpu, self.lane_id, self._plan[: self._steps])

    def _next(self) -> None:
        """At a step boundary: remove who must stop, then prefill who waits, else decode."""
        if self._stopping:
            self._stopping = False
            for resident in [r for r in (*self.running.values(), *self.pending.values()) if r.stop]:
                self.remove(resident)
                self._hooks.done(resident)
            self._hooks.settled()
        self._start_s = self._host.env.now
        self._busy = bool(self.pending or self.running)
        chunks: list[Chunk] = []
        if self.pending and self._budget is not None:
            rows = 0 if self._prefill_first else len(self.running) * (self.draft_length + 1 if self._drafting else 1)
            chunks = divided(self.pending.values(), self._budget - rows, self._hooks.begin)
        if chunks:
            self._mixed(chunks)
        elif self.pending and self._budget is None:
            self._prefill()
        elif self.running:
            self._decode()

    def _prefill(self) -> None:
        batch = list(self.pending.values())
        for resident in batch:
            self._hooks.begin(resident)
        work = work_of([(resident, resident.context_tokens - resident.chunked_tokens) for resident in batch])
        nobody = Batch(0.0, 0.0)
        work_s = mixed_cost(self._host.spec, self.draft_length if self._drafting else 0, work, nobody).prefill_s
        self._plan = None
        self._host.gpu.run(self.lane_id, work_s, lambda: self._prefilled(batch, work_s))

    def _prefilled(self, batch: list[Resident], work_s: float) -> None:
        fresh = sum(resident.tokens_out == 0 for resident in batch)
        self._span(0, len(batch), fresh, (work_s, 0.0, 0.0, 0.0))
        self._begin_decoding(batch)
        self._hooks.settled()
        self._next()

    def _begin_decoding(self, batch: list[Resident]) -> None:
        for resident in batch:
            del self.pending[resident.visit.request.request_id]
            self.running[resident.visit.request.request_id] = resident
            first = resident.tokens_out == 0
            resident.tokens_out = max(1, resident.tokens_out)
            resident.joined_step, resident.prefilled, resident.gone = self.step, True, False
            self._context += resident.context_tokens
            if resident.emitted is not None:
                self._round_tokens.add(np.diff(resident.emitted, prepend=1)[resident.steps_done :])
            if first:
                self._hooks.first_token(resident)
            if resident.tokens_out >= resident.visit.request.output_tokens:
                self.remove(resident)
                self._hooks.done(resident)
            else:
                heapq.heappush(self._ends, (resident.end_step(), resident.order, resident))

    def _mixed(self, chunks: list[Chunk]) -> None:
        """Run one step with chunks of prompts beside the running requests."""
        running = Batch(0.0, 0.0) if self._prefill_first else Batch(float(len(self.running)), float(self._context))
        cost = mixed_cost(self._host.spec, self.draft_length if self._drafting else 0, work_of(chunks), running)
        self._plan = None
        self._host.gpu.run(self.lane_id, cost.total_s, lambda: self._mixed_done(chunks, cost))

    def _mixed_done(self, chunks: list[Chunk], cost: StepCost) -> None:
        size = 0 if self._prefill_first else len(self.running)
        tokens = (self._round_tokens.advance(1) if self._drafting else size) if size else 0
        self._context += tokens
        self.step += 1 if size else 0
        whole = []
        for resident, done in chunks:
            resident.chunked_tokens += done
            if resident.chunked_tokens >= resident.context_tokens:
                whole.append(resident)
        fresh = sum(resident.tokens_out == 0 for resident in whole)
        parts = (cost.prefill_s, cost.decode_s, cost.draft_s, cost.verify_s)
        self._span(1 if size else 0, size + len(chunks), tokens + fresh, parts)
        self._begin_decoding(whole)  # first tokens are out before memory is asked for
        self._leave()
        self._after_all()

    def _leave(self) -> None:
        """Take out who has its answer, then ask for memory for who has outgrown its own."""
        growing = []
        while self._ends and (self._ends[0][0] <= self.step or self._ends[0][2].gone):
            resident = heapq.heappop(self._ends)[2]
            if resident.gone:
                continue
            if resident.tokens_at(self.step) >= resident.visit.request.output_tokens:
                self.remove(resident)
                self._hooks.done(resident)
            else:
                growing.append(resident)
        for resident in growing:
            if not resident.gone and self._hooks.outgrown(resident):
                end = self.step + max(1, resident.end_step() - self.step)
                heapq.heappush(self._ends, (end, resident.order, resident))
        self._hooks.settled()

    def _decode(self) -> None:
        while self._ends[0][2].gone:
            heapq.heappop(self._ends)
        steps = min(self._ends[0][0] - self.step, _MOST_STEPS)
        size, spec = float(len(self.running)), self._host.spec
        if self._drafting:
            growth = np.cumsum(self._round_tokens.coming(steps))
            cost = rounds_s(spec, size, self._context + np.concatenate(([0.0], growth[:-1])), self.draft_length)
            self._parts = (np.cumsum(cost.draft_s), np.cumsum(cost.verify_s))
            plan = self._parts[0] + self._parts[1]
        else:
            contexts = np.arange(self._context, self._context + size * steps - 0.5, size)
            plan = np.add.accumulate(decode_steps_s(spec, size, contexts))
        self._plan, self._steps = plan, steps
        self._host.gpu.run(self.lane_id, float(plan[-1]), self._decoded)

    def _decoded(self) -> None:
        steps, plan, size = self._steps, self._plan, len(self.running)
        assert plan is not None
        self._plan = None
        tokens = self._round_tokens.advance(steps) if self._drafting else size * steps
        self._context += tokens
        self.step += steps
        if steps:
            last = steps - 1
            if self._parts is not None:
                parts = (0.0, 0.0, float(self._parts[0][last]), float(self._parts[1][last]))
            else:
                parts = (0.0, float(plan[last]), 0.0, 0.0)
            self._span(steps, size, tokens, parts)
        self._leave()
        if self._budget is None:
            self._next()
        else:
            self._after_all()

    def _after_all(self) -> None:
        """Begin the next step after the decisions of this instant, so that it takes who they admit."""
        self._host.env.timeout(0).callbacks.append(lambda _: self._next())

    def _span(self, steps: int, size: int, tokens: int, parts: tuple[float, float, float, float]) -> None:
        host = self._host
        switch_s, times = host.gpu.switching_s(self.lane_id), (self._start_s, host.env.now)
        host.span(GpuRow(host.server_id, self.lane_id, self.mode, *times, steps, size, tokens, *parts, switch_s))
