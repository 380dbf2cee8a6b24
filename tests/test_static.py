import math

import pytest

from balancesim.acceptance import Expected
from balancesim.core.decision import Lane
from balancesim.core.latency import decode_steps_s, prefill_s, rounds_s
from balancesim.core.padded import per_user_batch
from balancesim.core.request import Mode, Request
from balancesim.core.slicing import Slicing
from balancesim.core.speculation import planned_rounds
from balancesim.processes.static import StaticDiscipline
from balancesim.processes.visit import Visit
from tests.test_continuous import World, make_spec


class StaticWorld(World):
    def __init__(self, spec, slicing, acceptance=None, **options):
        super().__init__(spec, slicing)
        host = self.discipline._host
        if acceptance is not None:
            host = type(host)(**{**vars(host), "acceptance": acceptance})
        self.discipline = StaticDiscipline(host, **options)

    def admit_all(self, lane, requests, load_s=0.0):
        visits = []
        for request in requests:
            visit = Visit(request, 0, 0)
            visit.upload_end_s = visit.admitted_s = 0.0
            visit.mode, visit.lane_id, visit.draft_length = lane.mode, lane.lane_id, lane.draft_length
            visits.append(visit)
        self.discipline.admit(lane, visits, load_s)
        return visits


REQUESTS = [Request(0, 0, 0.0, 100, 30, acceptance_rate=0.7), Request(1, 1, 0.0, 60, 80, acceptance_rate=0.9)]


def padded_ad_s(spec, size, prompt, output):
    """C^A as model.md §5 writes it, step by step."""
    total = prefill_s(spec, Mode.AD, size, size * prompt, size * prompt**2)
    return total + sum(decode_steps_s(spec, size, size * (prompt + i)) for i in range(1, output))


def padded_sd_s(spec, size, prompt, output, rounds):
    """C^S with its rounds spread evenly over the contexts of the answer."""
    total = prefill_s(spec, Mode.SD, size, size * prompt, size * prompt**2)
    steps = [float(rounds_s(spec, size, size * (prompt + t), 4).total_s) for t in range(1, output)]
    return total + rounds * sum(steps) / len(steps)


def test_a_padded_batch_takes_its_formula():
    """All answers leave at C^A of the longest prompt and answer, and memory is b·(S+N)·kv until then."""
    spec = make_spec()
    world = StaticWorld(spec, Slicing(0.05))
    world.gpu.set_shares({0: 1.0})
    world.admit_all(Lane(0, Mode.AD, 1.0, 1.0), REQUESTS)
    assert world.memory.held_bytes == 2 * (100 + 80) * spec.target.kv_bytes_per_token
    assert not world.discipline.ready()
    world.env.run()
    expected = padded_ad_s(spec, 2.0, 100.0, 80)
    assert [visit.server_last_token_s for visit in world.done] == [pytest.approx(expected, rel=1e-12)] * 2
    assert [visit.tokens_out for visit in world.done] == [30, 80]
    assert world.memory.held_bytes == 0.0
    assert world.discipline.ready()


def test_a_batch_with_additive_cost_takes_the_sum_of_its_members():
    """With the cost form ``per_user`` both answers leave when the GPU has worked for each of them alone."""
    spec = make_spec()
    world = StaticWorld(spec, Slicing(0.05), cost=per_user_batch)
    world.gpu.set_shares({0: 1.0})
    world.admit_all(Lane(0, Mode.AD, 1.0, 1.0), REQUESTS)
    world.env.run()
    expected = padded_ad_s(spec, 1.0, 100.0, 30) + padded_ad_s(spec, 1.0, 60.0, 80)
    assert [visit.server_last_token_s for visit in world.done] == [pytest.approx(expected, rel=1e-12)] * 2


