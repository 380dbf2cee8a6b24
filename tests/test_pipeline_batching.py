"""Tests of the pipeline's batching searches against their obvious twins, and of the joint plans and baselines."""

import math
from dataclasses import replace

import numpy as np
import pytest

from balancesim.core import pipeline_brute_force as brute
from balancesim.core.pipeline import fits_memory, inference_s, sequential_inference_s, times_of
from balancesim.core.pipeline_batching import Partition, dynamic_programming, sequential_batches, singletons
from balancesim.core.pipeline_exact import contiguous_bound_s, exact
from balancesim.core.pipeline_instance import PipelineInstance
from balancesim.core.pipeline_plans import (
    BASELINES,
    autoregressive,
    fixed_draft_length,
    heuristic_batching,
    joint,
    joint_exact,
    maximum_batching,
    no_batching,
    planned_rounds,
    same_batches_without_pipeline,
    static_batching,
    uniform_bandwidth,
)
from tests.pipeline_cases import LINK_DOWN, instance, random_instance, tasks, with_draft_memory

PLANS = {"joint": joint, "joint_exact": joint_exact, **BASELINES}


def named(partition: Partition) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(first, last + 1)) for first, last in partition.spans())


def test_spans_invert_rows():
    """Rows 0, 2 and 9 are the batches 0..0, 1..1 and 3..3."""
    assert Partition((0, 2, 9), 0.0).spans() == ((0, 0), (1, 1), (3, 3))
    assert singletons(3) == (0, 2, 5)


def test_partition_counts():
    """K tasks have 2^(K−1) contiguous and the Fubini number of ordered partitions."""
    assert len(list(brute.contiguous_partitions(tuple(range(6))))) == 32
    assert [len(list(brute.ordered_partitions(count))) for count in (1, 2, 3, 4)] == [1, 3, 13, 75]


