"""Contiguous batches of input-sorted tasks: [P2]'s dynamic programming, and its shortest-path cousin without pipeline.

Rows are those of `pipeline_times.contiguous_times`: tasks j..i are row i·(i+1)/2 + j. A partition is a list of rows.
"""

import math
from dataclasses import dataclass

import numpy as np

from balancesim.core.pipeline import partition_inference_s, sequential_inference_s
from balancesim.core.pipeline_bounds import PathBounds, PathTerms
from balancesim.core.pipeline_instance import PipelineInstance
from balancesim.core.pipeline_times import BatchTimes, contiguous_times, row_of
from balancesim.units import FloatArray

#: relative slack when a bound is compared with a value, so that rounding never prunes the optimum
ROUNDING = 1e-10


@dataclass(frozen=True)
class Partition:
    """Contiguous batches and their T_inf."""

    rows: tuple[int, ...]
    inference_s: float

    def spans(self) -> tuple[tuple[int, int], ...]:
        """Return (first, last) of every batch, both included, as positions in the sorted order."""
        lasts = [(math.isqrt(8 * row + 1) - 1) // 2 for row in self.rows]
        return tuple((row - row_of(0, last), last) for row, last in zip(self.rows, lasts, strict=True))


def singletons(count: int) -> tuple[int, ...]:
    """Return the partition into batches of one: the least padding, hence the least memory."""
    return tuple(row_of(task, task) for task in range(count))


def contiguous_kv_tokens(instance: PipelineInstance, times: BatchTimes) -> FloatArray:
    """Return the KV tokens of every contiguous batch."""
    return instance.kv_tokens(times.sizes, times.inputs)


def dynamic_programming(instance: PipelineInstance, draft_length: int) -> Partition:
    """Return the batches that [P2]'s dynamic programming finds for one draft length.

        f(i) = min_{1≤j≤i} T_inf( stored partition of tasks 1..j−1, then the batch j..i ),   f(0) = 0

    State: the first i tasks in order of input length; transition: the last batch is j..i; kept: the partition with the
    smallest completion time. T_inf is evaluated with the full recursion, the feedback from the last batch of a round to
    the first of the next included [A]: a transition that costs O(N) alone, as [P2]'s O(K²·N) suggests, would let the
    SBS draft two rounds at once. Not exact: the best prefix on its own need not be the best to continue.

    Fast by the lower bounds of `pipeline_bounds.PathBounds` (one array per state): transitions are evaluated in the
    order of their bounds until the bound exceeds the best value; the result is that of evaluating all.
    If no stored partition fits the memory, batches of one are returned, the least memory of all partitions.
    """
    times = contiguous_times(instance, draft_length)
    terms, kv = PathTerms.of(times), contiguous_kv_tokens(instance, times)
    room, count = instance.kv_room_tokens(draft_length), len(instance.tasks)
    paths, held, value = PathBounds.empty(count + 1), np.zeros(count + 1), np.full(count + 1, math.inf)
    stored: list[tuple[int, ...] | None] = [(), *[None] * count]
    for last in range(count):
        rows, before = slice(row_of(0, last), row_of(last, last) + 1), slice(0, last + 1)
        bounds = paths.take(before).extend(terms.take(rows)).bound_s
        for first in np.argsort(bounds, kind="stable").tolist():
            if bounds[first] * (1 - ROUNDING) >= value[last + 1]:
                break
            prefix, row = stored[first], row_of(first, last)
            if prefix is None or held[first] + kv[row] > room:
                continue
            completion = partition_inference_s(times, (*prefix, row))
            if stored[last + 1] is None or completion < value[last + 1]:
                stored[last + 1], value[last + 1] = (*prefix, row), completion
                held[last + 1] = held[first] + kv[row]
                paths.put(last + 1, paths.take(first).extend(terms.take(slice(row, row + 1))))
    found = stored[count]
    rows_found = singletons(count) if found is None else found
    return Partition(rows_found, partition_inference_s(times, rows_found))


def sequential_batches(instance: PipelineInstance, draft_length: int) -> Partition:
    """Return the best contiguous batches without pipelining: min Σ_m loop_m, a shortest path, hence exact.

    One batch after the other runs all its rounds, so one KV cache is resident at a time: each batch must fit alone. If
    none does, batches of one.
    """
    times = contiguous_times(instance, draft_length)
    loops = np.where(
        contiguous_kv_tokens(instance, times) <= instance.kv_room_tokens(draft_length), times.loop_sum_s, math.inf
    )
    count = len(instance.tasks)
    value, choice = np.zeros(count + 1), [0] * count
    for last in range(count):
        ends = value[: last + 1] + loops[row_of(0, last) : row_of(last, last) + 1]
        choice[last] = int(np.argmin(ends))
        value[last + 1] = ends[choice[last]]
    rows: list[int] = []
    last = count - 1
    while last >= 0:
        rows.append(row_of(choice[last], last))
        last = choice[last] - 1
    if count and not math.isfinite(value[count]):
        rows = list(reversed(singletons(count)))
    rows.reverse()
    return Partition(tuple(rows), sequential_inference_s(times, rows))
