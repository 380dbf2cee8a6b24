"""Requests that wait for a decision, in order of arrival; deadlines that pass are noticed in O(log n)."""

import heapq
import math

import numpy as np

from balancesim.core.problem import Candidates
from balancesim.processes.cell import Answers, Uploads
from balancesim.processes.setup import ServerSetup
from balancesim.processes.visit import Visit
from balancesim.processes.waiting_table import WaitingTable


class WaitingRoom:
    """The candidates of one server. A policy sees the oldest ``max_candidates`` of them."""

    def __init__(self, setup: ServerSetup, uploads: Uploads, answers: Answers) -> None:
        self._most = setup.max_candidates
        self._prompts_in = not setup.upload_on_admission  #: those who wait have their prompt at the server
        self._uploads = uploads
        self._answers = answers
        self._no_upload = np.array([[0.0], [np.nan]]) * np.ones(setup.max_candidates)  #: time and η
        self._no_upload.flags.writeable = False
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
        self._table.append(
            (request.request_id, request.prompt_tokens, tokens, request.user_id, visit.cell_id),
            (
                request.predicted_acceptance_rate,
                request.arrival_s,
                request.deadline_s,
                0.0 if self._prompts_in else cell.prompt_bits(visit),
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

    def candidates(self, now_s: float) -> Candidates:
        """Return the columns that a policy sees."""
        whole, floats = self._table.oldest(self._most)
        request_id, prompt_tokens, output_tokens, user_id, cell_id = whole
        acceptance_rate, arrival_s, deadline_s, prompt_bits, answer_bits = floats
        slack_s = arrival_s + deadline_s - now_s
        if self._deadlines:  # without a deadline the downlink does not matter
            slack_s -= self._answers.predicted_s(cell_id, user_id, answer_bits)
        if self._prompts_in:
            upload_s, efficiency = self._no_upload[:, : len(request_id)]
        else:
            upload_s, efficiency = self._uploads.predicted(cell_id, user_id, prompt_bits)
        return Candidates(
            request_id,
            prompt_tokens,
            output_tokens,
            acceptance_rate,
            slack_s,
            upload_s,
            now_s - arrival_s,
            prompt_bits,
            efficiency,
        )
