"""Requests that wait for a decision, in order of arrival; deadlines that pass are noticed in O(log n)."""

import heapq
import math

import numpy as np

from balancesim.core.candidates import Candidates
from balancesim.processes.cell import Answers, Uploads
from balancesim.processes.setup import ServerSetup
from balancesim.processes.visit import Visit
from balancesim.processes.waiting_table import WaitingTable
from balancesim.units import FloatArray, IntArray


class WaitingRoom:
    """The candidates of one server."""

    def __init__(self, setup: ServerSetup, uploads: Uploads, answers: Answers) -> None:
        self._prompts_in = not setup.upload_on_admission  #: those who wait have their prompt at the server
        self._uploads = uploads
        self._answers = answers
        self._zeros = np.zeros(setup.max_candidates)
        self._zeros.flags.writeable = False
        self._visits: dict[int, Visit] = {}
        self._table = WaitingTable(whole=5, floats=5)
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._visits)

    def add(self, visit: Visit) -> None:
        """Let a request wait."""
        request, cell = visit.request, self._uploads.cells[visit.cell_id]
        tokens = request.predicted_output_tokens
        self._visits[request.request_id] = visit
        bits = 0.0 if self._prompts_in else cell.prompt_bits(visit)
        self._table.append(
            (request.request_id, request.prompt_tokens, tokens, request.user_id, visit.cell_id),
            (
                request.predicted_acceptance_rate,
                bits,
                request.arrival_s,
                request.deadline_s,
                cell.answer_bits(tokens),
            ),
        )
        if math.isfinite(visit.deadline_at_s):
            heapq.heappush(self._deadlines, (visit.deadline_at_s, request.request_id))

    def take(self, request_id: int) -> Visit:
        """Take a request out."""
        self._table.remove(request_id)
        return self._visits.pop(request_id)

    def expired(self, now_s: float) -> list[Visit]:
        """Take out and return those whose deadline has passed."""
        gone = []
        while self._deadlines and self._deadlines[0][0] < now_s:
            request_id = heapq.heappop(self._deadlines)[1]
            if request_id in self._visits:
                gone.append(self.take(request_id))
        return gone

    @property
    def deadlines_ahead(self) -> bool:
        """True when somebody who waits may still expire."""
        return any(request_id in self._visits for _, request_id in self._deadlines)

    def rest(self) -> list[Visit]:
        """Return all who wait."""
        return list(self._visits.values())

    def candidates(self, now_s: float, most: int) -> Candidates:
        """Return the columns that a policy sees, of the oldest ``most`` requests."""
        whole, floats = self._table.oldest(most)
        ready = {  # what stays as it is; the rest depends on the time
            "request_id": whole[0],
            "prompt_tokens": whole[1],
            "output_tokens": whole[2],
            "acceptance_rate": floats[0],
            "prompt_bits": floats[1],
        }
        if self._prompts_in:
            ready["upload_s"] = self._zeros[: whole.shape[1]]
        return Candidates.on_demand(ready, lambda name: self._column(name, now_s, whole, floats))

    def _column(self, name: str, now_s: float, whole: IntArray, floats: FloatArray) -> FloatArray:
        """Return a column that depends on the time; ``now_s`` is now."""
        column: FloatArray
        if name == "waited_s":
            column = now_s - floats[2]
        elif name == "slack_s":
            column = floats[2] + floats[3] - now_s
            if self._deadlines:  # without a deadline the downlink does not matter
                column -= self._answers.predicted_s(whole[4], whole[3], floats[4])
        elif name == "upload_s":
            column = self._uploads.predicted_s(whole[4], whole[3], floats[1])
        else:  # "spectral_efficiency_bps_hz"
            column = np.full(whole.shape[1], np.nan)
            if not self._prompts_in:
                column = self._uploads.spectral_efficiency(whole[4], whole[3])
        return column
