"""What an edge server is made of, and where its rows go."""

from collections.abc import Callable
from dataclasses import dataclass

from balancesim.acceptance import AcceptanceLaw
from balancesim.columns import EpochRow, GpuRow
from balancesim.core.problem import LaneModel
from balancesim.core.server import ServerSpec
from balancesim.core.slicing import Slicing
from balancesim.policies import Policy
from balancesim.processes.cell import Cell
from balancesim.processes.pipeline_nodes import SbsSite
from balancesim.processes.visit import Visit
from balancesim.streams import KeyedStream


@dataclass(frozen=True)
class ServerSetup:
    """All that one server is made of."""

    server_id: int
    spec: ServerSpec
    lane_model: LaneModel
    slicing: Slicing
    acceptance: AcceptanceLaw
    luck: KeyedStream
    policy: Policy
    cells: dict[int, Cell]
    epoch_s: float | None  #: period of the epochs; None = an epoch at every event
    upload_on_admission: bool
    abort_late: bool
    kv_growth_tokens: int
    max_candidates: int
    site: SbsSite | None = None  #: the SBS that drafts for it, under the discipline `pipeline`

    def room(self, inside: int) -> int:
        """Return how many candidates a policy may see: ``max_candidates``, and no more than there is room for."""
        most: int | None = getattr(self.lane_model, "max_sequences", None)
        return self.max_candidates if most is None else min(self.max_candidates, most - inside)

    def kept_free_bytes(self, inside: int) -> float:
        """Return the KV memory that admission leaves to those who run (the discipline's ``watermark``)."""
        part: float = getattr(self.lane_model, "watermark", 0.0)
        return part * self.spec.free_bytes(uses_sd=False) if inside and part else 0.0


@dataclass(frozen=True)
class Sinks:
    """Where a server's rows go."""

    finished: Callable[[Visit], None]
    epoch: Callable[[EpochRow], None]
    gpu: Callable[[GpuRow], None]
