"""Requests come into the world, in order of arrival, each at the server of its user's cell."""

from collections.abc import Callable, Generator, Iterable, Sequence

import simpy

from balancesim.core.request import Request
from balancesim.processes.server import EdgeServer
from balancesim.processes.visit import Visit
from balancesim.topology import Topology


class Source:
    """Makes a visit of every request. It counts them on its own, so that conservation can be checked against it."""

    def __init__(self, env: simpy.Environment, topology: Topology, servers: Sequence[EdgeServer]) -> None:
        self._env = env
        self._cell_of = topology.user_cell.tolist()
        of_cell = {cell_id: server for server in servers for cell_id in server.cell_ids}
        self._server_of = [of_cell[cell] for cell in range(topology.cells)]
        self._servers = servers
        self.generated = 0

    def run(
        self, requests: Iterable[Request], progress: Callable[[float, int], None] | None
    ) -> Generator[simpy.Event, None, None]:
        """Let requests arrive one after the other; ``progress`` gets the time and the count now and then."""
        env = self._env
        for request in requests:
            if request.arrival_s > env.now:  # all who come at one instant are there before any epoch of that instant
                yield env.timeout(request.arrival_s - env.now)
            self.generated += 1
            user = request.user_id
            cell = self._cell_of[user]
            server = self._server_of[cell]
            server.arrive(Visit(request, cell, server.server_id))
            if progress is not None and self.generated % 200 == 0:
                progress(env.now, self.generated)
        for server in self._servers:
            server.no_more_arrivals()
