"""Epoch records that stay open until the requests admitted in them are done, so that prediction meets outcome."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from balancesim.columns import EpochRow
from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.core.request import Mode

_NONE: tuple[tuple[()], ...] = ((),) * 5


@dataclass(slots=True)
class _Open:
    """An epoch whose record is not complete."""

    epoch: int
    epoch_s: float
    candidates: int
    residents: int
    decision: Decision
    kv_used_bytes: float
    kv_capacity_bytes: float
    outstanding: int  #: admitted requests still inside
    last_s: float | None = None
    peak_bytes: float | None = None


class EpochLog:
    """Writes one row per decision: when its requests are done and the next decision has closed its memory peak."""

    def __init__(self, server_id: int, write: Callable[[EpochRow], None]) -> None:
        self._server_id = server_id
        self._write = write
        self._open: dict[int, _Open] = {}

    def decided(self, problem: Problem, decision: Decision, residents: int, kv: tuple[float, float]) -> None:
        """Open the record of a decision; ``kv`` is the memory held after it and the capacity, in bytes."""
        admitted = sum([len(lane.members) for lane in decision.lanes])
        epoch = problem.epoch
        self._open[epoch] = _Open(
            epoch, problem.now_s, len(problem.candidates), residents, decision, kv[0], kv[1], admitted
        )

    def peak(self, epoch: int, peak_bytes: float) -> None:
        """Close the memory peak of an epoch: the next decision is about to be taken, or the run is over."""
        record = self._open.get(epoch)
        if record is not None:
            record.peak_bytes = peak_bytes
            self._close_if_complete(record)

    def left(self, epoch: int, at_s: float, *, answered: bool) -> None:
        """One of the requests admitted at an epoch has left the server."""
        record = self._open[epoch]
        record.outstanding -= 1
        if answered:
            record.last_s = at_s
        self._close_if_complete(record)

    def close(self) -> None:
        """Write what is still open; a completion that was not reached stays null."""
        for record in self._open.values():
            record.last_s = None
            self._write(self._row(record))
        self._open.clear()

    def _close_if_complete(self, record: _Open) -> None:
        if record.outstanding == 0 and record.peak_bytes is not None:
            self._write(self._row(record))
            del self._open[record.epoch]

    def _row(self, record: _Open) -> EpochRow:
        decision, peak, last_s = record.decision, record.peak_bytes, record.last_s
        admitted_ad = predicted = 0
        finish_s = -math.inf
        lanes = []
        for lane in decision.lanes:
            members = len(lane.members)
            lanes.append((lane.lane_id, lane.mode, lane.gpu_share, lane.memory_share, members))
            if lane.mode is Mode.AD:
                admitted_ad += members
            if members and lane.predicted_finish_s is not None:
                predicted += members
                finish_s = max(finish_s, lane.predicted_finish_s)
        lane_id, lane_mode, lane_gpu_share, lane_memory_share, lane_admitted = (
            zip(*lanes, strict=True) if lanes else _NONE
        )
        admitted = sum(lane_admitted)
        return EpochRow(
            server_id=self._server_id,
            epoch=record.epoch,
            epoch_s=record.epoch_s,
            candidates=record.candidates,
            residents=record.residents,
            rejected=len(decision.rejected),
            admitted=admitted,
            admitted_ad=admitted_ad,
            admitted_sd=admitted - admitted_ad,
            gpu_share_ad=decision.gpu_share_ad if lanes else None,
            memory_share_ad=decision.memory_share_ad if lanes else None,
            lane_id=lane_id,
            lane_mode=lane_mode,
            lane_gpu_share=lane_gpu_share,
            lane_memory_share=lane_memory_share,
            lane_admitted=lane_admitted,
            kv_used_bytes=record.kv_used_bytes,
            kv_peak_bytes=record.kv_used_bytes if peak is None else peak,
            kv_capacity_bytes=record.kv_capacity_bytes,
            predicted_finish_s=finish_s if admitted and predicted == admitted else None,
            measured_finish_s=None if last_s is None else last_s - record.epoch_s,
        )
