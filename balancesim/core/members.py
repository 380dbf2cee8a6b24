"""The candidates that a lane of a decision names."""

from balancesim.core.candidates import Candidates
from balancesim.core.decision import Lane
from balancesim.core.problem import Problem
from balancesim.units import IntArray


def rows_of(problem: Problem, lane: Lane) -> IntArray:
    """Return the rows of a lane's new members among the candidates, in the order of the lane.

    Raises:
        ValueError: a member is not a candidate.
    """
    try:
        return problem.rows(lane.members)
    except KeyError as error:
        raise ValueError(f"lane {lane.lane_id}: members must be candidates, got request ids {error}") from None


def members_of(problem: Problem, lane: Lane) -> Candidates:
    """Return a lane's new members, in the order of the lane.

    Raises:
        ValueError: a member is not a candidate.
    """
    return problem.candidates.take(rows_of(problem, lane))
