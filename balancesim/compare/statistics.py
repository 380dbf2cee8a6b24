"""Intervals over replications. Each replication gives one value; requests of one run are not independent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95  #: of every interval printed


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over replications with its confidence interval; the bounds are NaN below two replications."""

    mean: float
    low: float
    high: float
    replications: int


def student_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the mean of independent values and its Student-t interval.

        mean ± t_{n−1, (1+level)/2} · s / √n,      s² = Σ (x_i − mean)² / (n − 1)

    Values that are NaN (a metric that is not defined in a run) are left out and lower n. For paired differences pass
    the differences: they are one value a replication too.
    """
    from scipy.special import stdtrit

    known = np.array([value for value in values if not math.isnan(value)])
    count = len(known)
    if count == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    mean = float(known.mean())
    if count == 1:
        return Interval(mean, math.nan, math.nan, 1)
    half = float(stdtrit(count - 1, (1 + level) / 2)) * float(known.std(ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)
