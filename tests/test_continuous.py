import math
import random

import pytest
import simpy

from balancesim.acceptance import Iid
from balancesim.catalog import gpu as gpu_named
from balancesim.catalog import llm
from balancesim.core.decision import Lane
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.request import Mode, Request
from balancesim.core.server import ServerSpec
from balancesim.core.slicing import Slicing
from balancesim.latency_laws import Affine, Flops, Roofline
from balancesim.processes.continuous import ContinuousDiscipline
from balancesim.processes.discipline import Host
from balancesim.processes.gpu import Gpu
from balancesim.processes.kv_memory import KvMemory
from balancesim.processes.visit import Visit
from balancesim.streams import Streams
from tests.step_twin import step_by_step

LAWS = {
    "roofline": Roofline(bandwidth_efficiency=0.8, compute_efficiency=0.6, launch_s=1e-4),
    "affine": Affine(s_per_flop=1e-14, fixed_s=3e-3),
    "flops": Flops(prefill_s_per_flop=1e-14, decode_s_per_flop=2e-13, verify_s_per_flop=6e-14),
}


def make_spec(law="roofline"):
    return ServerSpec(
        gpu_named("RTX 4090"),
        llm("Llama-2-7B"),
        LAWS[law],
        usable_memory_bytes=24e9,
        draft=llm("TinyLlama-1.1B"),
        draft_law=LAWS[law],
        draft_length=4,
    )


class World:
    """One server without radio: requests are admitted at given times."""

    def __init__(self, spec, slicing, *, abort_late=False, capacity=math.inf, growth=64, engine=None):
        self.env = simpy.Environment()
        self.spec, self.gpu = spec, Gpu(self.env, slicing)
        self.memory = KvMemory(capacity)
        self.done, self.spans = [], []
        self.luck = Streams(3, 0).keyed("acceptance")
        self.discipline = ContinuousDiscipline(
            Host(
                env=self.env,
                server_id=0,
                spec=spec,
                gpu=self.gpu,
                memory=self.memory,
                acceptance=Iid(),
                luck=self.luck,
                uploads=None,
                downlink_s=lambda _: 0.0,
                first_token=self._first,
                answered=self.done.append,
                expired=self.done.append,
                departed=lambda: None,
                span=self.spans.append,
                abort_late=abort_late,
                kv_growth_tokens=growth,
                lane_model=engine or ContinuousLanes(),
            )
        )

    def _first(self, visit):
        visit.server_first_token_s = self.env.now

    def admit(self, time, lane, request):
        def now(_):
            visit = Visit(request, 0, 0)
            visit.upload_end_s = visit.admitted_s = self.env.now
            visit.mode, visit.lane_id, visit.draft_length = lane.mode, lane.lane_id, lane.draft_length
            self.discipline.admit(lane, [visit])

        self.env.timeout(time).callbacks.append(now)

    def shares(self, time, shares):
        self.env.timeout(time).callbacks.append(lambda _: self.gpu.set_shares(shares))


AD = Lane(0, Mode.AD, 0.5, 0.5)
SD = Lane(1, Mode.SD, 0.5, 0.5, draft_length=4)


def random_requests(rng, count):
    return [
        Request(
            k,
            k,
            0.0,
            rng.choice([1, rng.randrange(1, 900)]),
            rng.choice([1, 2, rng.randrange(1, 300)]),
            acceptance_rate=rng.choice([0.0, 0.5, 0.8, 0.95, 1.0]),
        )
        for k in range(count)
    ]


ENGINES = {
    "whole prompts": ContinuousLanes(),
    "small chunks": ContinuousLanes(token_budget=97),
    "chunks": ContinuousLanes(token_budget=1000),
    "chunks alone": ContinuousLanes(token_budget=300, prefill_first=True),
    "less than the batch": ContinuousLanes(token_budget=7),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", range(8))
def test_jumping_equals_walking_step_by_step(seed, law, engine):
    """Every first and last token of random two-lane worlds falls where the step-by-step twin puts it, to 1e-9."""
    rng = random.Random(f"{seed}{law}")
    engine = ENGINES[engine]
    spec = make_spec(law)
    slicing = rng.choice([Slicing(0.0), Slicing(0.05), Slicing(0.03, 0.001), Slicing(0.1, 0.002, False)])
    world = World(spec, slicing, engine=engine)
    requests = random_requests(rng, 24)
    times = [rng.choice([0.0, rng.uniform(0, 6)]) for _ in requests]
    lanes = [rng.choice([AD, SD]) for _ in requests]
    changes = [(0.0, {0: 0.5, 1: 0.5})]
    changes += [(rng.uniform(0, 8), {0: z, 1: 1 - z}) for z in (rng.uniform(0.1, 0.9) for _ in range(3))]
    for time, shares in changes:
        world.shares(time, shares)
    luck = world.luck
    joins = []
    for time, lane, request in zip(times, lanes, requests, strict=True):
        world.admit(time, lane, request)
        joins.append((time, lane.lane_id, request, Iid().rounds(request, 4, luck) if lane is SD else []))
    world.env.run()
    first, last = step_by_step(spec, slicing, {0: (Mode.AD, 0), 1: (Mode.SD, 4)}, joins, changes, engine)
    assert len(world.done) == len(requests)
    for visit in world.done:
        key = visit.request.request_id
        assert visit.server_first_token_s == pytest.approx(first[key], rel=1e-9)
        assert visit.server_last_token_s == pytest.approx(last[key], rel=1e-9)
        assert visit.tokens_out == visit.request.output_tokens
    assert world.memory.held_bytes == 0.0
    tokens = sum(span.tokens for span in world.spans)
    assert tokens == sum(request.output_tokens for request in requests)
    work = sum(s.prefill_s + s.decode_s + s.draft_s + s.verify_s + s.switch_s for s in world.spans)
    assert work <= world.env.now * (1 + 1e-9)
