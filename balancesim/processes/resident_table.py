"""The residents of a server as the columns that policies see (`core.problem.Residents`)."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from balancesim.core.problem import Residents, no_residents
from balancesim.core.request import Mode
from balancesim.processes.discipline import Host
from balancesim.processes.resident import LaneProcess, Resident


@dataclass(frozen=True, slots=True)
class ResidentView:
    """Where to look."""

    host: Host
    lanes: Mapping[int, LaneProcess]
    uploading: AbstractSet[int]


def resident_table(view: ResidentView, residents: Sequence[Resident]) -> Residents:
    """Return the columns; remaining tokens are predicted ones, at least 1, never the truth."""
    if not residents:
        return no_residents()
    host = view.host
    now_s = host.env.now
    steps = {lane_id: lane.steps_now() for lane_id, lane in view.lanes.items()}
    rows = []
    for resident in residents:
        visit, request = resident.visit, resident.visit.request
        lane_id = visit.lane_id
        assert lane_id is not None
        out = resident.tokens_at(steps[lane_id]) if resident.prefilled else resident.tokens_out
        uploading = request.request_id in view.uploading
        rows.append(
            (
                request.request_id,
                lane_id,
                visit.mode is Mode.SD,
                out,
                max(1, request.predicted_output_tokens - out),
                request.prompt_tokens + out,
                not resident.prefilled,
                request.predicted_acceptance_rate,
                visit.draft_length or 0,
                host.memory.size_bytes(request.request_id),
                visit.slack_s(now_s, host.downlink_s(visit)),
                host.uploads.left_s(visit) if uploading else 0.0,
            )
        )
    kinds = (np.int64, np.int64, np.bool_, np.int64, np.int64, np.int64, np.bool_, float, np.int64, float, float, float)
    columns = zip(*rows, strict=True)
    return Residents(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))
