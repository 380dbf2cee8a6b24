"""The shares of lanes and the memory that they stand for."""

import numpy as np
import pytest

from balancesim.core.decision import Lane
from balancesim.core.feasibility import is_feasible
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.request import Mode
from balancesim.core.shares import lane_limits, pair_grid
from balancesim.policies import AdTwoBatches, Balance, MultiBatch, SdTwoBatches
from balancesim.policies.lanes import ad_lane, sd_lane
from tests.problems import TARGET, make_candidates, make_problem, make_server, random_candidates
from tests.test_lane_models import residents

TOKEN = TARGET.kv_bytes_per_token


def test_what_rounding_leaves_of_a_share_is_nothing():
    """1 − 0.9 − 0.1 is not 0 in floating point: such a share would be a window shorter than any switch."""
    problem = make_problem(random_candidates(np.random.default_rng(1), 3))
    rest = np.array([1.0 - 0.9 - 0.1, 0.5])
    assert 0 < abs(rest[0]) < 1e-9
    grid = pair_grid(problem, (ad_lane(), sd_lane(problem, 4)), (abs(rest), 1.0 - rest), (abs(rest), 1.0 - rest))
    assert grid.gpu[0].tolist() == [0.0, 0.5]
    assert grid.memory[0].tolist() == [0.0, 0.5]


def limits(held, shares, others=0.0):
    """Limits in parts of a memory of 100 tokens, for lanes 0, 2, … whose residents hold these tokens."""
    server = make_server(100)
    table = residents([np.inf] * len(held), lane_id=2 * np.arange(len(held)), reserved_bytes=np.array(held) * TOKEN)
    lanes = tuple(Lane(2 * place, Mode.AD, 0.1, 0.1) for place in range(len(held)))
    problem = make_problem(
        make_candidates([], [], []), server, ContinuousLanes(), lanes=lanes, make_residents=lambda: table,
        held_bytes=(sum(held) + others) * TOKEN,
    )  # fmt: skip
    return (lane_limits(problem, lanes, np.array([shares])) / TOKEN)[0]


def test_lane_limits():
    """Within their shares lanes have share·free; what an outgrown lane holds is taken off the others in proportion.

    100 tokens. Lane 0 holds 50 of its 20: the others divide 50 as 60 : 20, lane 0 itself gets less than it holds. If
    then 20 : 60 leaves lane 2 with 12.5 < 15 that it holds, lane 4 gets 100 − 50 − 15.
    """
    assert limits([10.0, 5.0], [0.7, 0.3]) == pytest.approx([70.0, 30.0])
    assert limits([50.0, 0.0, 0.0], [0.2, 0.6, 0.2])[1:] == pytest.approx([37.5, 12.5])
    assert limits([50.0, 0.0, 0.0], [0.2, 0.6, 0.2])[0] < 50
    assert limits([50.0, 15.0, 0.0], [0.2, 0.2, 0.6])[2] == pytest.approx(35.0)
    assert limits([0.0, 0.0], [0.4, 0.4], others=40.0) == pytest.approx([30.0, 30.0])


@pytest.mark.parametrize("policy", [MultiBatch(), AdTwoBatches(), SdTwoBatches(), Balance()])
def test_outgrown_residents_leave_less_to_all(policy):
    """An SD lane holds 600 of some 800 tokens at a tenth of the memory: what two other lanes admit fits beside it."""
    table = residents(
        [np.inf] * 2, lane_id=np.array([0, 1]), is_sd=np.array([False, True]), draft_length=np.array([0, 1]),
        reserved_bytes=np.array([1.0, 600.0]) * TOKEN,
    )  # fmt: skip
    lanes = (Lane(0, Mode.AD, 0.5, 0.9), Lane(1, Mode.SD, 0.5, 0.1, draft_length=1))
    users = make_candidates([30] * 10, [10, 90] * 5, [0.4, 6.0] * 5)
    problem = make_problem(
        users, make_server(5000, 1), ContinuousLanes(), lanes=lanes, make_residents=lambda: table,
        held_bytes=601 * TOKEN, uses_sd=True,
    )  # fmt: skip
    decision = policy.decide(problem)
    assert is_feasible(problem, decision).reasons == ()
    assert decision.admitted
