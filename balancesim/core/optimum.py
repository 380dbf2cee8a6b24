"""The exact optimum of problem P0 for padded batches (model.md §5): one AD and one SD batch, or one of them alone.

Three ways that share nothing but the cost tables: `core.optimum_exhaustive`, `core.optimum_two_colour` and
`core.optimum_milp`. Shares are continuous (any z and λ), or those of a grid.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from balancesim.core.decision import AD_LANE, SD_LANE, Decision, Lane
from balancesim.core.problem import Problem
from balancesim.core.request import Mode
from balancesim.core.shares import free_for
from balancesim.core.solver import best_of, complete, single, unchanged
from balancesim.units import BoolArray, FloatArray


def _any() -> FloatArray:
    return np.empty(0)


@dataclass(frozen=True)
class ShareChoice:
    """Which z and λ the optimum may use when both modes are in use; an empty axis = any."""

    gpu: FloatArray = field(default_factory=_any)
    memory: FloatArray = field(default_factory=_any)


@dataclass(frozen=True)
class Optimum:
    """A decision and what is proved about it."""

    decision: Decision
    bound: int  #: no feasible decision over the same shares serves more
    nodes: int  #: of the search, or assignments tried

    @property
    def served(self) -> int:
        """Requests in time."""
        return len(self.decision.admitted)

    @property
    def proved(self) -> bool:
        """Whether the decision is an optimum."""
        return self.served >= self.bound


def lanes_of(problem: Problem) -> tuple[Lane, Lane]:
    """Return the AD and the SD lane without members and shares.

    Raises:
        ValueError: the problem is not one of padded batches on an empty server with a draft model.
    """
    if problem.lane_model.name != "static" or problem.lanes:
        raise ValueError(
            f"scheduling.discipline must be static for the exact optimum, got {problem.lane_model.name}; "
            "use balance, which takes any discipline"
        )
    return Lane(AD_LANE, Mode.AD, 0.0, 0.0), Lane(SD_LANE, Mode.SD, 0.0, 0.0, draft_length=problem.server.draft_length)


def can_draft(problem: Problem) -> bool:
    """Return whether the server has a draft model."""
    return problem.server.draft is not None and problem.server.draft_law is not None


def best_alone(problem: Problem) -> Decision:
    """Return the better of AD alone and SD alone, each with the whole GPU and its own free memory: exact."""
    lanes = lanes_of(problem)[: 2 if can_draft(problem) else 1]
    subs = [problem.lane_model.sub_problem(problem, lane) for lane in lanes]
    return best_of(problem, [single(problem, lane, sub) for lane, sub in zip(lanes, subs, strict=True)])


def side_by_side(
    problem: Problem, masks: tuple[BoolArray, BoolArray], gpu_share: float, memory_share: float
) -> Decision:
    """Return the decision with these members (masks over the candidates), z and λ."""
    shares = ((gpu_share, memory_share), (1.0 - gpu_share, 1.0 - memory_share))
    lanes = tuple(
        replace(lane, gpu_share=gpu, memory_share=memory)
        for lane, (gpu, memory) in zip(lanes_of(problem), shares, strict=True)
    )
    if not masks[0].any() and not masks[1].any():
        return unchanged(problem)
    return complete(problem, lanes, masks)


def both_free_bytes(problem: Problem) -> float:
    """Return the KV memory when both modes are in use: W_S is taken off."""
    return free_for(problem, lanes_of(problem))


def memory_share_for(choice: ShareChoice, bytes_ad: float, bytes_sd: float, free: float) -> float:
    """Return a λ that gives both lanes their bytes: the middle of what is possible, or the smallest of the axis."""
    low, high = bytes_ad / free, 1.0 - bytes_sd / free
    if not len(choice.memory):
        return (low + high) / 2.0
    return float(min(share for share in choice.memory.tolist() if low <= share + 1e-9))
