"""Uploads of a batch that starts when all its prompts are in; a prompt not in by its deadline is dropped."""

import math
from collections.abc import Callable, Iterable

import simpy

from balancesim.processes.discipline import Host
from balancesim.processes.visit import Visit


def upload_missing(
    host: Host, visits: Iterable[Visit], waiting: set[int], drop: Callable[[Visit], None], changed: Callable[[], None]
) -> None:
    """Start the uploads still to be made, those of ``waiting``; ``changed`` is called whenever one is in or dropped."""

    def arrived(visit: Visit) -> None:
        waiting.discard(visit.request.request_id)
        changed()

    def too_late(visit: Visit) -> None:
        if visit.request.request_id in waiting:
            host.uploads.cancel(visit)
            waiting.discard(visit.request.request_id)
            drop(visit)
            host.expired(visit)
            changed()

    def at_deadline(visit: Visit) -> Callable[[simpy.Event], None]:
        return lambda _: too_late(visit)

    for visit in visits:
        if visit.upload_end_s is None:
            host.uploads.start(visit, arrived)
            if math.isfinite(visit.deadline_at_s):
                left_s = max(0.0, visit.deadline_at_s - host.env.now)
                host.env.timeout(left_s).callbacks.append(at_deadline(visit))
