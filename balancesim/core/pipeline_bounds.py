"""Lower bounds on the completion time of a pipeline, cheap enough for every step of a search (model.md §7)."""

import math
from dataclasses import dataclass

import numpy as np

from balancesim.core.pipeline_times import BatchTimes
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True)
class PathTerms:
    """What `PathBounds` needs of every batch of a `BatchTimes`, computed once; shape (B,)."""

    draft_first_s: FloatArray  #: T_d(1)
    verify_first_s: FloatArray  #: T_v(1)
    draft_second_s: FloatArray  #: T_d(2); 0 if N = 1
    draft_later_s: FloatArray  #: Σ_{n≥3} T_d
    verify_later_s: FloatArray  #: Σ_{n≥2} T_v
    verify_last_s: FloatArray  #: T_v(N)
    to_mbs_s: FloatArray  #: f
    to_sbs_s: FloatArray  #: r; −inf if N = 1: no verdict is waited for
    loop_later_s: FloatArray  #: Σ_{n≥2} (r + T_d + f + T_v): the own loop after the first verification

    @classmethod
    def of(cls, times: BatchTimes) -> "PathTerms":
        """Return the terms of all batches of ``times``."""
        many = times.rounds > 1
        second = times.draft_knots_s @ times.draft_weights[0] if many else np.zeros(len(times.sizes))
        draft_after_first, verify_later = (
            times.draft_sum_s - times.draft_first_s,
            times.verify_sum_s - times.verify_first_s,
        )
        crossings = (times.rounds - 1) * (times.to_mbs_s + times.to_sbs_s) if many else 0.0
        return cls(
            draft_first_s=times.draft_first_s,
            verify_first_s=times.verify_first_s,
            draft_second_s=second,
            draft_later_s=draft_after_first - second,
            verify_later_s=verify_later,
            verify_last_s=times.verify_last_s,
            to_mbs_s=times.to_mbs_s,
            to_sbs_s=times.to_sbs_s if many else np.full(len(times.sizes), -math.inf),
            loop_later_s=draft_after_first + verify_later + crossings,
        )

    def take(self, rows: IntArray | slice) -> "PathTerms":
        """Return the terms of some batches."""
        return PathTerms(**{name: column[rows] for name, column in vars(self).items()})


@dataclass(frozen=True)
class PathBounds:
    """Lower bounds on T_inf of many sequences of batches at once, extended batch by batch in O(1) each.

    T_inf is the longest path through the schedule's event graph (every max in the recursion picks the later of its
    predecessors), so the length of *any* path bounds it from below. Round 1 has no feedback, so its ends
    V(1,m) = max(Σ_{i≤m} T_d(1,i) + f_m, V(1,m−1)) + T_v(1,m) are exact. From there the paths go on

    - along the MBS:                    V(1,M) + Σ_{n≥2} Σ_m T_v(n,m)
    - along the SBS:                    max( Σ_i T_d(1,i) + Σ_i T_d(2,i),  max_m V(1,m) + r_m + Σ_{i≥m} T_d(2,i) )
                                        + Σ_{n≥3} Σ_m T_d(n,m) + f_M + T_v(N,M)
    - around one batch's own loop:      max_m V(1,m) + Σ_{n≥2} (r + T_d + f + T_v)(n,m) + Σ_{i>m} T_v(N,i)

    Each is at least its term of N·max(Σd, Σv, max(d+v)), the bound for equal rounds without prefills, and adds the
    prefills, the filling and the draining of the pipeline. For equal rounds those three circuits are the only critical
    ones (all of one round), so the bound misses T_inf by a part of a round or so, whatever N.
    """

    draft_first_sum_s: FloatArray  #: Σ_i T_d(1,i)
    first_end_s: FloatArray  #: V(1,M)
    second_sum_s: FloatArray  #: Σ_i T_d(2,i)
    around_s: FloatArray  #: max_m V(1,m) + r_m + Σ_{i≥m} T_d(2,i)
    draft_later_s: FloatArray  #: Σ_{n≥3} Σ_m T_d
    verify_later_s: FloatArray  #: Σ_{n≥2} Σ_m T_v
    loop_s: FloatArray  #: the third path, the best m so far
    tail_s: FloatArray  #: crossing and last verification of the last batch

    @classmethod
    def empty(cls, count: int) -> "PathBounds":
        """Return the bounds of ``count`` empty sequences."""
        return cls(*(np.zeros(count) for _ in range(8)))

    @property
    def along_sbs_s(self) -> FloatArray:
        """The second path without crossing and last verification."""
        return np.maximum(self.draft_first_sum_s + self.second_sum_s, self.around_s) + self.draft_later_s

    @property
    def along_mbs_s(self) -> FloatArray:
        """The first path."""
        return self.first_end_s + self.verify_later_s

    @property
    def bound_s(self) -> FloatArray:
        """The bounds for the batches so far."""
        return np.maximum(np.maximum(self.along_sbs_s + self.tail_s, self.along_mbs_s), self.loop_s)

    def take(self, index: slice | int) -> "PathBounds":
        """Return some of the sequences."""
        index = index if isinstance(index, slice) else slice(index, index + 1)
        return PathBounds(**{name: column[index] for name, column in vars(self).items()})

    def put(self, index: int, other: "PathBounds") -> None:
        """Overwrite one sequence by the only one of ``other``."""
        for name, column in vars(self).items():
            column[index] = getattr(other, name)[0]

    def extend(self, batch: PathTerms) -> "PathBounds":
        """Return the bounds after appending batches, elementwise (one sequence or one batch is broadcast)."""
        drafted = self.draft_first_sum_s + batch.draft_first_s
        first_end = np.maximum(drafted + batch.to_mbs_s, self.first_end_s) + batch.verify_first_s
        around = np.maximum(self.around_s, first_end + batch.to_sbs_s) + batch.draft_second_s
        return PathBounds(
            draft_first_sum_s=drafted,
            first_end_s=first_end,
            second_sum_s=self.second_sum_s + batch.draft_second_s,
            around_s=around,
            draft_later_s=self.draft_later_s + batch.draft_later_s,
            verify_later_s=self.verify_later_s + batch.verify_later_s,
            loop_s=np.maximum(self.loop_s + batch.verify_last_s, first_end + batch.loop_later_s),
            tail_s=batch.to_mbs_s + batch.verify_last_s + 0.0 * drafted,
        )
