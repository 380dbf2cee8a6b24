"""One GPU shared by lanes: a lane hands in GPU work and is called back when the GPU has done it.

The GPU is the only place where GPU seconds become wall-clock seconds. An event is scheduled per piece of work, never
per slice or per step: the service curve (`core.service_curve`) says when the work will be done, and the event is
scheduled anew only when a lane wakes, falls idle, or the shares change.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import simpy

from balancesim.core.service_curve import UNUSED, Hold, Rotation, ServiceCurve, Timeline
from balancesim.core.slicing import Layout, Slicing

_DONE_S = 1e-12  #: GPU seconds that count as nothing


@dataclass(slots=True)
class _Job:
    """Work of one lane in progress: received so far = ``received_s`` + what ``curve`` has given until now."""

    work_s: float
    done: Callable[[], None]
    curve: ServiceCurve
    received_s: float = 0.0
    switching_s: float = 0.0
    version: int = 0  #: of the event that ends it; an older event is stale
    ended: bool = False  #: done is being called; the lane counts as busy until it returns


class Gpu:
    """A time-sliced GPU. A lane has at most one job at a time; a lane with a job is busy."""

    def __init__(self, env: simpy.Environment, slicing: Slicing) -> None:
        self._env = env
        self._slicing = slicing
        self._layout = Layout((), (0.0,))
        self._shares: dict[int, float] | None = None  #: given last
        self._next_layout: Layout | None = None
        self._change_s = math.inf
        self._jobs: dict[int, _Job] = {}
        self._timeline: Timeline | None = None
        self._hold: Hold = UNUSED

    def set_shares(self, shares: Mapping[int, float]) -> None:
        """Give the lanes new shares, from the next window on, or at once where the GPU is idle or fluid."""
        if shares == self._shares:  # most epochs change nothing
            return
        self._shares = dict(shares)
        layout = Layout.of(shares, self._slicing)
        if layout == (self._next_layout or self._layout):
            return
        self._settle()
        in_force = any(lane_id in self._layout.lane_ids for lane_id in self._jobs)
        if not in_force or self._slicing.slice_s == 0:
            self._layout, self._next_layout, self._change_s = layout, None, math.inf
        else:
            if self._next_layout is None:
                self._change_s = self._window_end_s()
            self._next_layout = layout
        self._retime()

    def run(self, lane_id: int, work_s: float, done: Callable[[], None]) -> None:
        """Start a job of ``work_s`` GPU seconds; ``done`` is called when they have been received."""
        job = self._jobs.get(lane_id)
        if job is not None and job.ended:  # the lane stays busy, so the timeline holds
            now = self._env.now
            job = _Job(work_s, done, job.curve, -job.curve.received_s(now), -job.curve.switching_s(now))
            self._jobs[lane_id] = job
            self._schedule(lane_id, job)
            return
        if job is not None:
            raise RuntimeError(f"lane {lane_id} already has a job")
        self._settle()
        self._jobs[lane_id] = _Job(work_s, done, ServiceCurve((), math.inf, math.inf, 0.0, 0.0))
        self._retime()

    def cut(self, lane_id: int, work_s: float) -> None:
        """Change the work of the lane's job to ``work_s`` (not below what it has received)."""
        job = self._jobs[lane_id]
        job.work_s = work_s
        self._schedule(lane_id, job)

    def received_s(self, lane_id: int) -> float:
        """Return the GPU time that the lane's job has received."""
        job = self._jobs[lane_id]
        return job.received_s + job.curve.received_s(self._env.now)

    def switching_s(self, lane_id: int) -> float:
        """Return the time lost to switches to the lane since its job began."""
        job = self._jobs[lane_id]
        return job.switching_s + job.curve.switching_s(self._env.now)

    def _window_end_s(self) -> float:
        """Return the end of the window (of whichever lane) that is in progress."""
        every_window = Rotation.of(self._layout, frozenset(self._layout.lane_ids), self._slicing)
        if every_window.endless:  # one lane: its window ends with the period
            period_s = self._slicing.slice_s
            return (math.floor(self._env.now / period_s + 1e-9) + 1) * period_s
        return every_window.hold_at(self._env.now)[1]

    def _settle(self) -> None:
        """Bring the state up to now: work received, the hold in progress, shares that have come into force."""
        now = self._env.now
        if self._timeline is not None and now > self._timeline.lead[0].from_s:  # else its first owner never ran
            self._hold = self._timeline.hold_at(now)
        for job in self._jobs.values():
            job.received_s += job.curve.received_s(now)
            job.switching_s += job.curve.switching_s(now)
            job.curve = ServiceCurve((), math.inf, math.inf, 0.0, 0.0)
        if self._next_layout is not None and now >= self._change_s:
            self._layout, self._next_layout, self._change_s = self._next_layout, None, math.inf

    def _retime(self) -> None:
        """Start a new timeline and schedule the end of every job anew."""
        self._timeline = None
        busy = frozenset(self._jobs)
        if self._next_layout is not None and busy.isdisjoint(self._layout.lane_ids):
            self._layout, self._next_layout, self._change_s = self._next_layout, None, math.inf
        if not busy:
            return
        layouts = (self._layout,) if self._next_layout is None else (self._layout, self._next_layout)
        rotations = tuple(Rotation.of(layout, busy, self._slicing) for layout in layouts)
        self._timeline = Timeline.start(self._env.now, rotations, self._change_s, self._hold, self._slicing)
        for lane_id, job in self._jobs.items():
            job.curve = self._timeline.curve(lane_id)
            self._schedule(lane_id, job)

    def _schedule(self, lane_id: int, job: _Job) -> None:
        if job.ended:
            return
        job.version += 1
        version = job.version
        left_s = job.work_s - job.received_s
        # Work whose last event fell on the very instant of a change is done; rounding must not cost it a window.
        end_s = job.curve.finish_s(left_s) if left_s > _DONE_S else self._env.now
        if math.isinf(end_s):
            raise RuntimeError(f"lane {lane_id} has work but no share of the GPU")

        def ended(_: simpy.Event) -> None:
            if job.version == version and not job.ended:
                self._finish(lane_id, job)

        timeout = self._env.timeout(max(0.0, end_s - self._env.now))
        timeout.callbacks.append(ended)

    def _finish(self, lane_id: int, job: _Job) -> None:
        """End a job; the lane stays busy when ``done`` hands in the next one."""
        job.ended = True
        job.done()
        if self._jobs[lane_id] is job:
            self._settle()
            del self._jobs[lane_id]
            self._retime()
