"""Monotone piecewise linear interpolation in measured tables, few numpy operations a call."""

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from balancesim.units import FloatArray, Numeric


def _check_axis(name: str, axis: FloatArray) -> None:
    if len(axis) < 2:
        raise ValueError(f"{name} must have at least 2 nodes, got {len(axis)}")
    if not np.all(np.isfinite(axis)) or axis[0] < 0:
        raise ValueError(f"{name} must be finite and at least 0, got {axis[~np.isfinite(axis) | (axis < 0)][0]:g}")
    steps = np.diff(axis)
    if np.any(steps <= 0):
        at = int(np.argmax(steps <= 0))
        raise ValueError(f"{name} must rise, got {axis[at + 1]:g} after {axis[at]:g}; sort the rows, drop repeats")


def _check_times(name: str, times: FloatArray) -> None:
    if np.any(np.isnan(times)):
        raise ValueError(f"{name} must be a number, got NaN; leave out failed measurements")
    if np.any(times < 0) or not np.all(np.isfinite(times)):
        bad = times[(times < 0) | ~np.isfinite(times)].flat[0]
        raise ValueError(f"{name} must be finite and at least 0 s, got {bad:g}")
    for axis in range(times.ndim):
        if np.any(np.diff(times, axis=axis) < 0):
            raise ValueError(
                f"{name} must not fall along axis {axis + 1} (more work never takes less time), it does by "
                f"{-np.diff(times, axis=axis).min():.3g} s; smooth the table with python -m balancesim.profile_formats"
            )


def peak(value: Numeric) -> float:
    """Return the largest element. Numbers skip numpy, whose calls cost more than the whole interpolation."""
    return float(value.max()) if isinstance(value, np.ndarray) else float(value)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """t(x) ≥ 0, non-decreasing: linear between nodes, held below the first, the last slope kept beyond the last."""

    name: str  #: for messages, "dense"
    axis: FloatArray  #: shape (n,)
    times: FloatArray  #: seconds, shape (n,)
    last: float = field(init=False)  #: largest node
    _nodes: list[float] = field(init=False, repr=False)
    _seconds: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_axis(f"{self.name} axis", self.axis)
        _check_times(f"{self.name} time", self.times)
        object.__setattr__(self, "_nodes", self.axis.tolist())
        object.__setattr__(self, "_seconds", self.times.tolist())
        object.__setattr__(self, "last", self._nodes[-1])

    def at(self, x: Numeric) -> Numeric:
        """Return seconds at ``x``, elementwise."""
        if not isinstance(x, np.ndarray):
            return self._at_number(float(x))
        inside: Numeric = np.interp(x, self.axis, self.times)
        if x.max() <= self.last:
            return inside
        slope = (self._seconds[-1] - self._seconds[-2]) / (self.last - self._nodes[-2])
        return inside + slope * np.maximum(x - self.last, 0.0)

    def _at_number(self, x: float) -> float:
        nodes, seconds = self._nodes, self._seconds
        if x <= nodes[0]:
            return seconds[0]
        index = min(bisect_right(nodes, x), len(nodes) - 1)
        low = nodes[index - 1]
        start = seconds[index - 1]
        return start + (seconds[index] - start) * ((x - low) / (nodes[index] - low))


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """t(x, y) ≥ 0, non-decreasing in both: bilinear, held below the first nodes, proportional beyond the last ones.

    Beyond the last node of an axis the time grows in proportion, t(x_n, y)·x/x_n: continuing the bilinear form there
    could fall in the other axis.
    """

    name: str
    first: FloatArray  #: x, shape (n,)
    second: FloatArray  #: y, shape (m,)
    times: FloatArray  #: seconds, shape (n, m)
    last: tuple[float, float] = field(init=False)  #: largest nodes
    _nodes: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_axis(f"{self.name} first axis", self.first)
        _check_axis(f"{self.name} second axis", self.second)
        if self.times.shape != (len(self.first), len(self.second)):
            raise ValueError(
                f"{self.name} times must have shape {(len(self.first), len(self.second))}, got {self.times.shape}"
            )
        _check_times(f"{self.name} time", self.times)
        object.__setattr__(self, "_nodes", self.first.tolist())
        object.__setattr__(self, "last", (float(self.first[-1]), float(self.second[-1])))

    def at(self, x: Numeric, y: Numeric) -> Numeric:
        """Return seconds at ``(x, y)``, elementwise (numpy broadcasting)."""
        # Decoding at a constant batch is the inner loop: blend two rows once, then interpolate in one dimension.
        inside: Numeric
        inside = self._bilinear(x, y) if isinstance(x, np.ndarray) else np.interp(y, self.second, self._row(float(x)))
        for value, last in zip((x, y), self.last, strict=True):
            if peak(value) > last:
                inside = inside * np.maximum(np.divide(value, last), 1.0)
        return inside

    def _row(self, x: float) -> FloatArray:
        nodes = self._nodes
        index = min(max(bisect_right(nodes, x) - 1, 0), len(nodes) - 2)
        weight = (x - nodes[index]) / (nodes[index + 1] - nodes[index])
        if weight <= 0.0:
            row: FloatArray = self.times[index]
        elif weight >= 1.0:
            row = self.times[index + 1]
        else:
            row = self.times[index] + weight * (self.times[index + 1] - self.times[index])
        return row

    def _bilinear(self, x: Numeric, y: Numeric) -> FloatArray:
        i, u = _locate(self.first, x)
        j, v = _locate(self.second, y)
        times = self.times
        lower = times[i, j] + v * (times[i, j + 1] - times[i, j])
        upper = times[i + 1, j] + v * (times[i + 1, j + 1] - times[i + 1, j])
        result: FloatArray = lower + u * (upper - lower)
        return result


def _locate(axis: FloatArray, value: Numeric) -> tuple[np.typing.NDArray[np.intp], FloatArray]:
    """Return the cell of each value and its relative place in it, both held to the table."""
    index = np.clip(np.searchsorted(axis, value, side="right") - 1, 0, len(axis) - 2)
    low = axis[index]
    return index, np.clip((np.asarray(value) - low) / (axis[index + 1] - low), 0.0, 1.0)
