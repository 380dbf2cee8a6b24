"""Who waits, as columns in the order in which they came: a look copies a slice, whatever the length of the queue."""

import numpy as np

from balancesim.units import BoolArray, FloatArray, IntArray

_ROWS = 256  #: room at the start; it doubles when it is full


class WaitingTable:
    """Whole numbers and floats of every request, one column each; the first whole number is the request's id.

    Rows are numbered for ever; row r is kept at place r − ``_base``. Who leaves from the front moves the front. Who
    leaves from further back leaves a gap, and the next look moves the few rows before the gap over it, so that no
    operation costs time for those who wait behind what is looked at.
    """

    def __init__(self, whole: int, floats: int) -> None:
        self._whole: IntArray = np.empty((whole, _ROWS), np.int64)
        self._floats: FloatArray = np.empty((floats, _ROWS))
        self._gone: BoolArray = np.zeros(_ROWS, np.bool_)
        self._base = 0
        self._first = 0
        self._end = 0
        self._gaps = 0
        self._row: dict[int, int] = {}  #: by request id

    def append(self, whole: tuple[int, ...], floats: tuple[float, ...]) -> None:
        """Take a request at the end."""
        if self._end - self._base == len(self._gone):
            self._make_room()
        place = self._end - self._base
        self._whole[:, place] = whole
        self._floats[:, place] = floats
        self._row[whole[0]] = self._end
        self._end += 1

    def remove(self, request_id: int) -> None:
        """Take a request out."""
        row = self._row.pop(request_id)
        if row == self._first:
            self._first += 1
        else:
            self._gone[row - self._base] = True
            self._gaps += 1

    def oldest(self, most: int) -> tuple[IntArray, FloatArray]:
        """Return the columns of the first ``most`` requests, as read-only copies of shape (columns, requests)."""
        if self._gaps and most > 0:
            self._close_gaps(most)
        first = self._first - self._base
        last = min(first + max(0, most), self._end - self._base)
        whole, floats = self._whole[:, first:last].copy(), self._floats[:, first:last].copy()
        whole.flags.writeable = floats.flags.writeable = False
        return whole, floats

    def _close_gaps(self, most: int) -> None:
        """Move the first ``most`` requests together, up to where the last of them is; all requests up to the end."""
        first = self._first - self._base
        here = first + np.flatnonzero(~self._gone[first : self._end - self._base])[:most]
        end = int(here[-1]) + 1 if len(here) == most else self._end - self._base
        start = end - len(here)
        self._gone[first:end] = False
        if start == first:
            return
        self._whole[:, start:end] = self._whole[:, here]
        self._floats[:, start:end] = self._floats[:, here]
        self._row.update(
            zip(self._whole[0, start:end].tolist(), range(start + self._base, end + self._base), strict=True)
        )
        self._gaps -= start - first
        self._first = start + self._base

    def _make_room(self) -> None:
        """Move all rows to the front, of larger columns where they fill more than half of these."""
        first, used, size = self._first - self._base, self._end - self._first, len(self._gone)
        size = 2 * size if 2 * used > size else size
        for name in ("_whole", "_floats", "_gone"):
            old = getattr(self, name)
            new = np.zeros((*old.shape[:-1], size), old.dtype)
            new[..., :used] = old[..., first : first + used]
            setattr(self, name, new)
        self._base = self._first