def test_expected_acceptance_takes_the_planned_rounds():
    """Under the law ``expected`` an SD batch ends exactly at its plan, C^S over I = max planned rounds."""
    spec = make_spec("flops")
    world = StaticWorld(spec, Slicing(0.05), Expected())
    world.gpu.set_shares({1: 1.0})
    world.admit_all(Lane(1, Mode.SD, 1.0, 1.0, draft_length=4), REQUESTS)
    world.env.run()
    rounds = max(int(planned_rounds(r.output_tokens, r.acceptance_rate, 4)) for r in REQUESTS)
    expected = padded_sd_s(spec, 2.0, 100.0, 80, rounds)
    assert world.done[0].server_last_token_s == pytest.approx(expected, rel=1e-12)
    assert max(visit.draft_rounds for visit in world.done) == rounds
    spans = {part: sum(getattr(s, part) for s in world.spans) for part in ("prefill_s", "draft_s", "verify_s")}
    assert sum(spans.values()) == pytest.approx(expected, rel=1e-12)
    assert all(value > 0 for value in spans.values())


def test_two_lanes_share_the_gpu():
    """Fluid sharing without work conservation is the papers' C/share."""
    spec = make_spec()
    world = StaticWorld(spec, Slicing(0.0, 0.0, False))
    world.gpu.set_shares({0: 0.25, 1: 0.75})
    slow = world.admit_all(Lane(0, Mode.AD, 0.25, 0.5), REQUESTS[:1])
    world.admit_all(Lane(1, Mode.SD, 0.75, 0.5, draft_length=4), REQUESTS[1:], load_s=0.5)
    world.env.run()
    assert slow[0].server_last_token_s == pytest.approx(padded_ad_s(spec, 1.0, 100.0, 30) / 0.25, rel=1e-12)
    starts = [span.start_s for span in world.spans if span.lane_id == 1]
    assert starts[0] == 0.5  # the draft model had to be loaded


def test_an_answer_longer_than_predicted_is_cut():
    """The longest predicted answer of the batch is its bound: a longer truth is cut there and marked truncated."""
    spec = make_spec()
    world = StaticWorld(spec, Slicing(0.05))
    world.gpu.set_shares({0: 1.0})
    requests = [
        Request(0, 0, 0.0, 10, 50, predicted_output_tokens=20),
        Request(1, 1, 0.0, 10, 20, predicted_output_tokens=30),
    ]
    world.admit_all(Lane(0, Mode.AD, 1.0, 1.0), requests)
    world.env.run()
    assert [(visit.tokens_out, visit.truncated) for visit in world.done] == [(30, True), (20, False)]
    assert world.done[0].server_last_token_s == pytest.approx(padded_ad_s(spec, 2.0, 10.0, 30), rel=1e-12)


def test_a_cut_answer_under_speculation_takes_the_rounds_of_its_bound():
    """Rounds stop when the bound is reached: with α = 1 and γ = 4, 21 tokens after the first take 5 rounds."""
    spec = make_spec()
    world = StaticWorld(spec, Slicing(0.05))
    world.gpu.set_shares({1: 1.0})
    request = Request(0, 0, 0.0, 10, 90, acceptance_rate=1.0, predicted_output_tokens=22)
    world.admit_all(Lane(1, Mode.SD, 1.0, 1.0, draft_length=4), [request])
    world.env.run()
    assert (world.done[0].tokens_out, world.done[0].draft_rounds) == (22, math.ceil(21 / 5))


def test_one_token_answers_need_no_step():
    """N = 1: the prefill emits the whole answer."""
    spec = make_spec()
    world = StaticWorld(spec, Slicing(0.05))
    world.gpu.set_shares({0: 1.0})
    world.admit_all(Lane(0, Mode.AD, 1.0, 1.0), [Request(0, 0, 0.0, 10, 1)])
    world.env.run()
    assert world.done[0].server_last_token_s == pytest.approx(prefill_s(spec, Mode.AD, 1.0, 10.0, 100.0), rel=1e-12)
    assert len(world.spans) == 1
