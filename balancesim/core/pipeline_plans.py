"""Joint plans over an instance: [P2]'s optimiser, the exact one, and [P2]'s baselines (model.md §7, §8).

Every function takes a `PipelineInstance` whose tasks can all be served (`pipeline_instance.admit` first) and returns a
`PipelinePlan` over its tasks. Uploads and inference separate: T_up does not depend on the batches. Baselines that vary
`joint`'s own plan take it as ``plan`` if it is known already.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from balancesim.core.pipeline import Batches, PipelinePlan, fits_memory, inference_s, slowest_upload_s, times_of
from balancesim.core.pipeline_bandwidth import split_equal_finish, split_uniform
from balancesim.core.pipeline_batching import ROUNDING, Partition, dynamic_programming, sequential_batches
from balancesim.core.pipeline_exact import contiguous_bound_s, exact
from balancesim.core.pipeline_instance import PipelineInstance, rounds_needed

Batching = Callable[[PipelineInstance, int], Partition]  #: batches of sorted tasks for one draft length


def _sorted(instance: PipelineInstance) -> tuple[PipelineInstance, list[int]]:
    order = np.argsort(instance.tasks.prompt_tokens, kind="stable")
    return instance.take(order), order.tolist()


def _named(partition: Partition, order: list[int]) -> Batches:
    return tuple(tuple(order[first : last + 1]) for first, last in partition.spans())


def _plan(instance: PipelineInstance, draft_length: int, batches: Batches, inference: float) -> PipelinePlan:
    """Return the plan with [P2]'s optimal bandwidths."""
    tasks = instance.tasks
    bandwidth = split_equal_finish(tasks.upload_bits, tasks.spectral_efficiency_bps_hz, instance.bandwidth_hz)
    fits = fits_memory(instance, batches, draft_length)
    return PipelinePlan(draft_length, batches, bandwidth, slowest_upload_s(instance, bandwidth), inference, fits)


def no_plan(instance: PipelineInstance) -> PipelinePlan:
    """Return the plan that serves nobody: the only one for zero tasks."""
    return PipelinePlan(0, (), np.zeros(len(instance.tasks)), 0.0, 0.0)


def _best_length(instance: PipelineInstance, batching: Batching) -> PipelinePlan:
    """Enumerate the draft lengths 1..l_max (l_max = 0: autoregressive) and keep the least T_inf; ties: the shorter."""
    if not len(instance.tasks):
        return no_plan(instance)
    ordered, order = _sorted(instance)
    best: tuple[float, int, Partition] | None = None
    for bound, length in sorted((contiguous_bound_s(ordered, length), length) for length in instance.draft_lengths):
        if best is not None and bound * (1 - ROUNDING) > best[0]:
            break  # no batching at this or a later length can be faster
        found = batching(ordered, length)
        if best is None or (found.inference_s, length) < best[:2]:
            best = (found.inference_s, length, found)
    assert best is not None  # draft_lengths is never empty
    return _plan(instance, best[1], _named(best[2], order), best[0])


def joint(instance: PipelineInstance) -> PipelinePlan:
    """Return [P2]'s proposal: dynamic programming over batches, enumeration over l, closed-form bandwidths."""
    return _best_length(instance, dynamic_programming)


def joint_exact(instance: PipelineInstance, node_limit: int = 20_000) -> PipelinePlan:
    """Return the best contiguous batches by branch and bound, else as `joint`; never slower than `joint`.

    If the search stops at ``node_limit``, the dynamic programming's batches are tried too.
    """

    def batching(ordered: PipelineInstance, length: int) -> Partition:
        result = exact(ordered, length, node_limit=node_limit)
        found = result.partition if result.proved else dynamic_programming(ordered, length)
        return min(result.partition, found, key=lambda partition: partition.inference_s)

    return _best_length(instance, batching)


def autoregressive(instance: PipelineInstance) -> PipelinePlan:
    """Return autoregressive decoding on the MBS: l = 0, the target alone, no drafts.

    One batch after the other, each until its answers are out, batches chosen best for that by a shortest path [A]: as
    well optimised as the proposal.
    """
    return _best_length(replace(instance, draft_length=0), sequential_batches)


def same_batches_autoregressive(instance: PipelineInstance, plan: PipelinePlan | None = None) -> PipelinePlan:
    """Return autoregressive decoding on the MBS with `joint`'s own batches, one after the other [A].

    Weaker than `autoregressive`: batches made for a pipeline are smaller than decoding alone would want.
    """
    plan = plan or joint(instance)
    if not plan.batches:
        return plan
    loops = times_of(instance, plan.batches, 0).loop_sum_s
    return replace(plan, draft_length=0, inference_s=float(loops.sum()))


def without_pipeline(instance: PipelineInstance) -> PipelinePlan:
    """Return speculative decoding without overlap: T_inf = Σ_m Σ_n (T_d + T_v); l and batches are the best for it [A].

    Drafts and verdicts still cross the fronthaul; only one batch is inside at a time.
    """
    return _best_length(instance, sequential_batches)


