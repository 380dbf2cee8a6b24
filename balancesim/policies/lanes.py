"""The lanes that policies of BALANCE's family use, before shares and members are chosen."""

from balancesim.core.decision import AD_LANE, SD_LANE, Lane
from balancesim.core.problem import Problem
from balancesim.core.request import Mode

#: What policies that use one lane at a time plan for: all disciplines of a single server, with slices or without.
ONE_LANE = ("static", "static_per_user", "continuous", "fused")


def check_draft_length(draft_length: int | None) -> None:
    """Check an option ``draft_length``."""
    if draft_length is not None and draft_length < 0:
        raise ValueError(f"draft_length must be at least 0, got {draft_length}; leave it out to use the server's")


def lane_number(mode: Mode, nth: int) -> int:
    """Return the number of the n-th lane of a mode, from 0: AD lanes are even, SD lanes odd."""
    return 2 * nth + (AD_LANE if mode is Mode.AD else SD_LANE)


def ad_lane(lane_id: int = AD_LANE) -> Lane:
    """Return an AD lane without members and shares."""
    return Lane(lane_id, Mode.AD, 0.0, 0.0)


def sd_lane(problem: Problem, draft_length: int | None = None, lane_id: int = SD_LANE) -> Lane:
    """Return an SD lane without members and shares; one that has residents keeps its draft length.

    Raises:
        ValueError: the server has no draft model.
    """
    if problem.server.draft is None or problem.server.draft_law is None:
        raise ValueError("server.draft must be given for speculative decoding, got none; name a draft model")
    before = problem.lane_in_force(lane_id)
    gamma = problem.server.draft_length if draft_length is None else draft_length
    return Lane(lane_id, Mode.SD, 0.0, 0.0, draft_length=gamma if before is None else before.draft_length)


def has_draft(problem: Problem) -> bool:
    """Return whether the server can speculate."""
    return problem.server.draft is not None and problem.server.draft_law is not None
