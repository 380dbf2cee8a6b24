"""Replay of a recorded trace."""

# ruff: noqa: ARG002 (some laws of a family do not need all of the contract's arguments)

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from balancesim.checks import not_negative, positive
from balancesim.lengths.sizes import Sizes
from balancesim.streams import Streams
from balancesim.trace_formats import TraceError, TraceRows, load_trace
from balancesim.units import FloatArray


@dataclass(frozen=True)
class RecordedArrivals:
    """Arrivals of one replication as recorded, with the sizes of the same requests."""

    arrival_s: FloatArray
    sizes: Sizes
    mean_rate_hz: float

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps between arrivals, the first from time 0; ends with the record."""
        return iter(np.diff(self.arrival_s, prepend=0.0).tolist())


@dataclass(frozen=True)
class TraceReplay:
    """Replay of a trace: a window of it for each replication, thinned or sped up if asked.

    Replication r replays [start + r·length, start + (r+1)·length) of the trace (``windows = "next"``) or always the
    first window (``"same"``). Without ``length_s`` the window is as long as the horizon needs: horizon·rate_scale.
    Time runs ``rate_scale`` times as fast; ``keep_share`` keeps each request with that chance (stream "thinning").
    Where a file knows its times to coarse ticks only (Mooncake's conversation trace: 3 s), ``spread_ticks`` spreads
    the requests of a tick uniformly over it (stream "spreading"), in their order.
    """

    name: ClassVar[str] = "trace"

    file: str  #: a trace's name (traces/README.md) or a path
    start_s: float = 0.0
    length_s: float | None = None  #: in the trace's time
    windows: Literal["next", "same"] = "next"
    keep_share: float = 1.0
    rate_scale: float = 1.0
    spread_ticks: bool = True

    def __post_init__(self) -> None:
        not_negative(start_s=self.start_s)
        positive(rate_scale=self.rate_scale, keep_share=self.keep_share)
        if self.length_s is not None:
            positive(length_s=self.length_s)
        if self.keep_share > 1:
            raise ValueError(f"keep_share must be at most 1, got {self.keep_share}")
        if self.windows not in ("next", "same"):
            raise ValueError(f"windows must be next or same, got {self.windows!r}")

    @property
    def mean_rate_hz(self) -> float:
        """Arrivals per second over the trace from ``start_s`` on. Reads the file."""
        rows = load_trace(self.file)
        left_s = rows.duration_s - self.start_s
        count = len(rows.arrival_s) - int(np.searchsorted(rows.arrival_s, self.start_s))
        return count / left_s * self.keep_share * self.rate_scale if left_s > 0 else 0.0

    def interarrivals_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Return the gaps of the whole trace from ``start_s`` on (a run replays `for_replication` instead)."""
        rows = load_trace(self.file)
        return self._cut(rows, self.start_s, math.inf, (rng, rng)).interarrivals_s(rng)

    def replications(self, horizon_s: float) -> int:
        """Return how many whole windows the trace has from ``start_s`` on. Reads the file."""
        rows = load_trace(self.file)
        # a window may be over by rounding: 2400 s hold four of 600 s
        return max(0, math.floor((rows.duration_s - self.start_s) / self._length_s(horizon_s) + 1e-9))

    def for_replication(self, streams: Streams, horizon_s: float) -> RecordedArrivals:
        """Return the requests of one replication.

        Raises:
            TraceError: the trace has no window left for it, or no request in it.
        """
        rows = load_trace(self.file)
        length_s = self._length_s(horizon_s)
        if length_s / self.rate_scale < horizon_s * (1 - 1e-9):
            raise TraceError(
                f"length_s must cover the horizon: {horizon_s:g} s at rate_scale {self.rate_scale:g} need "
                f"{horizon_s * self.rate_scale:g} s of the trace, got {length_s:g}"
            )
        window = streams.replication if self.windows == "next" else 0
        fitting = self.replications(horizon_s)
        if window >= fitting:
            raise TraceError(
                f"{rows.path.name}: replication {window} needs the trace from {self.start_s + window * length_s:g} s "
                f"to {self.start_s + (window + 1) * length_s:g} s, but it ends at {rows.duration_s:g} s: "
                f'{fitting} replications fit; ask for fewer, shorten the horizon, or set windows = "same"'
            )
        start_s = self.start_s + window * length_s
        rngs = (streams.sequential("spreading"), streams.sequential("thinning"))
        return self._cut(rows, start_s, length_s, rngs)

    def _length_s(self, horizon_s: float) -> float:
        return horizon_s * self.rate_scale if self.length_s is None else self.length_s

    def _cut(
        self, rows: TraceRows, start_s: float, length_s: float, rngs: tuple[np.random.Generator, np.random.Generator]
    ) -> RecordedArrivals:
        spreading, thinning = rngs
        times_s = rows.arrival_s
        if rows.tick_s > 0 and self.spread_ticks:
            # ticks do not overlap, so sorting keeps every request within its own
            ticks = np.rint(times_s / rows.tick_s)
            times_s = np.sort((ticks + spreading.random(len(times_s))) * rows.tick_s)
        first, end = np.searchsorted(times_s, (start_s, start_s + length_s))
        kept = first + np.flatnonzero(thinning.random(int(end - first)) < self.keep_share)
        if not len(kept):
            raise TraceError(
                f"{rows.path.name}: must have requests from {start_s:g} s to {start_s + length_s:g} s, got none"
            )
        sizes = Sizes(rows.prompt_tokens, rows.output_tokens, rows.task, rows.prefix_blocks).take(kept)
        covered_s = min(length_s, rows.duration_s - start_s) or math.inf
        rate_hz = len(kept) / covered_s * self.rate_scale
        return RecordedArrivals((times_s[kept] - start_s) / self.rate_scale, sizes, rate_hz)
