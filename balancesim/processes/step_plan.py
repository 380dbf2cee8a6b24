"""Steps whose ends are known: how many are done, and where to stop for who has come meanwhile."""

from balancesim.processes.gpu import Gpu
from balancesim.units import FloatArray

_EDGE_S = 1e-12  #: a join within this of a step's end is at that boundary


def steps_done(gpu: Gpu, lane_id: int, ends_s: FloatArray) -> int:
    """Return how many of the coming steps are done; ``ends_s``: GPU seconds from the plan's start to their ends."""
    return int(ends_s.searchsorted(gpu.received_s(lane_id) + _EDGE_S, side="right"))


def stop_at_boundary(gpu: Gpu, lane_id: int, ends_s: FloatArray) -> int:
    """End the plan at the boundary that is now, or that the step in progress comes to; return the steps it then has."""
    received_s = gpu.received_s(lane_id)
    done = steps_done(gpu, lane_id, ends_s)
    at_edge = received_s <= (ends_s[done - 1] if done else 0.0) + _EDGE_S
    steps = done if at_edge else done + 1
    if steps < len(ends_s):
        gpu.cut(lane_id, float(ends_s[steps - 1]) if steps else received_s)
        return steps
    return len(ends_s)