def same_batches_without_pipeline(instance: PipelineInstance, plan: PipelinePlan | None = None) -> PipelinePlan:
    """Return `joint`'s own l and batches run without overlap: what pipelining alone contributes [A]."""
    plan = plan or joint(instance)
    if not plan.batches:
        return plan
    loops = times_of(instance, plan.batches, plan.draft_length).loop_sum_s
    return replace(plan, inference_s=float(loops.sum()))


def first_batch(instance: PipelineInstance, plan: PipelinePlan) -> PipelinePlan:
    """Return the plan that runs the batch of the first (oldest) task alone: one step of serving batches in turn."""
    batches = tuple(batch for batch in plan.batches if 0 in batch)
    if not batches:
        return plan
    inference = float(times_of(instance, batches, plan.draft_length).loop_sum_s.sum())
    return replace(plan, batches=batches, inference_s=inference)


def fixed_draft_length(instance: PipelineInstance, draft_length: int = 7) -> PipelinePlan:
    """Return `joint` with l fixed at 7 [P2] instead of enumerated."""
    return joint(replace(instance, draft_length=draft_length))


def uniform_bandwidth(instance: PipelineInstance, plan: PipelinePlan | None = None) -> PipelinePlan:
    """Return `joint` with every user at B/K [P2]."""
    plan = plan or joint(instance)
    bandwidth = split_uniform(instance.tasks.upload_bits, instance.bandwidth_hz)
    return replace(plan, bandwidth_hz=bandwidth, upload_s=slowest_upload_s(instance, bandwidth))


def _fixed_batches(instance: PipelineInstance, batches_for: Callable[[int], Batches]) -> PipelinePlan:
    """Return the best draft length for batches that are given, in the pipeline."""
    if not len(instance.tasks):
        return no_plan(instance)
    results = [(inference_s(instance, batches_for(n), n), n) for n in instance.draft_lengths]
    inference, length = min(results)
    return _plan(instance, length, batches_for(length), inference)


def no_batching(instance: PipelineInstance) -> PipelinePlan:
    """Return every task as a batch of its own, in order of input length."""
    order = _sorted(instance)[1]
    return _fixed_batches(instance, lambda _: tuple((task,) for task in order))


def static_batching(instance: PipelineInstance, batch_size: int = 10) -> PipelinePlan:
    """Return batches of one fixed size in order of arrival, whatever the lengths [A: 10; [P2]'s size is not known]."""
    tasks = tuple(range(len(instance.tasks)))
    batches = tuple(tasks[at : at + batch_size] for at in range(0, len(tasks), batch_size))
    return _fixed_batches(instance, lambda _: batches)


def maximum_batching(instance: PipelineInstance) -> PipelinePlan:
    """Return the largest batches that the memory allows, filled in order of input length [A].

    The KV caches of all batches are resident together, so a batch is filled as long as it and batches of one for the
    rest fit; without a binding limit it is one batch of all tasks, with nothing to overlap.
    """
    ordered, order = _sorted(instance) if len(instance.tasks) else (instance, [])

    def batches(draft_length: int) -> Batches:
        room, prompts = ordered.kv_room_tokens(draft_length), ordered.tasks.prompt_tokens
        result, first, spare = [], 0, room - float((prompts + ordered.longest_output_tokens).sum())
        while first < len(order):
            last = first
            while last + 1 < len(order) and _padding(prompts[first : last + 2]) <= spare:
                last += 1
            spare -= _padding(prompts[first : last + 1])
            result.append(tuple(order[first : last + 1]))
            first = last + 1
        return tuple(result)

    return _fixed_batches(instance, batches)


def _padding(prompts: np.ndarray) -> float:
    return float((prompts.max() - prompts).sum())


def heuristic_batching(instance: PipelineInstance) -> PipelinePlan:
    """Return batches of similar length: inputs in (2^(q−1), 2^q] together, which at most doubles an input by padding.

    [A]: [P2] names a heuristic but its rule is not known; bucketing by powers of two is the common one in practice.
    """
    order = _sorted(instance)[1]
    buckets: dict[int, list[int]] = {}
    for task in order:
        buckets.setdefault(math.ceil(math.log2(int(instance.tasks.prompt_tokens[task]))), []).append(task)
    return _fixed_batches(instance, lambda _: tuple(map(tuple, buckets.values())))


#: [P2]'s baselines by the name used in tables
BASELINES: dict[str, Callable[[PipelineInstance], PipelinePlan]] = {
    "autoregressive": autoregressive,
    "same_batches_autoregressive": same_batches_autoregressive,
    "without_pipeline": without_pipeline,
    "same_batches_without_pipeline": same_batches_without_pipeline,
    "no_batching": no_batching,
    "fixed_draft_length": fixed_draft_length,
    "static_batching": static_batching,
    "maximum_batching": maximum_batching,
    "heuristic_batching": heuristic_batching,
    "uniform_bandwidth": uniform_bandwidth,
}


def planned_rounds(instance: PipelineInstance, plan: PipelinePlan) -> int:
    """Return N of a plan: how often every batch is verified (AD: decoding passes)."""
    return rounds_needed(instance.tasks, plan.draft_length) if plan.batches else 0
