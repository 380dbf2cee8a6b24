"""Discipline `fused`: exact timing against the step-by-step twin, and the limits in which it is another discipline."""

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from balancesim.acceptance import ByDepth, Expected, Iid, Markov
from balancesim.catalog import gpu as gpu_named
from balancesim.catalog import llm
from balancesim.core.decision import Lane
from balancesim.core.fused import FusedMembers
from balancesim.core.fused_lanes import FusedLanes
from balancesim.core.goodput import GoodputRule
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.request import Mode, Outcome, Request
from balancesim.core.server import ServerSpec
from balancesim.core.slicing import Slicing
from balancesim.latency_laws import Affine, Flops, Profiled, Roofline
from balancesim.processes.continuous import ContinuousDiscipline
from balancesim.processes.fused import FusedDiscipline
from tests.fused_twin import Mind, step_by_step
from tests.test_continuous import World

LAWS = {
    "roofline": Roofline(bandwidth_efficiency=0.8, compute_efficiency=0.6, launch_s=1e-4),
    "affine": Affine(s_per_flop=1e-14, fixed_s=3e-3),
    "flops": Flops(prefill_s_per_flop=1e-14, decode_s_per_flop=2e-13, verify_s_per_flop=6e-14),
    "profiled": Profiled(),
}
ACCEPTANCE = (Iid(), Expected(), ByDepth((0.7, 0.8, 0.85)), Markov(0.4))
AD = Lane(0, Mode.AD, 0.5, 0.5)


