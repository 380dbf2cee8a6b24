"""The resolved settings of a run: frozen dataclasses in SI units, one for each section of a scenario."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.pipeline_nodes import Fronthaul, Sbs
from balancesim.core.problem import LaneModel
from balancesim.core.server import ServerSpec
from balancesim.core.slicing import Slicing
from balancesim.registry import unknown_name

if TYPE_CHECKING:  # so that the settings can be described without importing every family
    from balancesim.acceptance import AcceptanceLaw
    from balancesim.allocators import Allocator
    from balancesim.channels import Channel
    from balancesim.fading import Fading
    from balancesim.rate_laws import RateLaw
    from balancesim.scenario.policy_list import PolicyEntry
    from balancesim.workload import Workload


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How long and how often; arrivals stop at ``horizon_s``, shares are over arrivals from ``warmup_s`` on."""

    horizon_s: float
    warmup_s: float
    drain_s: float  #: longest time after the horizon for what is still inside; inf = until all is done
    replications: int
    seed: int


@dataclass(frozen=True, slots=True)
class Targets:
    """Service levels beside the deadline; None = none asked for."""

    ttft_s: float | None = None
    tpot_s: float | None = None


class Area(StrEnum):
    """Where the users of a cell are placed, uniformly."""

    HEXAGON = "hexagon"  #: the cell of a hexagonal layout; ``radius_m`` is its corner's distance
    DISC = "disc"  #: within ``radius_m`` of the site; the discs of neighbouring cells overlap


@dataclass(frozen=True, slots=True)
class Network:
    """Cells, users and which server each cell uses."""

    radius_m: float  #: of a cell: centre to corner of its hexagon, or of its disc
    users_per_cell: int
    cell_server: tuple[int, ...]  #: server of each cell; its length is the number of cells
    backhaul_s: float  #: one-way delay between a cell and its server
    area: Area = Area.HEXAGON
    min_distance_m: float = 0.0  #: no user is nearer to its site
    site_height_m: float | None = None  #: of the base stations' antennas; None = the channel does not ask
    user_height_m: float | None = None
    cell_positions_m: tuple[tuple[float, float], ...] | None = None  #: None = sites of a hexagonal grid
    user_positions_m: tuple[tuple[float, float], ...] | None = None  #: None = drawn; given ones use the nearest cell
    fronthaul: Fronthaul | None = None  #: of the SBS at each cell's site to the cell's server; None = no SBS

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.cell_server)

    @property
    def servers(self) -> int:
        """Number of servers: 0 … the highest that a cell names."""
        return max(self.cell_server) + 1

    @property
    def users(self) -> int:
        """Number of users in all cells."""
        if self.user_positions_m is not None:
            return len(self.user_positions_m)
        return self.cells * self.users_per_cell


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """One direction of a cell's radio. Power and noise are each a fixed part and a density over the bandwidth used."""

    bandwidth_hz: float  #: of a request or of the cell, as the allocator takes it
    allocator: "Allocator"
    power_w: float = 0.0
    power_density_w_hz: float = 0.0
    noise_w: float = 0.0
    noise_density_w_hz: float = 0.0

    def snr_per_gain(self, bandwidth_hz: float) -> float:
        """Return transmit power over noise power of a transfer with this bandwidth; times the power gain it is SNR."""
        power_w = self.power_w + self.power_density_w_hz * bandwidth_hz
        return power_w / (self.noise_w + self.noise_density_w_hz * bandwidth_hz)


@dataclass(frozen=True, slots=True)
class RadioSettings:
    """Propagation, rates, and both directions of a cell's radio."""

    carrier_hz: float | None
    channel: "Channel"
    shadowing: bool
    fading: "Fading"
    coherence_s: float  #: length of a fading block
    rate_law: "RateLaw"
    bits_per_token: float
    streamed: bool  #: answers leave token by token, else when they are complete
    uplink: LinkSettings
    downlink: LinkSettings


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One edge server: hardware, models and cost laws, and the acceptance law of its pair of models."""

    spec: ServerSpec
    acceptance: "AcceptanceLaw"
    sbs: Sbs | None = None  #: at the site of each of its cells

    def under(self, lane_model: LaneModel) -> ServerSpec:
        """Return the server as a discipline uses it: the MBS of its SBS, or alone.

        Raises:
            ValueError: the discipline needs an SBS.
        """
        if not isinstance(lane_model, PipelineLanes):
            return self.spec
        if self.sbs is None:
            raise ValueError(
                "sbs: is missing: the discipline pipeline drafts at small base stations; add [sbs] and [fronthaul]"
            )
        return replace(self.spec, sbs=self.sbs)


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """When policies decide and how lanes share the GPU."""

    lane_model: LaneModel
    slicing: Slicing
    epoch_s: float | None  #: period of the decisions; None = one at every event
    upload_on_admission: bool  #: else at once, and the request becomes a candidate when its prompt is in
    abort_late: bool
    kv_growth_tokens: int
    max_candidates: int


@dataclass(frozen=True)
class Scenario:
    """Everything about a run but the policy and the replication."""

    name: str
    description: str
    run: RunSettings
    workload: "Workload"
    radio: RadioSettings
    network: Network
    servers: tuple[ServerSettings, ...]  #: by server id
    scheduling: SchedulingSettings
    policies: tuple["PolicyEntry", ...]
    targets: Targets
    document: Mapping[str, Any]  #: the resolved TOML, as ``run.json`` keeps it
    folder: Path  #: of the scenario file; its relative file names start here
    warnings: tuple[str, ...] = ()

    def policy(self, label: str) -> "PolicyEntry":
        """Return the policy with this label."""
        for entry in self.policies:
            if entry.label == label:
                return entry
        raise ValueError(unknown_name("policy", label, [entry.label for entry in self.policies]))

    def lane_model(self, label: str) -> LaneModel:
        """Return the discipline under which a policy runs: its own, or the scenario's."""
        return self.policy(label).lane_model or self.scheduling.lane_model
