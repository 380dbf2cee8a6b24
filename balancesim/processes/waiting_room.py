"""Requests that wait for a decision, in order of arrival; deadlines that pass are noticed in O(log n)."""

import heapq
import math
from collections import OrderedDict
from itertools import islice

import numpy as np

from balancesim.core.problem import Candidates
from balancesim.processes.cell import Answers, Uploads
from balancesim.processes.visit import Visit


class WaitingRoom:
    """The candidates of one server. A policy sees the oldest ``most`` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._visits: OrderedDict[int, Visit] = OrderedDict()
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._visits)

    def add(self, visit: Visit) -> None:
        """Let a request wait."""
        self._visits[visit.request.request_id] = visit
        if math.isfinite(visit.deadline_at_s):
            heapq.heappush(self._deadlines, (visit.deadline_at_s, visit.request.request_id))

    def take(self, request_id: int) -> Visit:
        """Take a request out."""
        return self._visits.pop(request_id)

    def expired(self, now_s: float) -> list[Visit]:
        """Take out and return those whose deadline has passed."""
        gone = []
        while self._deadlines and self._deadlines[0][0] < now_s:
            visit = self._visits.pop(heapq.heappop(self._deadlines)[1], None)
            if visit is not None:
                gone.append(visit)
        return gone

    @property
    def deadlines_ahead(self) -> bool:
        """True when somebody who waits may still expire."""
        return any(request_id in self._visits for _, request_id in self._deadlines)

    def rest(self) -> list[Visit]:
        """Return all who wait."""
        return list(self._visits.values())

    def candidates(self, now_s: float, uploads: Uploads, answers: Answers) -> Candidates:
        """Return the columns that a policy sees."""
        visits = list(islice(self._visits.values(), self._most))
        requests = [visit.request for visit in visits]
        upload_s = uploads.predicted_s(visits)
        bits = [uploads.cells[v.cell_id].prompt_bits(v) if v.upload_end_s is None else 0.0 for v in visits]
        arrival_s = np.array([request.arrival_s for request in requests])
        slack_s = arrival_s + np.array([request.deadline_s for request in requests]) - now_s
        if self._deadlines:  # without a deadline the downlink does not matter
            slack_s -= answers.predicted_s(visits)
        return Candidates(
            request_id=np.array([request.request_id for request in requests], dtype=np.int64),
            prompt_tokens=np.array([request.prompt_tokens for request in requests], dtype=np.int64),
            output_tokens=np.array([request.predicted_output_tokens for request in requests], dtype=np.int64),
            acceptance_rate=np.array([request.predicted_acceptance_rate for request in requests]),
            slack_s=slack_s,
            upload_s=upload_s,
            waited_s=now_s - arrival_s,
            prompt_bits=np.array(bits),
            spectral_efficiency_bps_hz=uploads.spectral_efficiency(visits),
        )
