"""The simulated pipeline against the recursion of model.md §7, the ring without SimPy, and hand-computed worlds."""

from dataclasses import replace

import numpy as np
import pytest

from balancesim.acceptance import Iid
from balancesim.core.pipeline import inference_s, pipeline_schedule, times_of
from balancesim.core.pipeline_plans import joint
from balancesim.core.pipeline_ring import RingBatch, ring_ends
from balancesim.core.request import Outcome
from tests.pipeline_cases import random_instance
from tests.pipeline_world import PipelineWorld, Scripted, requests_of


def random_batches(rng, count):
    """The tasks in random order, cut at random places."""
    order = rng.permutation(count).tolist()
    cuts = sorted(rng.choice(np.arange(1, count), rng.integers(0, count), replace=False).tolist())
    return [order[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]


@pytest.mark.parametrize("seed", range(60))
def test_completion_is_the_recursions(seed):
    """With padded rounds and expected acceptance every batch ends at V(N, m) and all are done at T_inf."""
    rng = np.random.default_rng(seed)
    case, length = random_instance(seed, int(rng.integers(1, 9))), int(rng.integers(0, 5))
    batches = random_batches(rng, len(case.tasks)) if len(case.tasks) > 1 else [[0]]
    world = PipelineWorld(case, [Scripted([(batches, length)])], early_exit=False)
    visits = world.run(requests_of(case))
    assert all(visit.outcome is Outcome.COMPLETED for visit in visits.values())
    times = times_of(case, tuple(map(tuple, batches)), length)
    rows = list(range(len(batches)))
    schedule = pipeline_schedule(times.draft_s(rows), times.verify_s(rows), times.to_mbs_s, times.to_sbs_s)
    ends = {span.lane_id: span.end_s for span in world.verified}
    assert [ends[m] for m in rows] == pytest.approx(schedule.verify_end_s[-1].tolist(), rel=1e-9)
    assert max(ends.values()) == pytest.approx(inference_s(case, tuple(map(tuple, batches)), length), rel=1e-9)
    assert all(span.steps == times.rounds for span in world.verified)


@pytest.mark.parametrize("seed", range(10))
def test_the_optimisers_plan_takes_what_it_predicts(seed):
    """The plan of [P2]'s optimiser, simulated, is done at its T_inf."""
    case = random_instance(seed, 10)
    plan = joint(case)
    world = PipelineWorld(case, [Scripted([([list(b) for b in plan.batches], plan.draft_length)])], early_exit=False)
    world.run(requests_of(case))
    assert max(span.end_s for span in world.verified) == pytest.approx(plan.inference_s, rel=1e-9)


@pytest.mark.parametrize("law", [None, Iid()])
@pytest.mark.parametrize("seed", range(20))
def test_batches_that_leave_early_are_the_rings(seed, law):
    """With early exit, each batch runs its own rounds, drawn or expected, as the ring without SimPy computes."""
    rng = np.random.default_rng(seed)
    case, length = random_instance(seed, 7), int(rng.integers(0, 5))
    batches = random_batches(rng, 7)
    policy = Scripted([(batches, length)])
    world = PipelineWorld(case, [policy], acceptance=law) if law else PipelineWorld(case, [policy])
    visits = world.run(requests_of(case))
    ring = []
    for batch in batches:
        alone = replace(case, tasks=case.tasks.take(np.array(batch)))
        rounds = max(visits[k].draft_rounds for k in batch) if length else int(case.tasks.output_tokens[batch].max())
        ring.append(RingBatch.of(_with_rounds(alone, length, rounds), 0.0, length > 0))
    for batch, ends in zip(batches, ring_ends(ring), strict=True):
        for k in batch:
            own = visits[k].draft_rounds if length else visits[k].tokens_out
            assert visits[k].server_last_token_s == pytest.approx(ends[own - 1], rel=1e-9)
            assert visits[k].tokens_out == case.tasks.output_tokens[k]
        assert max(visits[k].server_last_token_s for k in batch) == pytest.approx(ends[-1], rel=1e-9)


def _with_rounds(case, length, rounds):
    from balancesim.core.pipeline_times import Answers, round_times

    prompts = case.tasks.prompt_tokens
    answers = Answers(length, rounds, case.longest_output_tokens)
    return round_times(case.nodes, np.array([len(prompts)]), np.array([prompts.max()]), answers)


@pytest.mark.parametrize("seed", range(20))
def test_ring_equals_recursion(seed):
    """Batches that start together with equal rounds end in the ring as in the recursion, every round."""
    rng = np.random.default_rng(seed)
    rounds, count = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    draft, verify = rng.exponential(1.0, (rounds, count)), rng.exponential(1.0, (rounds, count))
    up, down = rng.exponential(0.3, count), rng.exponential(0.3, count)
    schedule = pipeline_schedule(draft, verify, up, down)
    ends = ring_ends([RingBatch(0.0, draft[:, m], verify[:, m], up[m], down[m], True) for m in range(count)])
    assert pytest.approx(schedule.verify_end_s, rel=1e-12) == np.array(ends).T
