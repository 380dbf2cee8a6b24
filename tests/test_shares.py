import numpy as np

from balancesim.core.shares import pair_grid
from balancesim.policies.lanes import ad_lane, sd_lane
from tests.problems import make_problem, random_candidates


def test_what_rounding_leaves_of_a_share_is_nothing():
    """1 − 0.9 − 0.1 is not 0 in floating point: such a share would be a window shorter than any switch."""
    problem = make_problem(random_candidates(np.random.default_rng(1), 3))
    rest = np.array([1.0 - 0.9 - 0.1, 0.5])
    assert 0 < abs(rest[0]) < 1e-9
    grid = pair_grid(problem, (ad_lane(), sd_lane(problem, 4)), (abs(rest), 1.0 - rest), (abs(rest), 1.0 - rest))
    assert grid.gpu[0].tolist() == [0.0, 0.5]
    assert grid.memory[0].tolist() == [0.0, 0.5]
