"""The candidates that a lane of a decision names."""

import numpy as np

from balancesim.core.decision import Lane
from balancesim.core.problem import Candidates, Problem
from balancesim.units import IntArray


def rows_of(problem: Problem, lane: Lane) -> IntArray:
    """Return the rows of a lane's new members among the candidates, in the order of the lane.

    Raises:
        ValueError: a member is not a candidate.
    """
    position = problem.position
    unknown = [member for member in lane.members if member not in position]
    if unknown:
        raise ValueError(f"lane {lane.lane_id}: members must be candidates, got request ids {unknown}")
    return np.array([position[member] for member in lane.members], dtype=np.int64)


def members_of(problem: Problem, lane: Lane) -> Candidates:
    """Return a lane's new members, in the order of the lane.

    Raises:
        ValueError: a member is not a candidate.
    """
    return problem.candidates.take(rows_of(problem, lane))
