"""What a server needs from a service discipline, and what a discipline needs from its server."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import simpy

from balancesim.acceptance import AcceptanceLaw
from balancesim.columns import GpuRow
from balancesim.core.decision import Lane
from balancesim.core.problem import LaneModel, Residents
from balancesim.core.server import ServerSpec
from balancesim.processes.gpu import Gpu
from balancesim.processes.kv_memory import KvMemory
from balancesim.processes.pipeline_nodes import SbsSite
from balancesim.processes.visit import Visit
from balancesim.streams import KeyedStream


class UploadPort(Protocol):
    """The server's side of the uplinks: starts, cancels and predicts the upload of a visit's prompt."""

    def start(self, visit: Visit, done: Callable[[Visit], None]) -> None:
        """Begin the upload now; ``done`` is called when the prompt is at the server."""
        ...

    def cancel(self, visit: Visit) -> None:
        """Give the upload up."""
        ...

    def left_s(self, visit: Visit) -> float:
        """Return the predicted rest of an upload that is under way."""
        ...


@dataclass(frozen=True)
class Host:
    """What a discipline may use of its server."""

    env: simpy.Environment
    server_id: int
    spec: ServerSpec
    gpu: Gpu
    memory: KvMemory
    acceptance: AcceptanceLaw
    luck: KeyedStream
    uploads: UploadPort
    downlink_s: Callable[[Visit], float]  #: predicted downlink time of a visit's answer
    first_token: Callable[[Visit], None]  #: the server has a visit's first token
    answered: Callable[[Visit], None]  #: the server has a visit's last token (or gave it up)
    expired: Callable[[Visit], None]  #: the deadline passed before the prompt was in
    departed: Callable[[], None]  #: memory was released or lanes fell idle: an epoch may be due
    span: Callable[[GpuRow], None]
    abort_late: bool
    kv_growth_tokens: int  #: added to a reservation that the truth has outgrown
    lane_model: LaneModel
    site: SbsSite | None = None  #: the SBS that drafts for this server, and its way to it (discipline `pipeline`)


class Discipline(Protocol):
    """How admitted requests share the GPU: static, continuous, ..."""

    def ready(self) -> bool:
        """Return whether a decision may be taken now."""
        ...

    def admit(self, lane: Lane, visits: list[Visit], draft_load_s: float = 0.0) -> None:
        """Take one lane of a decision and its new members; a lane that drafts waits for the draft model."""
        ...

    def residents(self) -> Residents:
        """Return who is inside, as a policy may see it."""
        ...

    def resident_lanes(self) -> dict[int, Lane]:
        """Return the lanes that have somebody inside."""
        ...

    def count(self) -> int:
        """Return how many requests are inside."""
        ...

    def unfinished(self) -> list[Visit]:
        """Return the visits still inside, in order of admission."""
        ...
