"""Time slicing of one GPU between lanes: who owns it when, and when a lane has received a given amount of GPU time.

Time is cut in periods of ``slice_s`` from t = 0; each lane owns a window of every period, in proportion to its share
(model.md §6, §10). With ``work_conserving`` the window of an idle lane goes to the busy lane before it in the cycle,
which yields as soon as the owner wakes; otherwise it is lost, as in [P1]. Every actual change of owner costs
``switch_s``. ``slice_s = 0`` is fluid sharing, the papers' C/share.

Between two changes of the set of busy lanes or of the shares, ownership repeats with the period, after a *lead* of at
most two cut windows. So a lane's service curve W(t), and its inverse, have closed forms: no event per slice is needed.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass

from balancesim.core.slicing import Layout, Slicing

_EDGE = 1e-9  #: share of a period within which an instant counts as lying on a window's edge (rounding of k·P)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Who owns the GPU over a period while the set of busy lanes stays: cyclic (start, owner); None = nobody."""

    period_s: float
    starts: tuple[float, ...]  #: seconds from the start of the period, ascending
    owners: tuple[int | None, ...]
    cost_s: float  #: switch cost at every start; 0 when a single lane runs

    @staticmethod
    def of(layout: Layout, busy: frozenset[int], slicing: Slicing) -> "Rotation":
        """Return the ownership of a period for the given busy lanes."""
        owned: list[tuple[float, int | None]] = []
        for edge, lane_id in zip(layout.edges, layout.lane_ids, strict=False):
            if lane_id in busy:
                owned.append((edge, lane_id))
            elif not slicing.work_conserving:
                owned.append((edge, None))
        if not slicing.work_conserving and layout.edges[-1] < 1.0:
            owned.append((layout.edges[-1], None))
        runners = {lane_id for _, lane_id in owned if lane_id is not None}
        cost_s = slicing.switch_s if len(runners) > 1 else 0.0
        period_s = slicing.slice_s or 1.0
        return Rotation(period_s, tuple(e * period_s for e, _ in owned), tuple(o for _, o in owned), cost_s)

    @property
    def endless(self) -> bool:
        """True when one owner (or nobody) holds the GPU without interruption."""
        return len(self.owners) <= 1

    def length_s(self, index: int) -> float:
        """Length of the hold that begins at ``starts[index]``."""
        following = self.starts[index + 1] if index + 1 < len(self.starts) else self.starts[0] + self.period_s
        return following - self.starts[index]

    def hold_at(self, time_s: float) -> tuple[int | None, float]:
        """Return the owner at ``time_s`` and the end of its hold."""
        if self.endless:
            return (self.owners[0] if self.owners else None), math.inf
        index, start = self.locate(time_s)
        return self.owners[index], start + self.length_s(index)

    def locate(self, time_s: float) -> tuple[int, float]:
        """Return the index of the hold that contains ``time_s`` and the absolute time at which it began."""
        base = math.floor(time_s / self.period_s) * self.period_s
        index = bisect_right(self.starts, time_s - base + _EDGE * self.period_s) - 1
        if index < 0:
            return len(self.starts) - 1, base - self.period_s + self.starts[-1]
        if time_s - base + _EDGE * self.period_s >= self.starts[0] + self.period_s:
            return 0, base + self.period_s + self.starts[0]
        return index, base + self.starts[index]


@dataclass(frozen=True, slots=True)
class Hold:
    """One uninterrupted ownership of the GPU: ``ready_s`` is when the switch to it is paid and work begins."""

    owner: int | None
    from_s: float
    ready_s: float
    to_s: float
    last_runner: int | None  #: the owner, or who ran last when nobody owns it


