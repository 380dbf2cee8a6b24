"""Epoch records that stay open until the requests admitted in them are done, so that prediction meets outcome."""

from collections.abc import Callable
from dataclasses import dataclass

from balancesim.columns import EpochRow
from balancesim.core.decision import Decision
from balancesim.core.problem import Problem
from balancesim.core.request import Mode


@dataclass(slots=True)
class _Open:
    """An epoch whose record is not complete."""

    row: EpochRow
    outstanding: int  #: admitted requests still inside
    last_s: float | None = None
    peak_known: bool = False


class EpochLog:
    """Writes one row per decision: when its requests are done and the next decision has closed its memory peak."""

    def __init__(self, server_id: int, write: Callable[[EpochRow], None]) -> None:
        self._server_id = server_id
        self._write = write
        self._open: dict[int, _Open] = {}

    def decided(self, problem: Problem, decision: Decision, residents: int, kv: tuple[float, float]) -> None:
        """Open the record of a decision; ``kv`` is the memory held after it and the capacity, in bytes."""
        counts = {
            mode: sum(len(lane.members) for lane in decision.lanes if lane.mode is mode) for mode in (Mode.AD, Mode.SD)
        }
        lanes = decision.lanes
        predictions = [lane.predicted_finish_s for lane in lanes if lane.members]
        known = [value for value in predictions if value is not None]
        row = EpochRow(
            server_id=self._server_id,
            epoch=problem.epoch,
            epoch_s=problem.now_s,
            candidates=len(problem.candidates),
            residents=residents,
            rejected=len(decision.rejected),
            admitted=counts[Mode.AD] + counts[Mode.SD],
            admitted_ad=counts[Mode.AD],
            admitted_sd=counts[Mode.SD],
            gpu_share_ad=decision.gpu_share_ad if lanes else None,
            memory_share_ad=decision.memory_share_ad if lanes else None,
            lane_id=tuple(lane.lane_id for lane in lanes),
            lane_mode=tuple(lane.mode for lane in lanes),
            lane_gpu_share=tuple(lane.gpu_share for lane in lanes),
            lane_memory_share=tuple(lane.memory_share for lane in lanes),
            lane_admitted=tuple(len(lane.members) for lane in lanes),
            kv_used_bytes=kv[0],
            kv_peak_bytes=kv[0],
            kv_capacity_bytes=kv[1],
            predicted_finish_s=max(known) if known and len(known) == len(predictions) else None,
            measured_finish_s=None,
        )
        self._open[problem.epoch] = _Open(row, row.admitted)

    def peak(self, epoch: int, peak_bytes: float) -> None:
        """Close the memory peak of an epoch: the next decision is about to be taken, or the run is over."""
        record = self._open.get(epoch)
        if record is not None:
            record.row = record.row._replace(kv_peak_bytes=peak_bytes)
            record.peak_known = True
            self._close_if_complete(epoch, record)

    def left(self, epoch: int, at_s: float, *, answered: bool) -> None:
        """One of the requests admitted at an epoch has left the server."""
        record = self._open[epoch]
        record.outstanding -= 1
        if answered:
            record.last_s = at_s
        self._close_if_complete(epoch, record)

    def close(self) -> None:
        """Write what is still open; a completion that was not reached stays null."""
        for record in self._open.values():
            self._write(record.row)
        self._open.clear()

    def _close_if_complete(self, epoch: int, record: _Open) -> None:
        if record.outstanding == 0 and record.peak_known:
            if record.last_s is not None:
                record.row = record.row._replace(measured_finish_s=record.last_s - record.row.epoch_s)
            self._write(record.row)
            del self._open[epoch]
