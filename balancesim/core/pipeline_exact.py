"""The best contiguous partition in the declared order (input length), by branch and bound."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from balancesim.core.pipeline import partition_inference_s
from balancesim.core.pipeline_batching import ROUNDING, Partition, contiguous_kv_tokens, singletons
from balancesim.core.pipeline_bounds import PathBounds, PathTerms
from balancesim.core.pipeline_instance import PipelineInstance
from balancesim.core.pipeline_times import BatchTimes, contiguous_times, row_of
from balancesim.units import FloatArray, IntArray

#: weights θ of the mixed bound θ·ΣT_d + (1−θ)·ΣT_v ≤ max(ΣT_d, ΣT_v)
_MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class ExactResult:
    """The best partition found and what is proved about it."""

    partition: Partition
    lower_bound_s: float  #: no contiguous partition is faster; equals T_inf (to rounding) when ``proved``
    nodes: int  #: prefixes that were expanded
    proved: bool


@dataclass(frozen=True)
class _Suffixes:
    """Least values over all partitions of the tasks i..K, each alone; arrays over i = 0..K."""

    mixed_s: FloatArray  #: min Σ_m (θ·Σ_n T_d + (1−θ)·Σ_n T_v), shape (len(_MIXES), K+1)
    draft_after_first_s: FloatArray  #: min Σ_m Σ_{n≥2} T_d
    loop_s: FloatArray  #: min max_m of a batch's own loop, all rounds
    loop_from_mbs_s: FloatArray  #: the same from the first verification on
    kv_tokens: FloatArray
    verify_last_s: FloatArray  #: least last verification of the last batch, the drain of the pipeline


def exact(
    instance: PipelineInstance, draft_length: int, starts: Iterable[tuple[int, ...]] = (), node_limit: int = 200_000
) -> ExactResult:
    """Return the contiguous partition with the least T_inf that fits the memory.

    Depth first over prefixes, next batch by next batch. A prefix (batches over tasks 1..i−1) is cut when the largest of
    these exceeds the best T_inf so far; each bounds every completion of the prefix from below:

    - `PathBounds` of the prefix itself: appending batches never shortens a path;
    - max(ΣT_d, ΣT_v) ≥ θ·ΣT_d + (1−θ)·ΣT_v for 0 ≤ θ ≤ 1: the prefix's part plus the least part of any suffix, a
      shortest path over suffixes; θ weighs the least drain (last verification) too, 1−θ round 1 up to its end;
    - the prefix's first drafts, or its round 1, plus the least possible largest loop of a suffix (a bottleneck path);
    - the KV cache: the prefix's plus that of batches of one must fit.

    These improve N·max(Σd, Σv, max(d+v)) of the prefix by the unavoidable rest of the suffix and by filling and
    draining. ``starts``: partitions (rows) tried first, e.g. the dynamic programming's. At ``node_limit`` expanded
    prefixes the search stops, with ``proved=False`` and the bound that still holds. No partition fits: batches of one.
    """
    times = contiguous_times(instance, draft_length)
    search = _Search(instance, times, draft_length, node_limit)
    count = len(instance.tasks)
    for rows in (*starts, (row_of(0, count - 1),) if count else (), singletons(count)):
        search.offer(rows)
    root = search.bound(PathBounds.empty(1), 0.0, 0)
    if count:
        search.expand((), PathBounds.empty(1), 0.0)
    rows = search.best if search.best is not None else singletons(count)
    value = partition_inference_s(times, rows)
    proved = search.nodes < node_limit
    return ExactResult(Partition(rows, value), value if proved else min(value, float(root[0])), search.nodes, proved)


def contiguous_bound_s(instance: PipelineInstance, draft_length: int) -> float:
    """Return a lower bound on T_inf of every contiguous partition, pipelined or not, whatever the memory; K ≥ 1."""
    search = _Search(instance, contiguous_times(instance, draft_length), draft_length, 0)
    return float(search.bound(PathBounds.empty(1), -math.inf, 0)[0])


@dataclass
class _Search:
    instance: PipelineInstance
    times: BatchTimes
    draft_length: int
    node_limit: int
    best: tuple[int, ...] | None = None
    best_s: float = math.inf
    nodes: int = 0
    terms: PathTerms = field(init=False)
    kv: FloatArray = field(init=False)
    suffixes: _Suffixes = field(init=False)

    def __post_init__(self) -> None:
        self.terms = PathTerms.of(self.times)
        self.kv = contiguous_kv_tokens(self.instance, self.times)
        self.room = self.instance.kv_room_tokens(self.draft_length)
        self.count = len(self.instance.tasks)
        self.suffixes = _suffixes(self.terms, self.kv, self.count)
        #: rows of the batches that start at task i: i..i, i..i+1, ...
        self.rows_from = [np.array([row_of(i, j) for j in range(i, self.count)], np.int64) for i in range(self.count)]

    def offer(self, rows: tuple[int, ...]) -> None:
        """Take the partition if it fits and is the best so far."""
        if self.kv[list(rows)].sum() <= self.room:
            value = partition_inference_s(self.times, rows)
            if self.best is None or value < self.best_s:
                self.best, self.best_s = rows, value

    def bound(self, paths: PathBounds, held: FloatArray | float, first: int | IntArray) -> FloatArray:
        """Return the lower bound of prefixes that leave the tasks ``first``..K; inf if the memory cannot hold."""
        rest, suffix = np.asarray(first, dtype=np.int64), self.suffixes
        drain = np.where(rest < self.count, suffix.verify_last_s[rest], paths.tail_s)
        loops = (
            paths.draft_first_sum_s + suffix.loop_s[rest],
            paths.first_end_s + suffix.loop_from_mbs_s[rest],
            paths.along_sbs_s + suffix.draft_after_first_s[rest] + drain,
        )
        result = np.maximum.reduce((paths.bound_s, *loops))
        drafting = paths.draft_first_sum_s + paths.second_sum_s + paths.draft_later_s + drain
        for theta, mixed in zip(_MIXES, suffix.mixed_s, strict=True):
            parts = [weight * path for weight, path in ((theta, drafting), (1 - theta, paths.along_mbs_s)) if weight]
            result = np.maximum(result, sum(parts, mixed[rest]))  # no weight 0: a link down makes paths infinite
        return np.where(np.asarray(held) + suffix.kv_tokens[rest] > self.room, math.inf, result)

    def expand(self, prefix: tuple[int, ...], paths: PathBounds, held: float) -> None:
        """Try every next batch of a prefix, the most promising first."""
        self.nodes += 1
        first = (math.isqrt(8 * prefix[-1] + 1) + 1) // 2 if prefix else 0
        rows = self.rows_from[first]
        children = paths.extend(self.terms.take(rows))
        bounds = self.bound(children, held + self.kv[rows], np.arange(first + 1, self.count + 1))
        for child in np.argsort(bounds, kind="stable").tolist():
            if self.nodes >= self.node_limit or not bounds[child] * (1 + ROUNDING) < self.best_s:
                return
            grown = (*prefix, int(rows[child]))
            if first + child + 1 == self.count:
                self.offer(grown)
            else:
                self.expand(grown, children.take(child), held + float(self.kv[rows[child]]))


def _suffixes(terms: PathTerms, kv: FloatArray, count: int) -> _Suffixes:
    draft_after = terms.draft_second_s + terms.draft_later_s
    draft, verify = terms.draft_first_s + draft_after, terms.verify_first_s + terms.verify_later_s
    from_mbs = terms.verify_first_s + terms.loop_later_s
    loops = (terms.draft_first_s + terms.to_mbs_s + from_mbs, from_mbs)
    sums = [theta * draft + (1 - theta) * verify for theta in _MIXES] + [draft_after, kv]
    least, largest = np.zeros((len(sums), count + 1)), np.zeros((len(loops), count + 1))
    drain = np.zeros(count + 1)
    for first in range(count - 1, -1, -1):
        rows = np.array([row_of(first, last) for last in range(first, count)], dtype=np.int64)
        rest = slice(first + 1, count + 1)
        for values, cost in zip(least, sums, strict=True):
            values[first] = (cost[rows] + values[rest]).min()
        for values, cost in zip(largest, loops, strict=True):
            values[first] = np.maximum(cost[rows], values[rest]).min()
        drain[first] = np.append(drain[first + 1 : count], terms.verify_last_s[rows[-1]]).min()
    mixes = len(_MIXES)
    return _Suffixes(least[:mixes], least[mixes], largest[0], largest[1], least[mixes + 1], drain)
