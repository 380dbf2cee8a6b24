"""Cells, servers, users and their links as plain arrays for the processes, and the same as a networkx graph.

Nodes of the graph are ``("cell", i)``, ``("server", i)`` and ``("user", i)``; positions are metres in the plane. A
``radio`` edge joins a user to its cell (``distance_m``), a ``backhaul`` edge a cell to its server (``delay_s``). Where
small base stations draft, ``("sbs", i)`` stands at the site of cell i, the server is its MBS, and a ``fronthaul`` edge
joins both (``rate_bps``, ``delay_s``, bits of a drafted and of a verified token).
"""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from balancesim.core.pipeline_nodes import Fronthaul
from balancesim.scenario.settings import Area, Network
from balancesim.streams import Streams
from balancesim.units import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import networkx as nx

#: Steps around a ring of the hexagonal grid in axial coordinates, counter-clockwise.
_RING_STEPS = ((-1, 1), (-1, 0), (0, -1), (1, -1), (1, 0), (0, 1))


@dataclass(frozen=True)
class Topology:
    """Who is where and attached to what. Arrays are indexed by user id or by cell id, and are read-only."""

    network: Network
    user_cell: IntArray
    user_position_m: FloatArray  #: shape (users, 2)
    cell_position_m: FloatArray  #: shape (cells, 2)
    cell_server: IntArray
    cell_backhaul_s: FloatArray  #: one-way delay from the cell to its server
    cell_fronthaul: tuple[Fronthaul, ...] = ()  #: of the SBS at each cell's site; empty without SBS

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @cached_property
    def user_server(self) -> IntArray:
        """Server of every user's cell."""
        return self.cell_server[self.user_cell]

    @cached_property
    def user_distance_m(self) -> FloatArray:
        """Distance in the plane from every user to its cell's site."""
        offsets_m = self.user_position_m - self.cell_position_m[self.user_cell]
        distance_m: FloatArray = np.linalg.norm(offsets_m, axis=1)
        distance_m.flags.writeable = False
        return distance_m

    @property
    def user_ids(self) -> IntArray:
        """All users, 0 … users − 1."""
        return np.arange(self.users, dtype=np.int64)

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.user_cell)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.cell_server)

    @property
    def servers(self) -> int:
        """Number of servers."""
        return self.network.servers

    @cached_property
    def graph(self) -> "nx.Graph[tuple[str, int]]":
        """The same as a graph, for those who want to look at the network or walk through it; a run does not."""
        import networkx as nx

        graph: nx.Graph[tuple[str, int]] = nx.Graph()
        heights = {"cell": self.network.site_height_m, "user": self.network.user_height_m}
        graph.add_nodes_from(("server", server) for server in range(self.servers))
        for kind, positions in (("cell", self.cell_position_m), ("user", self.user_position_m)):
            for index, (x, y) in enumerate(positions.tolist()):
                graph.add_node((kind, index), x_m=x, y_m=y, height_m=heights[kind])
        for cell, server in enumerate(self.cell_server.tolist()):
            delay_s = float(self.cell_backhaul_s[cell])
            graph.add_edge(("cell", cell), ("server", server), kind="backhaul", delay_s=delay_s)
        for cell, fronthaul in enumerate(self.cell_fronthaul):
            x, y = self.cell_position_m[cell].tolist()
            graph.add_node(("sbs", cell), x_m=x, y_m=y)
            graph.add_edge(("cell", cell), ("sbs", cell), kind="site")
            server = int(self.cell_server[cell])
            graph.add_edge(("sbs", cell), ("server", server), kind="fronthaul", **asdict(fronthaul))
        for user, (cell, distance_m) in enumerate(
            zip(self.user_cell.tolist(), self.user_distance_m.tolist(), strict=True)
        ):
            graph.add_edge(("user", user), ("cell", cell), kind="radio", distance_m=distance_m)
        return graph


def build(network: Network, streams: Streams) -> Topology:
    """Return the topology of one replication; positions are drawn from the stream ``placement``, cell after cell."""
    sites = hexagonal_sites(network.cells, math.sqrt(3) * network.radius_m)
    if network.cell_positions_m is not None:
        sites = np.array(network.cell_positions_m, dtype=float)
    if network.user_positions_m is not None:
        positions = np.array(network.user_positions_m, dtype=float)
        cells = nearest_site(positions, sites)
    else:
        cells = np.repeat(np.arange(network.cells), network.users_per_cell)
        positions = sites[cells] + _draw_offsets(network, streams.sequential("placement"))
    return Topology(
        network=network,
        user_cell=np.asarray(cells, dtype=np.int64),
        user_position_m=positions,
        cell_position_m=sites,
        cell_server=np.array(network.cell_server[: network.cells], dtype=np.int64),
        cell_backhaul_s=np.full(network.cells, float(network.backhaul_s)),
        cell_fronthaul=() if network.fronthaul is None else (network.fronthaul,) * network.cells,
    )


def hexagonal_sites(count: int, spacing_m: float) -> FloatArray:
    """Return the first ``count`` sites of a hexagonal grid, ring after ring around the origin; shape (count, 2).

    Neighbours are ``spacing_m`` apart (√3 times the radius of a cell). Ring r has 6·r sites; 1, 7, 19, … are full.
    """
    axial = [(0, 0)]
    ring = 1
    while len(axial) < count:
        q, r = ring, 0
        for step_q, step_r in _RING_STEPS:
            for _ in range(ring):
                axial.append((q, r))
                q, r = q + step_q, r + step_r
        ring += 1
    q_r = np.array(axial[:count], dtype=float)
    x = spacing_m * (q_r[:, 0] + q_r[:, 1] / 2)
    y = spacing_m * (math.sqrt(3) / 2) * q_r[:, 1]
    return np.column_stack((x, y))


def nearest_site(positions_m: FloatArray, sites_m: FloatArray) -> IntArray:
    """Return for each position the index of the nearest site; the first of equally near ones."""
    squared = ((positions_m[:, None, :] - sites_m[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(squared.argmin(axis=1), dtype=np.int64)


def _draw_offsets(network: Network, rng: np.random.Generator) -> FloatArray:
    """Return positions relative to the site, uniform over the cell without the disc of ``min_distance_m``."""
    inner, outer = network.min_distance_m, network.radius_m
    offsets = np.empty((network.users, 2))
    missing = np.arange(network.users)
    # Uniform over the ring between both radii, then those outside the hexagon again (it fills 83 % of its disc).
    while len(missing):
        radius = np.sqrt(inner**2 + (outer**2 - inner**2) * rng.random(len(missing)))
        angle = 2 * math.pi * rng.random(len(missing))
        offsets[missing] = np.column_stack((radius * np.cos(angle), radius * np.sin(angle)))
        if network.area is Area.DISC:
            break
        missing = missing[~in_hexagon(offsets[missing], outer)]
    return offsets


def in_hexagon(offsets_m: FloatArray, radius_m: float) -> BoolArray:
    """Return which offsets lie in the hexagon of corner distance ``radius_m`` whose flat sides face its neighbours."""
    x, y = np.abs(offsets_m[:, 0]), np.abs(offsets_m[:, 1])
    apothem = math.sqrt(3) / 2 * radius_m
    return (x <= apothem) & (x / 2 + y * math.sqrt(3) / 2 <= apothem)
