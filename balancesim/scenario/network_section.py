"""[network]: how many cells and users, where, and which server each cell uses."""

from balancesim import units
from balancesim.scenario.schema import NetworkTable
from balancesim.scenario.settings import Network
from balancesim.scenario.validation import Faults


def network_settings(table: NetworkTable, faults: Faults) -> Network | None:
    """Return the settings of the network, or None when they have faults."""
    cells = _cells(table, faults)
    if table.users_per_cell is None and table.user_positions_m is None:
        faults.add("network.users_per_cell", "is missing: users of a cell; or user_positions_m")
    if table.users_per_cell is not None and table.user_positions_m is not None:
        faults.add("network.users_per_cell", "must be left out when user_positions_m are given")
    if table.min_distance_m >= table.radius_m:
        rule = f"must be below radius_m = {table.radius_m:g}"
        faults.add("network.min_distance_m", f"{rule}, got {table.min_distance_m:g}")
    attachment = _attachment(table, cells, faults)
    cell_positions = _positions("cell_positions_m", table.cell_positions_m, faults)
    user_positions = _positions("user_positions_m", table.user_positions_m, faults)
    if faults.any_under("network"):
        return None
    return Network(
        radius_m=table.radius_m,
        users_per_cell=table.users_per_cell or 0,
        cell_server=attachment,
        backhaul_s=table.backhaul_ms * units.MS,
        area=table.area,
        min_distance_m=table.min_distance_m,
        site_height_m=table.site_height_m,
        user_height_m=table.user_height_m,
        cell_positions_m=cell_positions,
        user_positions_m=user_positions,
    )


def _cells(table: NetworkTable, faults: Faults) -> int:
    given = table.cell_positions_m
    if table.cells is None and given is None:
        faults.add("network.cells", "is missing: number of cells on a hexagonal grid; or cell_positions_m")
        return 0
    if table.cells is not None and given is not None and table.cells != len(given):
        faults.add("network.cells", f"must be the number of cell_positions_m, {len(given)}, got {table.cells}")
    return table.cells or len(given or ())


def _attachment(table: NetworkTable, cells: int, faults: Faults) -> tuple[int, ...]:
    """Return the server of each cell; the servers that cells name must be 0, 1, 2, … without a gap."""
    if table.servers == "per_cell":
        return tuple(range(cells))
    if table.servers == "one":
        return (0,) * cells
    servers = tuple(table.servers)
    if cells and len(servers) != cells:
        faults.add("network.servers", f"must have one entry for each of the {cells} cells, got {len(servers)}")
    elif sorted(set(servers)) != list(range(len(set(servers)))):
        faults.add("network.servers", f"must number the servers from 0 without a gap, got {list(servers)}")
    return servers


def _positions(key: str, positions: list[list[float]] | None, faults: Faults) -> tuple[tuple[float, float], ...] | None:
    if positions is None:
        return None
    wrong = [position for position in positions if len(position) != 2]
    if wrong or not positions:
        got = wrong[0] if wrong else "an empty list"
        faults.add(f"network.{key}", f"must be pairs [x, y] in m, got {got}")
        return None
    return tuple((x, y) for x, y in positions)
