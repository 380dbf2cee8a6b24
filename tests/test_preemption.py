import random

import pytest

from balancesim.core.decision import Lane
from balancesim.core.latency import prefill_s
from balancesim.core.request import Mode, Request
from balancesim.core.slicing import Slicing
from tests.test_continuous import AD, SD, World, make_spec

KV = make_spec().target.kv_bytes_per_token


def test_a_reservation_grows_while_memory_is_free():
    """A truth beyond the prediction is served in full where there is room, without preemption."""
    world = World(make_spec(), Slicing(0.05), capacity=1000 * KV, growth=16)
    world.shares(0.0, {0: 1.0})
    world.admit(0.0, AD, Request(0, 0, 0.0, 100, 200, predicted_output_tokens=20))
    world.env.run()
    (visit,) = world.done
    assert (visit.tokens_out, visit.preemptions, visit.truncated) == (200, 0, False)
    # 20 reserved, then 12 times 16 until 200 are covered
    assert world.memory.take_peak() == (100 + 20 + 12 * 16) * KV


def test_the_youngest_is_preempted_and_computed_again():
    """When memory is full the youngest gives way, comes back when there is room, and loses no token."""
    world = World(make_spec(), Slicing(0.05), capacity=300 * KV, growth=64)
    world.shares(0.0, {0: 1.0})
    world.admit(0.0, AD, Request(0, 0, 0.0, 100, 100, predicted_output_tokens=40))
    world.admit(0.0, AD, Request(1, 1, 0.0, 100, 60, predicted_output_tokens=60))
    world.env.run()
    old, young = sorted(world.done, key=lambda visit: visit.request.request_id)
    assert (old.preemptions, old.tokens_out) == (0, 100)
    assert (young.preemptions, young.tokens_out) == (1, 60)
    assert young.server_last_token_s > old.server_last_token_s
    assert world.memory.held_bytes == 0.0
    # it had 40 tokens when the other outgrew its 40: its cache of 140 tokens is built again, without a new token
    again = [span for span in world.spans if span.prefill_s > 0][1]
    assert again.tokens == 0
    assert again.prefill_s == pytest.approx(prefill_s(make_spec(), Mode.AD, 1.0, 140.0, 140.0**2))


def test_a_request_that_outgrows_the_whole_memory_is_cut():
    """Alone and still too large: the answer ends where the memory ends, truncated, and all memory is given back."""
    world = World(make_spec(), Slicing(0.05), capacity=200 * KV, growth=50)
    world.shares(0.0, {0: 1.0})
    world.admit(0.0, AD, Request(0, 0, 0.0, 100, 400, predicted_output_tokens=60))
    world.env.run()
    (visit,) = world.done
    assert (visit.tokens_out, visit.truncated) == (60, True)
    assert world.memory.held_bytes == 0.0


def test_late_requests_are_stopped_at_the_next_boundary():
    """With ``abort_late`` a request leaves at the first step boundary after its deadline with what it has."""
    world = World(make_spec(), Slicing(0.05), abort_late=True)
    world.shares(0.0, {0: 1.0})
    world.admit(0.0, AD, Request(0, 0, 0.0, 100, 5000, deadline_s=1.0))
    world.admit(0.0, AD, Request(1, 1, 0.0, 100, 50))
    world.env.run()
    stopped = next(visit for visit in world.done if visit.request.request_id == 0)
    assert stopped.truncated
    assert 1.0 <= stopped.server_last_token_s < 1.05  # a step of this batch takes about 20 ms
    assert 0 < stopped.tokens_out < 100
    assert world.memory.held_bytes == 0.0


def test_without_it_late_requests_run_on():
    """By default a deadline changes nothing once a request is admitted."""
    world = World(make_spec(), Slicing(0.05))
    world.shares(0.0, {0: 1.0})
    world.admit(0.0, AD, Request(0, 0, 0.0, 100, 200, deadline_s=0.1))
    world.env.run()
    assert world.done[0].tokens_out == 200


@pytest.mark.parametrize("seed", range(20))
def test_every_token_comes_out_whatever_is_preempted(seed):
    """Random wrong predictions under tight memory: all tokens asked for come out, memory ends empty, never above."""
    rng = random.Random(seed)
    spec = make_spec()
    capacity = 900 * (spec.target.kv_bytes_per_token + spec.draft.kv_bytes_per_token)
    world = World(spec, Slicing(0.05, 0.001), capacity=capacity, growth=rng.choice([1, 16, 64]))
    world.shares(0.0, {0: 0.5, 1: 0.5})
    for k in range(6):
        truth, guess = rng.randrange(2, 200), rng.randrange(1, 60)
        request = Request(k, k, 0.0, rng.randrange(1, 60), truth, acceptance_rate=0.8, predicted_output_tokens=guess)
        world.admit(rng.uniform(0, 1), rng.choice([AD, SD]), request)
    world.env.run()
    assert len(world.done) == 6
    for visit in world.done:
        assert (visit.tokens_out, visit.truncated) == (visit.request.output_tokens, False)
    assert world.memory.held_bytes == 0.0
    assert world.memory.take_peak() <= capacity
    assert sum(span.tokens for span in world.spans) == sum(visit.request.output_tokens for visit in world.done)


def test_an_empty_lane_may_change_its_mode():
    """A lane without members is free to start again in the other mode."""
    world = World(make_spec(), Slicing(0.05))
    world.shares(0.0, {0: 1.0})
    world.admit(0.0, AD, Request(0, 0, 0.0, 10, 5))
    world.admit(5.0, Lane(0, Mode.SD, 1.0, 1.0, draft_length=2), Request(1, 1, 0.0, 10, 5, acceptance_rate=0.5))
    world.env.run()
    assert [visit.draft_rounds > 0 for visit in world.done] == [False, True]
