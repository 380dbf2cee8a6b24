"""The one process of discipline ``fused``: requests join at step boundaries, prefill first, and step together.

One event stands for all steps until the next departure (or, where a rule chooses draft lengths step by step, for as
many as were walked through); a request that joins cuts them at the end of the step in progress.
"""

from balancesim.columns import GpuRow
from balancesim.core.fused import DraftRule, fused_prefill_s
from balancesim.core.request import Mode
from balancesim.processes.discipline import Host
from balancesim.processes.fused_plan import RuledResident, StepPlan, constant_plan, draft_length_of, ruled_plan
from balancesim.processes.resident import LaneHooks, Resident
from balancesim.processes.step_plan import steps_done, stop_at_boundary

PROCESS = 0  #: its number on the GPU and in the table of spans; it has the GPU for itself
_MOST_STEPS = 4096  #: longest plan
_FIRST_STEPS = 16  #: of a ruled plan, which costs time for every step: longer ones once it runs undisturbed


class FusedProcess:
    """The batch of a server, AD and SD requests together."""

    def __init__(self, host: Host, hooks: LaneHooks) -> None:
        self.pending: dict[int, Resident] = {}  #: at the server, waiting for a prefill; by request id
        self.running: dict[int, Resident] = {}
        self.step = 0  #: steps done
        self.rule: DraftRule | None = None  #: of the ruled residents
        self._host, self._hooks = host, hooks
        self._busy = False
        self._stopping = False
        self._plan: StepPlan | None = None  #: None = prefilling or idle
        self._steps = 0  #: of the plan that will be done
        self._walk = _FIRST_STEPS
        self._start_s = 0.0
        host.gpu.set_shares({PROCESS: 1.0})

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
        if self.pending.pop(request_id, None) is None:
            del self.running[request_id]
            resident.gone = True
            resident.pause(self.step)

    def steps_now(self) -> int:
        """Return the steps done by now, those of the plan in progress included."""
        if self._plan is None:
            return self.step
        return self.step + steps_done(self._host.gpu, PROCESS, self._plan.ends_s[: self._steps])

    def _wake(self) -> None:
        if not self._busy:  # an idle process starts with all who come at this instant
            self._busy = True
            self._host.env.timeout(0).callbacks.append(lambda _: self._next())
        elif self._plan is not None:
            steps = stop_at_boundary(self._host.gpu, PROCESS, self._plan.ends_s[: self._steps])
            if steps < self._steps:
                self._steps, self._walk = steps, max(_FIRST_STEPS, steps)

    def _next(self) -> None:
        """At a step boundary: remove who must stop, then prefill who waits, else step."""
        if self._stopping:
            self._stopping = False
            for resident in [r for r in (*self.running.values(), *self.pending.values()) if r.stop]:
                self.remove(resident)
                self._hooks.done(resident)
            self._hooks.settled()
        self._start_s = self._host.env.now
        self._busy = bool(self.pending or self.running)
        if self.pending:
            self._prefill()
        elif self.running:
            self._decode()

    def _prefill(self) -> None:
        batch, now_s = list(self.pending.values()), self._host.env.now
        everyone, drafting = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
        for resident in batch:
            tokens = resident.context_tokens
            for sums in (everyone, drafting) if draft_length_of(resident) else (everyone,):
                for place, term in enumerate((1, tokens, tokens * tokens)):
                    sums[place] += term
            if resident.visit.prefill_start_s is None:
                resident.visit.prefill_start_s = now_s
        work_s = fused_prefill_s(self._host.spec, everyone, drafting)
        self._host.gpu.run(PROCESS, work_s, lambda: self._prefilled(batch, work_s, drafts=drafting[0] > 0))

    def _prefilled(self, batch: list[Resident], work_s: float, *, drafts: bool) -> None:
        fresh = sum(resident.tokens_out == 0 for resident in batch)
        self._span((0, len(batch), fresh), (work_s, 0.0, 0.0, 0.0), drafts=drafts)
        for resident in batch:
            del self.pending[resident.visit.request.request_id]
            self.running[resident.visit.request.request_id] = resident
            first = resident.tokens_out == 0
            resident.tokens_out = max(1, resident.tokens_out)
            resident.joined_step, resident.prefilled, resident.gone = self.step, True, False
            if first:
                self._hooks.first_token(resident)
            if resident.tokens_out >= resident.visit.request.output_tokens:
                self.remove(resident)
                self._hooks.done(resident)
        self._hooks.settled()
        self._next()

    def _decode(self) -> None:
        members = list(self.running.values())
        if self.rule is not None and any(isinstance(resident, RuledResident) for resident in members):
            self._plan = ruled_plan(self._host.spec, self.rule, members, self.step, self._walk)
            self._walk = min(2 * self._walk, _MOST_STEPS)
        else:
            steps = min(max(1, min(r.end_step() for r in members) - self.step), _MOST_STEPS)
            self._plan = constant_plan(self._host.spec, members, self.step, steps)
        self._steps = len(self._plan.ends_s)
        self._host.gpu.run(PROCESS, float(self._plan.ends_s[-1]), self._decoded)

    def _decoded(self) -> None:
        steps, plan, size = self._steps, self._plan, len(self.running)
        assert plan is not None
        self._plan = None
        self.step += steps
        if steps:
            decode_s, draft_s, verify_s = (float(x[steps - 1]) for x in (plan.decode_s, plan.draft_s, plan.verify_s))
            counts = (steps, size, int(plan.tokens[steps - 1]))
            self._span(counts, (0.0, decode_s, draft_s, verify_s), drafts=draft_s > 0)
        reached = [r for r in self.running.values() if r.tokens_at(self.step) >= r.target_tokens]
        growing = []
        for resident in sorted(reached, key=lambda r: r.order):
            if resident.tokens_at(self.step) >= resident.visit.request.output_tokens:
                self.remove(resident)
                self._hooks.done(resident)
            else:
                growing.append(resident)
        for resident in growing:
            if not resident.gone:  # preempted by another of these
                self._hooks.outgrown(resident)
        self._hooks.settled()
        self._next()

    def _span(self, counts: tuple[int, int, int], parts: tuple[float, float, float, float], *, drafts: bool) -> None:
        host = self._host
        switch_s, times = host.gpu.switching_s(PROCESS), (self._start_s, host.env.now)
        mode = Mode.SD if drafts else Mode.AD
        host.span(GpuRow(host.server_id, PROCESS, mode, *times, *counts, *parts, switch_s))
