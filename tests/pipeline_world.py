"""One SBS with its MBS, or several, without radio: scripted decisions run through edge servers of the pipeline."""

from dataclasses import dataclass, field, replace

import simpy

from balancesim.acceptance import Expected
from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import predict
from balancesim.core.pipeline_instance import PipelineInstance
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.pipeline_nodes import Sbs
from balancesim.core.request import Mode, Request
from balancesim.core.server import ServerSpec
from balancesim.core.slicing import Slicing
from balancesim.processes.cell import Cell
from balancesim.processes.pipeline_nodes import Mbs, SbsSite
from balancesim.processes.server import EdgeServer
from balancesim.processes.setup import ServerSetup, Sinks
from balancesim.processes.visit import Visit
from balancesim.streams import Streams
from tests.edge import InstantLink


def spec_of(case: PipelineInstance) -> ServerSpec:
    """The MBS of an instance, with its SBS."""
    target, draft = case.target, case.draft
    sbs = Sbs(draft, case.fronthaul)
    return ServerSpec(
        target.gpu, target.llm, target.law, target.memory_bytes, draft.llm, draft.law, case.max_draft_length, sbs=sbs
    )


def batch_lanes(batches, draft_length: int, first_id: int = 0) -> tuple[Lane, ...]:
    """One lane a batch, in order."""
    mode, share = (Mode.SD if draft_length else Mode.AD), 1.0 / max(len(batches), 1)
    return tuple(
        Lane(first_id + m, mode, share, share, tuple(batch), draft_length=draft_length)
        for m, batch in enumerate(batches)
    )


@dataclass
class Scripted:
    """Answers one epoch after the other with these batches of request ids, then admits nobody."""

    plans: list[tuple[list[list[int]], int]]  #: batches and draft length
    problems: list = field(default_factory=list)
    name = "scripted"

    def decide(self, problem):
        self.problems.append(problem)
        running = tuple(replace(lane, members=(), gpu_share=0.01, memory_share=0.0) for lane in problem.lanes)
        if not self.plans:
            return Decision(running)
        batches, draft_length = self.plans.pop(0)
        free = max((lane.lane_id for lane in problem.lanes), default=-1) + 1
        new = batch_lanes(batches, draft_length, free)
        shares = 0.9 / max(len(new), 1)
        decision = Decision((*running, *(replace(lane, gpu_share=shares, memory_share=shares) for lane in new)))
        times = [float(prediction.finish_s.max(initial=0.0)) for prediction in predict(problem, decision)]
        lanes = zip(decision.lanes, times, strict=True)
        return Decision(tuple(replace(lane, predicted_finish_s=finish) for lane, finish in lanes))


def requests_of(case: PipelineInstance, **changes) -> list[Request]:
    """The instance's tasks as requests that arrive at 0."""
    tasks = case.tasks
    rows = zip(tasks.prompt_tokens.tolist(), tasks.output_tokens.tolist(), tasks.acceptance_rate.tolist(), strict=True)
    return [
        replace(Request(k, k, 0.0, prompt, output, acceptance_rate=rate), **changes)
        for k, (prompt, output, rate) in enumerate(rows)
    ]


@dataclass
class PipelineWorld:
    """Runs requests through one server of the pipeline for each policy, all with one MBS."""

    case: PipelineInstance
    policies: list
    early_exit: bool = True
    acceptance: object = field(default_factory=Expected)
    abort_late: bool = False
    links: list = field(default_factory=list)
    upload_on_admission: bool = False
    visits: list = field(default_factory=list)
    epochs: list = field(default_factory=list)
    spans: list = field(default_factory=list)

    @property
    def verified(self):
        """The spans of the MBS."""
        return [span for span in self.spans if span.server_id == len(self.policies)]

    def run(self, requests, until=None):
        """Return the finished visits by request id; request k goes to server ``user_id`` modulo their number."""
        env = simpy.Environment()
        spec = spec_of(self.case)
        mbs = Mbs.of(env, len(self.policies), self.case.fronthaul)
        sinks = Sinks(self.visits.append, self.epochs.append, self.spans.append)
        link = self.links[0] if self.links else InstantLink()
        self.servers = [
            EdgeServer(
                env,
                ServerSetup(
                    server_id=server_id,
                    spec=spec,
                    lane_model=PipelineLanes(self.early_exit),
                    slicing=Slicing(0.0),
                    acceptance=self.acceptance,
                    luck=Streams(5, 0).keyed("acceptance"),
                    policy=policy,
                    cells={0: Cell(0, link, link, 0.0, 32.0, False)},
                    epoch_s=None,
                    upload_on_admission=self.upload_on_admission,
                    abort_late=self.abort_late,
                    kv_growth_tokens=16,
                    max_candidates=1000,
                    site=SbsSite.of(env, spec.sbs, mbs),
                ),
                sinks,
            )
            for server_id, policy in enumerate(self.policies)
        ]

        def source():
            for request in requests:
                if request.arrival_s > env.now:
                    yield env.timeout(request.arrival_s - env.now)
                server_id = request.user_id % len(self.servers)
                self.servers[server_id].arrive(Visit(request, 0, server_id))
            yield env.timeout(0)

        env.process(source())
        env.run(until=until)
        for server in self.servers:
            server.close()
        return {visit.request.request_id: visit for visit in self.visits}