@pytest.mark.parametrize("seed", range(40))
def test_dynamic_programming_equals_evaluating_every_transition(seed):
    """Pruned by bounds or not, the dynamic programming finds the same completion time."""
    case = random_instance(seed, 2 + seed % 7)
    found = dynamic_programming(case, 1 + seed % 4)
    value, _ = brute.dynamic_programming(case, 1 + seed % 4)
    assert found.inference_s == pytest.approx(value, rel=1e-9)
    assert inference_s(case, named(found), 1 + seed % 4) == pytest.approx(found.inference_s, rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_exact_equals_all_contiguous_partitions(seed):
    """Branch and bound finds the best contiguous partition and proves it; the dynamic programming is never better."""
    case, length = random_instance(100 + seed, 1 + seed % 10, 30), 1 + seed % 5
    result = exact(case, length)
    value, _ = brute.best_contiguous(case, length)
    assert result.proved
    assert result.partition.inference_s == pytest.approx(value, rel=1e-9)
    assert result.lower_bound_s == pytest.approx(value, rel=1e-9)
    assert contiguous_bound_s(case, length) <= value * (1 + 1e-9)
    assert dynamic_programming(case, length).inference_s >= value * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_memory_limits_the_batches(seed):
    """With little room for KV caches exact equals the best of the partitions that fit, and the DP fits too."""
    case = random_instance(200 + seed, 6, 30)
    least = float(case.kv_tokens(np.ones(6, dtype=np.int64), case.tasks.prompt_tokens).sum())
    case = with_draft_memory(case, least * (1.0 + 0.05 * (seed % 5)) + 1e-3)
    result, found = exact(case, 2).partition, dynamic_programming(case, 2)
    assert result.inference_s == pytest.approx(brute.best_contiguous(case, 2)[0], rel=1e-9)
    assert fits_memory(case, named(result), 2)
    assert fits_memory(case, named(found), 2)


def test_batches_of_one_when_nothing_fits():
    """If no partition fits, the one with the least memory comes back and the plan says that it does not fit."""
    case = with_draft_memory(instance(tasks([10, 20, 30])), 1.0)
    assert named(dynamic_programming(case, 1)) == ((0,), (1,), (2,))
    assert named(exact(case, 1).partition) == ((0,), (1,), (2,))
    assert named(sequential_batches(case, 1)) == ((0,), (1,), (2,))
    assert not joint(case).fits_memory


def test_stopped_search_says_so_and_keeps_a_valid_bound():
    """At the node limit the search returns its best partition, a lower bound, and proved=False."""
    case = random_instance(7, 12)
    stopped, complete = exact(case, 2, node_limit=1), exact(case, 2)
    assert not stopped.proved
    assert stopped.lower_bound_s <= complete.partition.inference_s * (1 + 1e-9)
    assert stopped.partition.inference_s >= complete.partition.inference_s * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_sequential_batches_are_exact(seed):
    """Without pipelining the shortest path equals the best of all contiguous partitions."""
    case = random_instance(300 + seed, 7)
    values = []
    for batches in brute.contiguous_partitions(tuple(range(7))):
        times = times_of(case, batches, 2)
        values.append(sequential_inference_s(times, range(len(batches))))
    assert sequential_batches(case, 2).inference_s == pytest.approx(min(values), rel=1e-12)


def test_contiguous_is_no_better_than_all_ordered_partitions():
    """All ordered partitions contain the contiguous ones, so their best is at most as slow."""
    case = random_instance(5, 4)
    assert brute.best_ordered(case, 2)[0] <= brute.best_contiguous(case, 2)[0]


@pytest.mark.parametrize("name", PLANS)
def test_plans_hold_every_task_once_and_predict_their_own_time(name):
    """A plan's batches partition the tasks, its bandwidths fill the band, and its T_inf follows from its batches."""
    case = replace(random_instance(11, 9), bandwidth_hz=5e6)
    before = case.tasks.prompt_tokens.copy()
    plan = PLANS[name](case)
    assert sorted(plan.served) == list(range(9))
    assert plan.bandwidth_hz.sum() == pytest.approx(5e6)
    assert plan.total_s == plan.upload_s + plan.inference_s
    assert case.tasks.prompt_tokens.tolist() == before.tolist()
    sequential = "autoregressive" in name or "without_pipeline" in name
    times = times_of(case, plan.batches, plan.draft_length)
    rows = range(len(plan.batches))
    expected = sequential_inference_s(times, rows) if sequential else inference_s(case, plan.batches, plan.draft_length)
    assert plan.inference_s == pytest.approx(expected, rel=1e-12)
    assert planned_rounds(case, plan) == times.rounds


@pytest.mark.parametrize("name", PLANS)
def test_plans_do_not_depend_on_the_order_of_tasks(name):
    """Shuffled tasks get the same objective (static batching goes by order of arrival, so it is left out)."""
    if name == "static_batching":
        return
    case = random_instance(12, 8)
    shuffled = case.take(np.random.default_rng(0).permutation(8))
    assert PLANS[name](shuffled).total_s == pytest.approx(PLANS[name](case).total_s, rel=1e-12)


@pytest.mark.parametrize("name", PLANS)
def test_plans_for_zero_and_one_task(name):
    """Zero tasks take no time; one task is one batch."""
    empty = PLANS[name](instance(tasks([])))
    assert (empty.batches, empty.total_s, planned_rounds(instance(tasks([])), empty)) == ((), 0.0, 0)
    single = PLANS[name](instance(tasks([40])))
    assert single.batches == ((0,),)
    assert 0 < single.total_s < math.inf


@pytest.mark.parametrize("seed", range(15))
def test_the_joint_plan_beats_what_it_contains(seed):
    """exact ≤ DP's plan and ≤ every contiguous pipelined baseline on the same uploads; no overlap is never faster."""
    case = random_instance(400 + seed, 10)
    best = joint_exact(case)
    for name in ("maximum_batching", "no_batching", "heuristic_batching", "without_pipeline"):
        assert best.total_s <= BASELINES[name](case).total_s * (1 + 1e-9), name
    assert best.total_s <= joint(case).total_s * (1 + 1e-9)
    assert joint(case).total_s <= same_batches_without_pipeline(case).total_s * (1 + 1e-9)
    assert joint(case).upload_s <= uniform_bandwidth(case).upload_s * (1 + 1e-9)


def test_joint_enumerates_draft_lengths():
    """The chosen l is the argmin over l = 1..l_max of the dynamic programming; a fixed l is never faster."""
    for seed in range(6):
        case = replace(random_instance(500 + seed, 8), max_draft_length=6)
        values = {length: dynamic_programming(case, length).inference_s for length in range(1, 7)}
        plan = joint(case)
        assert plan.inference_s == pytest.approx(min(values.values()), rel=1e-12)
        assert values[plan.draft_length] == pytest.approx(plan.inference_s, rel=1e-12)
        assert fixed_draft_length(case, 5).inference_s == pytest.approx(values[5], rel=1e-12)


def test_no_drafts_allowed_is_autoregression_in_batches():
    """l_max = 0 leaves decoding on the MBS; its rounds are the longest answer's tokens."""
    case = instance(tasks([10, 20, 30], [4, 9, 2]), max_draft_length=0)
    plan = joint(case)
    assert plan.draft_length == 0
    assert planned_rounds(case, plan) == 9
    assert plan.inference_s == pytest.approx(autoregressive(case).inference_s, rel=1e-12)


def test_link_down_is_an_infinite_plan_except_for_autoregression():
    """With the fronthaul down speculation never ends; decoding on the MBS alone is unharmed."""
    case = replace(instance(tasks([10, 20, 30])), fronthaul=LINK_DOWN)
    for name in ("joint", "joint_exact", "without_pipeline", "no_batching"):
        assert PLANS[name](case).total_s == math.inf
    assert math.isfinite(autoregressive(case).total_s)


def test_batches_of_the_fixed_rules():
    """Static: by arrival in tens; maximum: one batch; heuristic: powers of two; no batching: sorted singletons."""
    case = instance(tasks([9, 1, 2, 8, 3, 4]))
    assert static_batching(case, 4).batches == ((0, 1, 2, 3), (4, 5))
    assert maximum_batching(case).batches == ((1, 2, 4, 5, 3, 0),)
    assert heuristic_batching(case).batches == ((1,), (2,), (4, 5), (3,), (0,))
    assert no_batching(case).batches == ((1,), (2,), (4,), (5,), (3,), (0,))


def test_maximum_batching_stops_at_the_memory():
    """Room for 13 tokens of padding: 1,2,5 pads 4+3 = 7, adding 9 would pad 8+7+4 = 19; 9,10 pads 1 of the 6 left."""
    case = instance(tasks([1, 2, 5, 9, 10], 10))
    case = with_draft_memory(case, (1 + 2 + 5 + 9 + 10) + 5 * 10 + 13 + 0.5)
    plan = maximum_batching(case)
    assert plan.batches == ((0, 1, 2), (3, 4))
    assert plan.fits_memory


def test_taking_tasks_keeps_the_nodes():
    """take() selects tasks and leaves everything else."""
    case: PipelineInstance = random_instance(1, 5)
    part = case.take(np.array([3, 1]))
    assert part.tasks.prompt_tokens.tolist() == case.tasks.prompt_tokens[[3, 1]].tolist()
    assert part.target is case.target
