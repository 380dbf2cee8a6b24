"""The resolved settings of a run: frozen dataclasses in SI units, one for each section of a scenario."""

from dataclasses import dataclass
from enum import StrEnum


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