@dataclass(frozen=True)
class Restless:
    """A rule that changes lengths for no good reason, as a function of the contexts."""

    def lengths(self, server, members):
        return (members.context_tokens.astype(int) * 7 // 3) % (members.longest_draft + 1)


@dataclass(frozen=True)
class Always:
    """A rule that always takes the longest drafts."""

    def lengths(self, server, members):
        return members.longest_draft


def make_spec(law="roofline"):
    """A server whose target has this law; a measured table is of the target alone, the draft then has a roofline."""
    draft_law = LAWS["roofline" if law == "profiled" else law]
    target = "Llama-3.1-8B" if law == "profiled" else "Llama-2-7B"
    return ServerSpec(
        gpu_named("H100 SXM" if law == "profiled" else "RTX 4090"), llm(target), LAWS[law], 80e9,
        llm("TinyLlama-1.1B"), draft_law, 4,
    )  # fmt: skip


def fused_world(spec, acceptance, **options):
    world = World(spec, Slicing(0.0), **options)
    host = replace_host(world, FusedLanes(), acceptance)
    world.discipline = FusedDiscipline(host)
    return world


def continuous_world(spec, acceptance, shares):
    world = World(spec, Slicing(0.0))
    world.discipline = ContinuousDiscipline(replace_host(world, ContinuousLanes(), acceptance))
    world.shares(0.0, shares)
    return world


def replace_host(world, lane_model, acceptance):
    return replace(world.discipline._host, lane_model=lane_model, acceptance=acceptance)


def random_joins(rng, count, lanes):
    requests = [
        Request(
            k, k, 0.0, rng.choice([1, rng.randrange(1, 700)]), rng.choice([1, 2, rng.randrange(1, 200)]),
            acceptance_rate=rng.choice([0.0, 0.5, 0.8, 0.95, 1.0]),
        )
        for k in range(count)
    ]  # fmt: skip
    return [(rng.choice([0.0, rng.uniform(0, 4)]), rng.choice(lanes), request) for request in requests]


def run(world, joins):
    for time, lane, request in joins:
        world.admit(time, lane, request)
    world.env.run()
    visits = {visit.request.request_id: visit for visit in world.done}
    assert len(visits) == len(joins)
    for visit in visits.values():
        visit.outcome = Outcome.COMPLETED
    assert all(visit.tokens_out == visit.request.output_tokens for visit in visits.values())
    assert world.memory.held_bytes == 0.0
    return visits


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", range(12))
def test_constant_lengths_jump_as_steps_walk(seed, law):
    """AD and SD of several draft lengths in one process: every first and last token is where the twin has it."""
    rng = random.Random(f"{seed}{law}")
    spec, acceptance = make_spec(law), ACCEPTANCE[seed % len(ACCEPTANCE)]
    lanes = [AD, *(Lane(gamma, Mode.SD, 0.2, 0.2, draft_length=gamma) for gamma in (1, 4, 3))]
    world = fused_world(spec, acceptance)
    joins = random_joins(rng, 20, lanes)
    visits = run(world, joins)
    minds = [(t, Mind(r, lane.draft_length, acceptance, world.luck, ruled=False)) for t, lane, r in joins]
    first, last, drafted = step_by_step(spec, minds, lambda batch: [mind.gamma for mind in batch])
    for key, visit in visits.items():
        assert visit.server_first_token_s == pytest.approx(first[key], rel=1e-9)
        assert visit.server_last_token_s == pytest.approx(last[key], rel=1e-9)
        assert visit.draft_rounds * visit.draft_length == drafted[key]
    work = sum(s.prefill_s + s.decode_s + s.draft_s + s.verify_s for s in world.spans)
    assert work == pytest.approx(sum(s.end_s - s.start_s for s in world.spans), rel=1e-9)
    assert sum(s.tokens for s in world.spans) == sum(request.output_tokens for _, _, request in joins)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", range(8))
def test_changing_lengths_jump_as_steps_walk(seed, law):
    """With lengths that a rule chooses step by step: timestamps, and the tokens drafted, as in the twin."""
    rng = random.Random(f"rule{seed}{law}")
    spec, acceptance = make_spec(law), ACCEPTANCE[seed % len(ACCEPTANCE)]
    rule = rng.choice([Restless(), GoodputRule(), GoodputRule(per_request=False)])
    world = fused_world(spec, acceptance)
    joins = random_joins(rng, 14, [AD, Lane(1, Mode.SD, 0.5, 0.5, draft_length=4, draft_rule=rule)])
    visits = run(world, joins)

    def choose(batch):
        columns = zip(
            *[(m.request.prompt_tokens + m.out, m.request.acceptance_rate, m.gamma) for m in batch], strict=True
        )
        context, rate, longest = columns
        return rule.lengths(spec, FusedMembers(np.array(context, float), np.array(rate), np.array(longest))).tolist()

    minds = [(t, Mind(r, lane.draft_length, acceptance, world.luck, ruled=True)) for t, lane, r in joins]
    first, last, drafted = step_by_step(spec, minds, choose)
    for key, visit in visits.items():
        assert visit.server_first_token_s == pytest.approx(first[key], rel=1e-9)
        assert visit.server_last_token_s == pytest.approx(last[key], rel=1e-9)
        if visit.mode is Mode.SD:
            assert (visit.drafted_tokens or 0) == drafted[key]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("acceptance", ACCEPTANCE, ids=lambda law: law.name)
def test_a_rule_that_never_changes_is_no_rule(law, acceptance):
    """Always the longest drafts, chosen step by step, is the lane of constant draft length."""
    joins = random_joins(random.Random(law), 16, [AD, Lane(1, Mode.SD, 0.5, 0.5, draft_length=3)])
    plain = run(fused_world(make_spec(law), acceptance), joins)
    lane = Lane(1, Mode.SD, 0.5, 0.5, draft_length=3, draft_rule=Always())
    ruled = run(
        fused_world(make_spec(law), acceptance),
        [(t, lane if old.mode is Mode.SD else old, request) for t, old, request in joins],
    )
    for key, visit in plain.items():
        other = ruled[key]
        assert other.server_last_token_s == pytest.approx(visit.server_last_token_s, rel=1e-9)
        assert other.draft_rounds == visit.draft_rounds
        assert other.row().drafted_tokens == visit.row().drafted_tokens


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("lane", [AD, Lane(1, Mode.SD, 1.0, 1.0, draft_length=4), Lane(1, Mode.SD, 1.0, 1.0)])
def test_one_mode_is_a_continuous_lane(law, lane):
    """All draft lengths 0 is continuous AD batching; all equal is the continuous SD lane alone."""
    joins = random_joins(random.Random(law), 16, [lane])
    fused = run(fused_world(make_spec(law), Iid()), joins)
    continuous = run(continuous_world(make_spec(law), Iid(), {lane.lane_id: 1.0}), joins)
    for key, visit in continuous.items():
        assert fused[key].server_first_token_s == pytest.approx(visit.server_first_token_s, rel=1e-9)
        assert fused[key].server_last_token_s == pytest.approx(visit.server_last_token_s, rel=1e-9)
        assert fused[key].row().accepted_tokens == visit.row().accepted_tokens


def test_fused_beats_two_slices_under_roofline():
    """AD and SD together take less than in two time-sliced lanes, which read the weights twice as often."""
    spec, sd = make_spec(), Lane(1, Mode.SD, 0.5, 0.5, draft_length=4)
    joins = [(0.0, AD if k % 2 else sd, Request(k, k, 0.0, 100, 80, acceptance_rate=0.8)) for k in range(12)]
    ends = []
    for world in (fused_world(spec, Iid()), continuous_world(spec, Iid(), {0: 0.5, 1: 0.5})):
        ends.append(max(visit.server_last_token_s for visit in run(world, joins).values()))
    assert ends[0] < 0.85 * ends[1]


@pytest.mark.parametrize("ruled", [False, True])
def test_little_memory_and_short_predictions(ruled):
    """Answers longer than predicted outgrow their reservations, the youngest is preempted, and all get done."""
    spec = make_spec()
    per_token = spec.kv_bytes_per_token(Mode.SD)
    lane = Lane(1, Mode.SD, 0.5, 0.5, draft_length=4, draft_rule=GoodputRule() if ruled else None)
    world = fused_world(spec, Iid(), capacity=700 * per_token, growth=16)
    joins = [
        (0.01 * k, lane if k % 3 else AD, Request(k, k, 0.0, 60, 90, predicted_output_tokens=5, acceptance_rate=0.8))
        for k in range(8)
    ]
    visits = run(world, joins)
    assert sum(visit.preemptions for visit in visits.values()) > 0


@pytest.mark.parametrize("ruled", [False, True])
def test_stopped_at_the_deadline(ruled):
    """With abort_late a request in the batch leaves at the first step boundary after its deadline."""
    lane = Lane(1, Mode.SD, 0.5, 0.5, draft_length=4, draft_rule=GoodputRule() if ruled else None)
    world = fused_world(make_spec(), Iid(), abort_late=True)
    long = Request(0, 0, 0.0, 50, 3000, deadline_s=1.0, acceptance_rate=0.8)
    world.admit(0.0, lane, long)
    world.admit(0.0, AD, Request(1, 1, 0.0, 50, 100))
    world.env.run()
    visit = next(v for v in world.done if v.request.request_id == 0)
    assert 1.0 <= visit.server_last_token_s < 1.1
    assert visit.truncated
    visit.outcome = Outcome.LATE
    row = visit.row()
    assert 0 < row.accepted_tokens <= row.drafted_tokens


def test_a_bad_rule_is_an_error():
    """A rule must keep to the longest drafts."""

    @dataclass(frozen=True)
    class Greedy:
        def lengths(self, server, members):
            return members.longest_draft + 1

    world = fused_world(make_spec(), Iid())
    lane = Lane(1, Mode.SD, 0.5, 0.5, draft_length=2, draft_rule=Greedy())
    world.admit(0.0, lane, Request(0, 0, 0.0, 5, 5, acceptance_rate=0.5))
    with pytest.raises(ValueError, match=r"draft_rule must give lengths from 0 to \[2\], got \[3\]"):
        world.env.run()