#: State of a GPU that nobody has used yet: the first runner pays no switch.
UNUSED = Hold(None, 0.0, 0.0, math.inf, None)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Ownership from ``lead[0].from_s`` on: the cut windows of the lead, then the rotation for ever."""

    lead: tuple[Hold, ...]
    rotation: Rotation
    slicing: Slicing

    @staticmethod
    def start(
        now_s: float, rotations: tuple[Rotation, ...], change_s: float, before: Hold, slicing: Slicing
    ) -> "Timeline":
        """Return the timeline from ``now_s``.

        ``rotations`` is the one in force and, when shares change at the next window (``change_s``), the one after it.
        ``before`` is the hold in progress: its owner, if it stays, goes on without a switch.
        """
        lead: list[Hold] = []
        at_s = now_s
        for index, rotation in enumerate(rotations):
            owner, end_s = rotation.hold_at(at_s)
            if index + 1 < len(rotations):
                end_s = change_s
            before = _next_hold(owner, (at_s, end_s), before, slicing)
            lead.append(before)
            at_s = end_s
        # The lead ends with a runner's hold: from there on every start of the rotation is a real change of owner.
        while before.owner is None and math.isfinite(at_s):
            owner, end_s = rotations[-1].hold_at(at_s)
            before = _next_hold(owner, (at_s, end_s), before, slicing)
            lead.append(before)
            at_s = end_s
        return Timeline(tuple(lead), rotations[-1], slicing)

    def hold_at(self, time_s: float) -> Hold:
        """Return the hold in progress at ``time_s``."""
        for hold in self.lead:
            if time_s < hold.to_s:
                return hold
        rotation = self.rotation
        index, start = rotation.locate(time_s)
        owner = rotation.owners[index]
        runner = owner
        for back in range(1, len(rotation.owners)):
            if runner is not None:
                break
            runner = rotation.owners[index - back]
        ready_s = math.inf if owner is None else start + rotation.cost_s
        return Hold(owner, start, ready_s, start + rotation.length_s(index), runner)

    def curve(self, lane_id: int) -> "ServiceCurve":
        """Return the service curve of a busy lane."""
        rotation = self.rotation
        if self.slicing.slice_s == 0:
            rate = sum(rotation.length_s(i) for i, owner in enumerate(rotation.owners) if owner == lane_id)
            return ServiceCurve((), self.lead[0].from_s, 0.0, 0.0, 0.0, 1.0 if rotation.endless else rate)
        holds = tuple((h.from_s, max(h.from_s, h.ready_s), h.to_s) for h in self.lead if h.owner == lane_id)
        end_s = self.lead[-1].to_s
        if math.isinf(end_s) or lane_id not in rotation.owners:
            return ServiceCurve(holds, math.inf, math.inf, 0.0, 0.0)
        index = rotation.owners.index(lane_id)
        offset = rotation.starts[index]
        cycles = math.ceil((end_s - offset) / rotation.period_s - _EDGE)
        anchor = cycles * rotation.period_s + offset
        return ServiceCurve(holds, anchor, rotation.period_s, rotation.length_s(index), rotation.cost_s)


def _next_hold(owner: int | None, span: tuple[float, float], before: Hold, slicing: Slicing) -> Hold:
    from_s, to_s = span
    if owner is None:
        return Hold(None, from_s, math.inf, to_s, before.last_runner)
    if before.last_runner is None or owner == before.last_runner:
        # goes on: a switch to this owner that is still being paid runs to its end
        pending = before.ready_s if before.owner == owner and math.isfinite(before.ready_s) else from_s
        return Hold(owner, from_s, max(from_s, pending), to_s, owner)
    return Hold(owner, from_s, from_s + slicing.switch_s, to_s, owner)


@dataclass(frozen=True, slots=True)
class ServiceCurve:
    """W(t) of one lane: GPU time received since the timeline began, and its inverse.

    ``lead`` holds (owned from, working from, owned to); afterwards the lane owns [anchor + k·period, + length) for
    k = 0, 1, …, of which the first ``cost`` seconds are lost to the switch. ``rate`` is used by fluid sharing only.
    """

    lead: tuple[tuple[float, float, float], ...]
    anchor_s: float
    period_s: float
    length_s: float
    cost_s: float
    rate: float = 0.0

    def finish_s(self, work_s: float) -> float:
        """Return W⁻¹: the time at which ``work_s`` seconds of GPU time have been received."""
        if self.rate > 0.0:
            return self.anchor_s + work_s / self.rate
        for _, ready_s, to_s in self.lead:
            room_s = to_s - ready_s
            if work_s <= room_s:
                return ready_s + work_s
            work_s -= max(0.0, room_s)
        useful_s = self.length_s - self.cost_s
        if useful_s <= 0.0:
            return math.inf
        full = max(0, math.ceil(work_s / useful_s - 1e-12) - 1)
        return self.anchor_s + full * self.period_s + self.cost_s + (work_s - full * useful_s)

    def received_s(self, time_s: float) -> float:
        """Return W(t)."""
        if self.rate > 0.0:
            return (time_s - self.anchor_s) * self.rate
        done = sum(min(time_s, to_s) - ready_s for _, ready_s, to_s in self.lead if min(time_s, to_s) > ready_s)
        return done + self._cycles(time_s, self.cost_s, self.length_s)

    def switching_s(self, time_s: float) -> float:
        """Return the time lost to switches to this lane since the timeline began."""
        if self.rate > 0.0:
            return 0.0
        lost = sum(
            max(0.0, min(time_s, ready_s, to_s) - from_s) for from_s, ready_s, to_s in self.lead if ready_s > from_s
        )
        return lost + self._cycles(time_s, 0.0, self.cost_s)

    def _cycles(self, time_s: float, begin_s: float, end_s: float) -> float:
        """Return the part of [begin, end) of every owned window that lies before ``time_s``."""
        if time_s <= self.anchor_s or end_s <= begin_s:
            return 0.0
        full = math.floor((time_s - self.anchor_s) / self.period_s)
        rest = time_s - self.anchor_s - full * self.period_s
        return full * (end_s - begin_s) + min(max(0.0, rest - begin_s), end_s - begin_s)
