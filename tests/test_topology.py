"""Cells lie on a hexagonal grid, users are uniform in their cell, and arrays say what the graph says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim import topology
from balancesim.scenario.settings import Area, Network
from balancesim.streams import Streams

STREAMS = Streams(seed=1, replication=0)
NETWORK = Network(radius_m=100.0, users_per_cell=4, cell_server=(0, 0, 1), backhaul_s=0.002)


def test_the_first_ring_of_sites_are_the_six_neighbours() -> None:
    """Site 0 is the origin; sites 1 to 6 are one spacing away, 60 degrees apart; site 7 is two away."""
    sites = topology.hexagonal_sites(8, 10.0)
    radius = np.hypot(*sites.T)
    angle = np.degrees(np.arctan2(sites[1:7, 1], sites[1:7, 0])) % 360
    assert np.allclose(radius, [0, 10, 10, 10, 10, 10, 10, 20])
    assert np.allclose(angle, [0, 60, 120, 180, 240, 300])


@given(st.integers(1, 60))
def test_sites_are_at_least_a_spacing_apart(count) -> None:
    """No two sites coincide, and every site but the first has a neighbour at one spacing."""
    sites = topology.hexagonal_sites(count, 1.0)
    distance = np.linalg.norm(sites[:, None] - sites[None, :], axis=2) + 9 * np.eye(count)
    assert (count, 2) == sites.shape
    assert distance.min() > 0.999
    assert count == 1 or np.allclose(distance.min(axis=1), 1.0)


def test_users_of_a_hexagonal_layout_are_in_their_own_cell() -> None:
    """The nearest site of every user is its own: hexagons are the Voronoi cells of the sites."""
    network = Network(100.0, 300, tuple(range(7)), 0.0, min_distance_m=20.0)
    built = topology.build(network, STREAMS)
    assert np.array_equal(built.user_cell, topology.nearest_site(built.user_position_m, built.cell_position_m))
    assert built.user_distance_m.min() >= 20.0
    assert built.user_distance_m.max() <= 100.0


@pytest.mark.parametrize(
    ("area", "expected"),
    # E[r²] over a disc of radius R is R²/2; over a hexagon of corner distance R it is 5·R²/12.
    [(Area.DISC, 1 / 2), (Area.HEXAGON, 5 / 12)],
)
def test_users_are_uniform_over_the_cell(area, expected) -> None:
    """The mean squared distance is that of a uniform position; 95 % interval over 40 placements, twice as wide."""
    network = Network(1.0, 500, (0,), 0.0, area=area)
    means = [float(np.mean(topology.build(network, Streams(2, r)).user_distance_m ** 2)) for r in range(40)]
    half_width = 2 * 1.96 * np.std(means, ddof=1) / math.sqrt(len(means))
    assert expected == pytest.approx(np.mean(means), abs=half_width)


def test_arrays_and_graph_agree() -> None:
    """Each user has a radio edge to its cell, each cell a backhaul edge to its server."""
    built = topology.build(NETWORK, STREAMS)
    graph = built.graph
    assert (built.users, built.cells, built.servers) == (12, 3, 2)
    assert built.user_server.tolist() == [0] * 8 + [1] * 4
    assert list(range(12)) == built.user_ids.tolist()
    for user, cell in enumerate(built.user_cell.tolist()):
        edge = graph.edges[("user", user), ("cell", cell)]
        assert built.user_distance_m[user] == edge["distance_m"]
        offset = built.user_position_m[user] - built.cell_position_m[cell]
        assert edge["distance_m"] == pytest.approx(math.hypot(*offset))
    for cell, server in enumerate(NETWORK.cell_server):
        assert 0.002 == graph.edges[("cell", cell), ("server", server)]["delay_s"] == built.cell_backhaul_s[cell]


def test_placement_depends_on_seed_and_replication_alone() -> None:
    """Every policy meets the same users; another replication other ones."""
    first, again = (topology.build(NETWORK, STREAMS).user_position_m for _ in range(2))
    other = topology.build(NETWORK, Streams(1, 1)).user_position_m
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_arrays_are_read_only() -> None:
    """A process cannot move a user by mistake."""
    with pytest.raises(ValueError, match="read-only"):
        topology.build(NETWORK, STREAMS).user_distance_m[0] = 1.0


def test_given_positions_are_kept_and_users_join_the_nearest_cell() -> None:
    """Explicit sites and users: distances by hand, 3-4-5 triangle; a tie goes to the first cell."""
    network = Network(
        radius_m=50.0, users_per_cell=0, cell_server=(0, 1), backhaul_s=0.0, site_height_m=25.0, user_height_m=1.5,
        cell_positions_m=((0.0, 0.0), (100.0, 0.0)), user_positions_m=((3.0, 4.0), (100.0, 10.0), (50.0, 0.0)),
    )  # fmt: skip
    built = topology.build(network, STREAMS)
    assert built.user_distance_m.tolist() == [5.0, 10.0, 50.0]
    assert built.user_cell.tolist() == [0, 1, 0]
    assert (network.users, network.cells, network.servers) == (3, 2, 2)
    assert built.graph.nodes[("cell", 0)]["height_m"] == 25.0
    assert built.graph.nodes[("user", 0)]["height_m"] == 1.5
