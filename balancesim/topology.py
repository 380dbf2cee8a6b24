"""Cells, servers, users and their links as a networkx graph, and the same as plain arrays for the processes.

Nodes are ``("cell", i)``, ``("server", i)`` and ``("user", i)``; positions are metres in the plane. A ``radio`` edge
joins a user to its cell (``distance_m``), a ``backhaul`` edge a cell to its server (``delay_s``). Where small base
stations draft, ``("sbs", i)`` stands at the site of cell i, the server is its MBS, and a ``fronthaul`` edge joins both
(``rate_bps``, ``delay_s``, bits of a drafted and of a verified token).
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

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

    graph: "nx.Graph[tuple[str, int]]"
    user_cell: IntArray
    user_server: IntArray
    user_distance_m: FloatArray  #: in the plane, from the user to its cell's site
    user_position_m: FloatArray  #: shape (users, 2)
    cell_position_m: FloatArray  #: shape (cells, 2)
    cell_server: IntArray
    cell_backhaul_s: FloatArray  #: one-way delay from the cell to its server
    cell_fronthaul: tuple[Fronthaul, ...] = ()  #: of the SBS at each cell's site; empty without SBS

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

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
        return sum(1 for kind, _ in self.graph if kind == "server")


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
    return _from_graph(_graph(network, sites, positions, cells))


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


def _graph(network: Network, sites: FloatArray, positions: FloatArray, cells: IntArray) -> "nx.Graph[tuple[str, int]]":
    import networkx as nx

    graph: nx.Graph[tuple[str, int]] = nx.Graph()
    for server in range(network.servers):
        graph.add_node(("server", server))
    for cell, (x, y) in enumerate(sites.tolist()):
        graph.add_node(("cell", cell), x_m=x, y_m=y, height_m=network.site_height_m)
        server = network.cell_server[cell]
        graph.add_edge(("cell", cell), ("server", server), kind="backhaul", delay_s=network.backhaul_s)
        if network.fronthaul is not None:
            graph.add_node(("sbs", cell), x_m=x, y_m=y)
            graph.add_edge(("cell", cell), ("sbs", cell), kind="site")
            graph.add_edge(("sbs", cell), ("server", server), kind="fronthaul", **asdict(network.fronthaul))
    distances = np.linalg.norm(positions - sites[cells], axis=1)
    rows = zip(positions.tolist(), cells.tolist(), distances.tolist(), strict=True)
    for user, ((x, y), cell, distance) in enumerate(rows):
        graph.add_node(("user", user), x_m=x, y_m=y, height_m=network.user_height_m)
        graph.add_edge(("user", user), ("cell", cell), kind="radio", distance_m=distance)
    return graph


def _from_graph(graph: "nx.Graph[tuple[str, int]]") -> Topology:
    """Read the arrays off the graph, which is the one description of the network."""
    radio = {user: (cell, edge["distance_m"]) for user, cell, edge in _edges(graph, "user")}
    backhaul = {cell: (server, edge["delay_s"]) for cell, server, edge in _edges(graph, "cell")}
    user_cell = np.array([radio[user][0] for user in range(len(radio))], dtype=np.int64)
    cell_server = np.array([backhaul[cell][0] for cell in range(len(backhaul))], dtype=np.int64)
    fronthaul = {sbs: edge for sbs, _, edge in _edges(graph, "sbs")}
    return Topology(
        graph=graph,
        user_cell=user_cell,
        user_server=cell_server[user_cell],
        user_distance_m=np.array([radio[user][1] for user in range(len(radio))], dtype=float),
        user_position_m=_positions(graph, "user", len(radio)),
        cell_position_m=_positions(graph, "cell", len(backhaul)),
        cell_server=cell_server,
        cell_backhaul_s=np.array([backhaul[cell][1] for cell in range(len(backhaul))], dtype=float),
        cell_fronthaul=tuple(_fronthaul(fronthaul[cell]) for cell in range(len(fronthaul))),
    )


def _fronthaul(edge: dict[str, Any]) -> Fronthaul:
    return Fronthaul(**{field.name: edge[field.name] for field in fields(Fronthaul)})


def _edges(graph: "nx.Graph[tuple[str, int]]", kind: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Return (node, what it is attached to, edge) for the nodes of a kind: a user's cell, a cell's or SBS's server."""
    above = {"user": "cell", "cell": "server", "sbs": "server"}[kind]
    return [
        (node[1], other[1], edge)
        for node in graph
        if node[0] == kind
        for other, edge in graph[node].items()
        if other[0] == above
    ]


def _positions(graph: "nx.Graph[tuple[str, int]]", kind: str, count: int) -> FloatArray:
    nodes = (graph.nodes[(kind, index)] for index in range(count))
    return np.array([(node["x_m"], node["y_m"]) for node in nodes], dtype=float).reshape(count, 2)
