"""An edge server: requests wait for a scheduling epoch, a policy decides, lanes share the GPU, answers leave.

Read it from `EdgeServer.arrive` downwards; the order is that of model.md §1 and §10.
"""

import math
from time import perf_counter

import simpy

from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import check_structure
from balancesim.core.memory import any_speculates, request_kv_bytes
from balancesim.core.problem import Problem
from balancesim.core.request import Mode, Outcome, RejectReason
from balancesim.processes.cell import Answers, Uploads
from balancesim.processes.discipline import Host
from balancesim.processes.disciplines import DISCIPLINES
from balancesim.processes.epoch_log import EpochLog
from balancesim.processes.gpu import Gpu
from balancesim.processes.kv_memory import KvMemory
from balancesim.processes.setup import ServerSetup, Sinks
from balancesim.processes.visit import Visit
from balancesim.processes.waiting_room import WaitingRoom

#: A policy that has left an idle server idle for so many epochs, with nothing to come, will not change its mind.
_STUCK_EPOCHS = 1000


class EdgeServer:
    """One GPU server with its waiting room and its own instance of the policy."""

    def __init__(self, env: simpy.Environment, setup: ServerSetup, sinks: Sinks) -> None:
        self._env, self._setup, self._sinks = env, setup, sinks
        self._uploads = Uploads(env, setup.cells)
        self._answers = Answers(env, setup.cells, self._answer_received)
        beside = None if setup.site is None else setup.site.mbs.memories
        self._memory = KvMemory(setup.spec.free_bytes(uses_sd=False), beside)
        self._gpu = Gpu(env, setup.slicing)
        self._log = EpochLog(setup.server_id, sinks.epoch)
        self._waiting = WaitingRoom(setup, self._uploads, self._answers)
        self._discipline = DISCIPLINES[setup.lane_model.name](self._host())
        self._sliced = not hasattr(setup.lane_model, "predictions")  # coupled lanes do not take turns on one GPU
        self._delivering: dict[int, Visit] = {}  #: answers on their way, and prompts coming in before admission
        self._draft_loaded = False
        self._epoch = -1
        self._due_s = math.inf  #: time of the epoch that is scheduled
        self._arrivals_over = False
        self._idle_epochs = 0  #: decisions in a row that admitted nobody
        self.server_id, self.cell_ids = setup.server_id, tuple(setup.cells)
        self.decision_wall_s = 0.0
        self.decision_wall_max_s = 0.0
        self.decisions = 0

    def _host(self) -> Host:
        setup = self._setup
        return Host(
            env=self._env,
            server_id=setup.server_id,
            spec=setup.spec,
            gpu=self._gpu,
            memory=self._memory,
            acceptance=setup.acceptance,
            luck=setup.luck,
            uploads=self._uploads,
            downlink_s=self._answers.downlink_s,
            first_token=self._answers.first_token,
            answered=self._answered,
            expired=self._upload_expired,
            departed=self._request_epoch,
            span=self._sinks.gpu,
            abort_late=setup.abort_late,
            kv_growth_tokens=setup.kv_growth_tokens,
            lane_model=setup.lane_model,
            site=setup.site,
        )

    def arrive(self, visit: Visit) -> None:
        """A request is made: refuse what can never fit, else let it wait (after its upload, if that comes first)."""
        reason = self._never_fits(visit)
        if reason is not None:
            self._reject(visit, reason)
        elif self._setup.upload_on_admission:
            self._wait(visit)
        else:
            self._delivering[visit.request.request_id] = visit
            if math.isfinite(visit.deadline_at_s):
                left_s = visit.deadline_at_s - self._env.now
                self._env.timeout(left_s).callbacks.append(lambda _: self._prompt_too_late(visit))
            self._uploads.start(visit, self._prompt_in)

    def no_more_arrivals(self) -> None:
        """The source has made its last request."""
        self._arrivals_over = True

    def _never_fits(self, visit: Visit) -> RejectReason | None:
        request, spec = visit.request, self._setup.spec
        tokens = request.prompt_tokens + request.predicted_output_tokens
        if request.prompt_tokens + request.output_tokens > spec.target.context_tokens:
            return RejectReason.CONTEXT
        if request_kv_bytes(spec, Mode.AD, 0, tokens) > spec.free_bytes(uses_sd=False):
            return RejectReason.MEMORY
        return None

    def _prompt_in(self, visit: Visit) -> None:
        del self._delivering[visit.request.request_id]
        self._wait(visit)

    def _prompt_too_late(self, visit: Visit) -> None:
        if self._delivering.get(visit.request.request_id) is visit and visit.upload_end_s is None:
            del self._delivering[visit.request.request_id]
            self._uploads.cancel(visit)
            self._finish(visit, Outcome.EXPIRED)

    def _wait(self, visit: Visit) -> None:
        self._waiting.add(visit)
        self._request_epoch()

    def _request_epoch(self, *, after_one: bool = False) -> None:
        """Schedule the next epoch, unless nobody waits, one is scheduled already, or a decision must run out first."""
        if not len(self._waiting) or not self._discipline.ready():
            return
        now_s, period_s = self._env.now, self._setup.epoch_s
        if period_s is None:
            due_s = now_s
        else:  # k·period, not now + period: sums drift
            periods = now_s / period_s
            due_s = period_s * (math.floor(periods + 1e-9) + 1 if after_one else math.ceil(periods - 1e-9))
        if due_s < self._due_s:
            self._due_s = due_s
            self._env.timeout(max(0.0, due_s - now_s)).callbacks.append(lambda _: self._at_epoch(due_s))

    def _at_epoch(self, due_s: float) -> None:
        if due_s != self._due_s:
            return
        self._due_s = math.inf
        for visit in self._waiting.expired(self._env.now):
            self._finish(visit, Outcome.EXPIRED)
        if len(self._waiting) and self._discipline.ready():
            self._decide()
        if self._setup.epoch_s is not None and not self._stuck():
            self._request_epoch(after_one=True)

    def _stuck(self) -> bool:
        """Return True when nothing can happen any more: without this, epochs without end would keep the run alive."""
        return self._arrivals_over and self._idle_epochs >= _STUCK_EPOCHS and not self._waiting.deadlines_ahead

    def _decide(self) -> None:
        self._log.peak(self._epoch, self._memory.take_peak())
        self._epoch += 1
        problem = self._problem()
        start = perf_counter()
        decision = self._setup.policy.decide(problem)
        wall_s = perf_counter() - start
        self.decision_wall_s += wall_s
        self.decision_wall_max_s = max(self.decision_wall_max_s, wall_s)
        self.decisions += 1
        check_structure(problem, decision)
        self._apply(problem, decision)

    def _problem(self) -> Problem:
        discipline, setup = self._discipline, self._setup
        lanes, inside = discipline.resident_lanes(), discipline.count()
        return Problem(
            now_s=self._env.now,
            epoch=self._epoch,
            server=setup.spec,
            lane_model=setup.lane_model,
            candidates=self._waiting.candidates(self._env.now, setup.room(inside)),
            lanes=tuple(lanes.values()),
            make_residents=discipline.residents,
            held_bytes=self._memory.held_bytes + self._memory.held_elsewhere_bytes + setup.kept_free_bytes(inside),
            sbs_held_bytes=0.0 if setup.site is None else setup.site.memory.held_bytes,
            uses_sd=any_speculates(lanes.values()),
            draft_loaded=self._draft_loaded,
        )

    def _apply(self, problem: Problem, decision: Decision) -> None:
        """Carry a decision out: reject, set shares and memory, admit lane by lane."""
        residents = self._discipline.count()
        for request_id in decision.rejected:
            self._reject(self._waiting.take(request_id), RejectReason.POLICY)
        load_s = self._set_draft(problem, decision)
        if decision.lanes:
            lanes = sorted(decision.lanes, key=lambda lane: lane.lane_id)
            if self._sliced:
                self._gpu.set_shares({lane.lane_id: lane.gpu_share for lane in lanes})
            for lane in lanes:
                visits = [self._admitted(member, lane) for member in lane.members]
                for visit in visits:
                    visit.bandwidth_weight = decision.bandwidth_weights.get(visit.request.request_id)
                self._discipline.admit(lane, visits, load_s)
        quiet = not decision.admitted and not self._discipline.count()
        self._idle_epochs = self._idle_epochs + 1 if quiet else 0
        kv = (self._memory.held_bytes, self._memory.capacity_bytes)
        self._log.decided(problem, decision, residents, kv)

    def _set_draft(self, problem: Problem, decision: Decision) -> float:
        """Load or drop the draft's weights as the decision needs; return the time that loading takes."""
        drafts = problem.uses_sd or any_speculates(decision.lanes)
        self._memory.capacity_bytes = self._setup.spec.free_bytes(uses_sd=drafts) - self._memory.held_elsewhere_bytes
        load_s = self._setup.spec.draft_load_s if drafts and not self._draft_loaded else 0.0
        self._draft_loaded = drafts
        return load_s

    def _admitted(self, request_id: int, lane: Lane) -> Visit:
        visit = self._waiting.take(request_id)
        visit.admitted_s = self._env.now
        visit.mode, visit.lane_id, visit.draft_length = lane.mode, lane.lane_id, lane.draft_length
        visit.epoch = self._epoch
        return visit

    def _reject(self, visit: Visit, reason: RejectReason) -> None:
        visit.reject_reason = reason
        self._finish(visit, Outcome.REJECTED)

    def _upload_expired(self, visit: Visit) -> None:
        """The prompt of an admitted request was not in by its deadline."""
        self._log.left(visit.epoch, self._env.now, answered=False)
        self._finish(visit, Outcome.EXPIRED)

    def _answered(self, visit: Visit) -> None:
        """The server is done with a request: its answer goes down, unless it was stopped before its first token."""
        self._log.left(visit.epoch, self._env.now, answered=True)
        if visit.tokens_out == 0:
            visit.server_last_token_s = None
            self._finish(visit, Outcome.LATE)
            return
        self._delivering[visit.request.request_id] = visit
        self._answers.last_token(visit)

    def _answer_received(self, visit: Visit) -> None:
        del self._delivering[visit.request.request_id]
        late = visit.truncated or self._env.now > visit.deadline_at_s
        self._finish(visit, Outcome.LATE if late else Outcome.COMPLETED)

    def _finish(self, visit: Visit, outcome: Outcome) -> None:
        visit.outcome = outcome
        self._sinks.finished(visit)

    def close(self) -> None:
        """The simulation is over: who is still here has expired in waiting or is unfinished."""
        self._log.peak(self._epoch, self._memory.take_peak())
        now_s = self._env.now
        for visit in self._waiting.rest():
            self._finish(visit, Outcome.EXPIRED if visit.deadline_at_s < now_s else Outcome.UNFINISHED)
        for visit in [*self._discipline.unfinished(), *self._delivering.values()]:
            self._finish(visit, Outcome.UNFINISHED)
        self._log.close()
