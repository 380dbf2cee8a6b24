"""Discipline ``fused``: AD and SD requests of all lanes in one process (model.md §6).

Admission, memory, preemption and deadlines are those of continuous batching. Lanes are groups of requests with a mode
and a (longest) draft length; their GPU shares mean nothing, since every target pass serves all of them.
"""

from balancesim.core.decision import Lane
from balancesim.core.memory import speculates
from balancesim.processes.continuous import ContinuousDiscipline
from balancesim.processes.discipline import Host
from balancesim.processes.fused_plan import RuledResident
from balancesim.processes.fused_process import FusedProcess
from balancesim.processes.resident import LaneProcess, Resident
from balancesim.processes.visit import Visit


class FusedDiscipline(ContinuousDiscipline):
    """Continuous batching in which all lanes step together."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._fused = FusedProcess(host, self._hooks())

    def _process(self, lane: Lane) -> LaneProcess:
        if speculates(lane.mode, lane.draft_length):
            self._fused.rule = lane.draft_rule
        return self._fused

    def _resident(self, lane: Lane, visit: Visit) -> Resident:
        if lane.draft_rule is None or not speculates(lane.mode, lane.draft_length):
            return super()._resident(lane, visit)
        base = Resident(visit, self._order, visit.request.predicted_output_tokens, None)
        return RuledResident.of(base, self._host.acceptance, self._host.luck)
