"""One run, top to bottom: a scenario under one policy, one replication. READ THIS FIRST.

users and cells  →  radio links  →  edge servers with the policy  →  requests arrive  →  the clock runs  →  tables
"""

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import simpy

from balancesim import topology as topologies
from balancesim.manifest import RunInfo, RunSummary
from balancesim.processes.server import EdgeServer
from balancesim.processes.setup import Sinks
from balancesim.processes.source import Source
from balancesim.processes.visit import Visit
from balancesim.processes.world import World, build_cells, gpu_names, server_setups
from balancesim.recorder import Recorder, RowSink
from balancesim.scenario.settings import Scenario
from balancesim.streams import Streams
from balancesim.workload import Tally

#: Objects made and not freed before the garbage collector looks: cycles that policies make are found all the same.
_SELDOM = 100_000


@dataclass(frozen=True)
class RunResult:
    """What a finished run came to."""

    summary: RunSummary
    outcomes: dict[str, int]  #: requests by outcome; they sum to ``summary.offered``
    cut_to_context: int  #: requests that were cut to the model's context


def run_world(
    scenario: Scenario,
    policy_label: str,
    replication: int,
    sink: RowSink,
    progress: Callable[[float, int], None] | None = None,
) -> RunResult:
    """Simulate one replication under one policy; rows go to ``sink``, ``progress`` gets time and arrivals."""
    start = perf_counter()
    streams = Streams(scenario.run.seed, replication)
    topology = topologies.build(scenario.network, streams)
    env = simpy.Environment()
    outcomes: dict[str, int] = {}

    def finished(visit: Visit) -> None:
        row = visit.row()
        outcomes[row.outcome] = outcomes.get(row.outcome, 0) + 1
        sink.request(row)

    world = World(env, scenario, topology, streams)
    cells = build_cells(world)
    setups = server_setups(world, policy_label, cells)
    servers = [EdgeServer(env, setup, Sinks(finished, sink.epoch, sink.gpu)) for setup in setups]
    source, tally = Source(env, topology, servers), Tally()
    requests = scenario.workload.requests(streams, topology.user_ids, tally)
    if scenario.policy(policy_label).sees_truth:
        requests = (request.foreseen() for request in requests)
    env.process(source.run(requests, progress))
    end_s = scenario.run.horizon_s + scenario.run.drain_s
    with _collector_at_rest():
        env.run(until=None if math.isinf(end_s) else end_s)
    for server in servers:
        server.close()
    if sum(outcomes.values()) != source.generated:
        raise RuntimeError(f"conservation: {source.generated} requests were made, outcomes are {outcomes}")
    gpus = gpu_names(setups)
    summary = RunSummary(
        wall_s=perf_counter() - start,
        events=next(env._eid),  # SimPy numbers its events; there is no public counter
        offered=source.generated,
        end_s=env.now,
        servers=len(gpus),
        decisions=sum(server.decisions for server in servers),
        decision_wall_s=sum(server.decision_wall_s for server in servers),
        decision_wall_max_s=max(server.decision_wall_max_s for server in servers),
        gpus=gpus,
    )
    return RunResult(summary, outcomes, tally.cut)


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Let the garbage collector look seldom, and not at what there was before: a run makes no reference cycles of its
    own, so requests and rows are freed by their reference counts, and each look costs time for all that live."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def simulate(
    scenario: Scenario,
    policy_label: str,
    replication: int,
    *,
    out_dir: Path,
    progress: Callable[[float, int], None] | None = None,
) -> RunResult:
    """Simulate one replication under one policy and write its tables below ``out_dir/<scenario name>``."""
    entry = scenario.policy(policy_label)
    info = RunInfo(policy_label, replication, scenario.run.seed, scenario.document, entry.options, entry.source_sha256)
    with Recorder(out_dir, scenario.name, info) as recorder:
        result = run_world(scenario, policy_label, replication, recorder, progress)
        recorder.close(result.summary)
    return result
