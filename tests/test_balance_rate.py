"""BALANCE by the second: against the best rate by trying everything, and where decisions are not frozen."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import is_feasible
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.request import Mode
from balancesim.policies import Balance, BalanceRate, BestSingleMode
from tests.problems import make_candidates, make_problem, problems, random_problem
from tests.test_padded import COUNTING

GRID = (0.25, 0.5, 0.75)


def length_s(decision):
    return max((lane.predicted_finish_s for lane in decision.lanes), default=0.0)


def best_rate_hz(problem):
    """Highest served/length over all assignments to AD and SD and all shares of the grid, each mode alone included."""
    best = 0.0
    for assignment in product("-AS", repeat=len(problem.candidates)):
        ids = problem.candidates.request_id.tolist()
        ad, sd = (tuple(i for i, mode in zip(ids, assignment, strict=True) if mode == m) for m in "AS")
        both = [(z, 1 - z, m, 1 - m) for z, m in product(GRID, GRID)]
        for z, rest, memory, other in both if ad and sd else [(1.0, 1.0, 1.0, 1.0)]:
            lanes = [Lane(0, Mode.AD, z, memory, ad)] if ad else []
            lanes += [Lane(1, Mode.SD, rest, other, sd, problem.server.draft_length)] if sd else []
            if lanes and is_feasible(problem, Decision(tuple(lanes))):
                length = max(problem.lane_model.predict(problem, lane).finish_s.max() for lane in lanes)
                best = max(best, (len(ad) + len(sd)) / length)
    return best


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(max_count=4, continuous=False))
def test_at_least_the_proved_part_of_the_best_rate(problem):
    """Served per second is at least length_ratio/2 of the best, as long as no decision shorter than tried wins."""
    policy = BalanceRate(share_step=0.25, length_ratio=0.9, shortest=1e-6)
    decision = policy.decide(problem)
    assert is_feasible(problem, decision)
    rate = len(decision.admitted) / length_s(decision) if decision.admitted else 0.0
    assert rate >= 0.45 * best_rate_hz(problem) * (1 - 1e-9)


def test_leaves_the_long_answer_for_later():
    """Two short answers take 2 + (2 + 2·2) = 8 s; the long one adds 58 steps: the short ones go first."""
    users = make_candidates([1, 1, 1], [2, 2, 60], [np.inf] * 3)
    problem = make_problem(users, replace(COUNTING, draft=None, draft_law=None))
    assert Balance().decide(problem).admitted == (0, 1, 2)
    decision = BalanceRate().decide(problem)
    assert (sorted(decision.admitted), length_s(decision)) == ([0, 1], 8.0)


def test_is_balance_where_decisions_are_not_frozen():
    """In continuous batching a lane never ends, so that its length is no reason to leave somebody out."""
    problem = random_problem(4, 6, continuous=True, residents=3)
    assert isinstance(problem.lane_model, ContinuousLanes)
    assert BalanceRate().decide(problem) == Balance(refine=False).decide(problem)


def test_one_mode_a_decision():
    """Without hybrids a decision has one lane, and in continuous batching it is the better single mode's."""
    policy = BalanceRate(hybrid=False)
    for seed in range(5):
        assert len(policy.decide(random_problem(seed, 12, slack=(0.3, 1.0))).lanes) == 1
    problem = random_problem(4, 6, continuous=True)
    assert policy.decide(problem) == BestSingleMode().decide(problem)
    assert policy.smallest_gpu_share == 1.0


@pytest.mark.parametrize("options", [{"length_ratio": 1.0}, {"shortest": 0.0}, {"share_step": 0.3}])
def test_bad_options(options):
    """A bad option is one clear line."""
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        BalanceRate(**options)
