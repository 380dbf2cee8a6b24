"""Obvious twins of the pipeline's searches, for tests: every partition, one by one."""

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

from balancesim.core.pipeline import Batches, fits_memory, inference_s
from balancesim.core.pipeline_instance import PipelineInstance


def contiguous_partitions(order: tuple[int, ...]) -> Iterator[Batches]:
    """Yield all 2^(K−1) ways to cut a sequence of tasks into batches."""
    count = len(order)
    for cuts in range(count):
        for where in combinations(range(1, count), cuts):
            edges = (0, *where, count)
            yield tuple(order[a:b] for a, b in pairwise(edges))


def ordered_partitions(count: int) -> Iterator[Batches]:
    """Yield every set of batches in every order (members of a batch have no order): 4,683 for K = 6."""
    for order in permutations(range(count)):
        for batches in contiguous_partitions(order):
            if all(batch == tuple(sorted(batch)) for batch in batches):
                yield batches


def best_contiguous(instance: PipelineInstance, draft_length: int) -> tuple[float, Batches]:
    """Return the least T_inf over all contiguous partitions in the tasks' order that fit the memory."""
    return _best(instance, draft_length, contiguous_partitions(tuple(range(len(instance.tasks)))))


def best_ordered(instance: PipelineInstance, draft_length: int) -> tuple[float, Batches]:
    """Return the least T_inf over all ordered partitions that fit the memory."""
    return _best(instance, draft_length, ordered_partitions(len(instance.tasks)))


def _best(instance: PipelineInstance, draft_length: int, candidates: Iterator[Batches]) -> tuple[float, Batches]:
    feasible = (batches for batches in candidates if fits_memory(instance, batches, draft_length))
    return min((inference_s(instance, batches, draft_length), batches) for batches in feasible)


def dynamic_programming(instance: PipelineInstance, draft_length: int) -> tuple[float, Batches]:
    """Return what [P2]'s dynamic programming finds, every transition evaluated, without memory limit."""
    stored: list[Batches] = [()]
    for last in range(len(instance.tasks)):
        options = [(*stored[first], tuple(range(first, last + 1))) for first in range(last + 1)]
        stored.append(min(options, key=lambda batches: inference_s(instance, batches, draft_length)))
    return inference_s(instance, stored[-1], draft_length), stored[-1]
