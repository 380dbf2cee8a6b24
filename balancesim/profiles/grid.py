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
    """t(x) ≥ 0, non-decreasing: linear between nodes, held below the first.

    Beyond the last node x_n it keeps the mean slope of the upper half, (t(x_n) − t(x_n/2))/(x_n/2): the slope of the
    last two nodes alone is mostly noise of the measurement.
    """

    name: str  #: for messages, "dense"
    axis: FloatArray  #: shape (n,)
    times: FloatArray  #: seconds, shape (n,)
    last: float = field(init=False)  #: largest node
    slope: float = field(init=False)  #: seconds a unit of x beyond the largest node
    _nodes: list[float] = field(init=False, repr=False)
    _seconds: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_axis(f"{self.name} axis", self.axis)
        _check_times(f"{self.name} time", self.times)
        object.__setattr__(self, "_nodes", self.axis.tolist())
        object.__setattr__(self, "_seconds", self.times.tolist())
        object.__setattr__(self, "last", self._nodes[-1])
        half = self.last / 2
        middle, height = max(half, self._nodes[0]), float(np.interp(half, self.axis, self.times))
        object.__setattr__(self, "slope", (self._seconds[-1] - height) / (self.last - middle))

    def at(self, x: Numeric) -> Numeric:
        """Return seconds at ``x``, elementwise."""
        if not isinstance(x, np.ndarray):
            return self._at_number(float(x))
        inside: Numeric = np.interp(x, self.axis, self.times)
        if x.max() <= self.last:
            return inside
        return inside + self.slope * np.maximum(x - self.last, 0.0)

    def _at_number(self, x: float) -> float:
        nodes, seconds = self._nodes, self._seconds
        if x <= nodes[0]:
            return seconds[0]
        if x >= self.last:
            return seconds[-1] + self.slope * (x - self.last)
        index = bisect_right(nodes, x)
        low = nodes[index - 1]
        start = seconds[index - 1]
        return start + (seconds[index] - start) * ((x - low) / (nodes[index] - low))


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """t(x, y) ≥ 0, non-decreasing in both: bilinear, held below the first nodes, scaled along the ray beyond the last.

    Both axes are sums of work, so a batch beyond the last nodes X, Y is one of r times the size of a batch at the
    border of the table with the same proportions: t(x, y) = r·t(x/r, y/r), r = max(x/X, y/Y). Where t at the border
    grows faster than in proportion (t/y rises along x = X) that could fall in x; so the time beyond is the largest on
    the way there,

        t(x, y) = max over 1 ≤ ρ ≤ r of ρ·t(min(x/ρ, X), min(y/ρ, Y)),

    which rises in both (each term does, and so does r), joins the table continuously (r = 1) and is the value of the
    ray wherever the border grows at most in proportion. Not growing each axis by its own ratio: twice the requests of
    the same length double Σ s and Σ s², and take twice the time, not four times.
    """

    name: str
    first: FloatArray  #: x, shape (n,)
    second: FloatArray  #: y, shape (m,)
    times: FloatArray  #: seconds, shape (n, m)
    last: tuple[float, float] = field(init=False)  #: largest nodes
    _nodes: list[float] = field(init=False, repr=False)
    #: the borders x = X (against y) and y = Y (against x)
    _borders: tuple["_Border", "_Border"] = field(init=False, repr=False)

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
        object.__setattr__(
            self, "_borders", (_Border(self.second, self.times[-1]), _Border(self.first, self.times[:, -1]))
        )

    def at(self, x: Numeric, y: Numeric) -> Numeric:
        """Return seconds at ``(x, y)``, elementwise (numpy broadcasting)."""
        # Decoding at a constant batch is the inner loop: blend two rows once, then interpolate in one dimension.
        inside: Numeric
        inside = self._bilinear(x, y) if isinstance(x, np.ndarray) else np.interp(y, self.second, self._row(float(x)))
        beyond_x, beyond_y = (peak(value) > last for value, last in zip((x, y), self.last, strict=True))
        if not (beyond_x or beyond_y):
            return inside
        ratio_x, ratio_y = x / self.last[0], y / self.last[1]
        result = np.asarray(inside)
        if beyond_x:
            at_last_x = self._borders[0].grown(np.maximum(ratio_x, 1.0), y)
            result = np.where((ratio_x > 1.0) & (ratio_x >= ratio_y), at_last_x, result)
        if beyond_y:
            at_last_y = self._borders[1].grown(np.maximum(ratio_y, 1.0), x)
            result = np.where((ratio_y > 1.0) & (ratio_y > ratio_x), at_last_y, result)
        return result if result.ndim else float(result)

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


class _Border:
    """The edge of a surface where one axis is at its last node: times against the other axis."""

    __slots__ = ("axis", "steep_nodes", "times")

    def __init__(self, axis: FloatArray, times: FloatArray) -> None:
        self.axis, self.times = axis, times
        positive = axis > 0
        rises = np.diff(times[positive] / axis[positive]) > 0
        #: nodes at which ρ·t(value/ρ) may peak between ρ = 1 and r: none if the time per unit never rises
        self.steep_nodes: list[float] = axis[positive].tolist() if np.any(rises) else []

    def grown(self, ratio: Numeric, value: Numeric) -> FloatArray:
        """Return max over 1 ≤ ρ ≤ ratio of ρ·t(value/ρ): linear in ρ between nodes, so they are the candidates."""
        best: FloatArray = np.asarray(ratio * np.interp(value / ratio, self.axis, self.times))
        for node in self.steep_nodes:
            rho = np.clip(value / node, 1.0, ratio)
            best = np.maximum(best, rho * np.interp(value / rho, self.axis, self.times))
        return best


def _locate(axis: FloatArray, value: Numeric) -> tuple[np.typing.NDArray[np.intp], FloatArray]:
    """Return the cell of each value and its relative place in it, both held to the table."""
    index = np.clip(np.searchsorted(axis, value, side="right") - 1, 0, len(axis) - 2)
    low = axis[index]
    return index, np.clip((np.asarray(value) - low) / (axis[index + 1] - low), 0.0, 1.0)
