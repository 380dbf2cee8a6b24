"""The baselines against what they must equal, contain or never fall below."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import is_feasible
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.request import Mode
from balancesim.policies import (
    POLICIES,
    AdOnly,
    AdTwoBatches,
    BestSingleMode,
    Edf,
    MultiBatch,
    RandomSplit,
    SdOnly,
    SdTwoBatches,
    StaticSplit,
)
from tests.problems import make_candidates, make_problem, make_server, problems, random_problem
from tests.test_lane_models import residents

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
GRID = (0.25, 0.5, 0.75)


def served(policy, problem):
    return len(policy.decide(problem).admitted)


def without_draft(problem):
    return replace(problem, server=replace(problem.server, draft=None, draft_law=None))


class TestBestSingleMode:
    @FEW
    @given(problem=problems())
    def test_is_the_better_of_the_two(self, problem):
        """It serves exactly as many as the better of AD only and SD only, by one of their decisions."""
        both = [policy.decide(problem) for policy in (AdOnly(), SdOnly())]
        mine = BestSingleMode().decide(problem)
        assert len(mine.admitted) == max(len(decision.admitted) for decision in both)
        assert mine in both

    def test_mode_stays_while_residents_hold_the_gpu(self):
        """An AD lane with the whole GPU leaves SD no room: requests that only SD serves in time wait."""
        users = make_candidates([50] * 4, [100] * 4, [0.16] * 4, alpha=[1.0] * 4)
        empty = make_problem(users, make_server(9000), ContinuousLanes())
        assert (served(AdOnly(), empty), served(SdOnly(), empty)) == (0, 4)
        assert served(BestSingleMode(), empty) == 4
        lanes = (Lane(0, Mode.AD, 1.0, 1.0),)
        table = residents([np.inf])
        busy = replace(empty, lanes=lanes, make_residents=lambda: table, held_bytes=100.0)
        decision = BestSingleMode().decide(busy)
        assert [(lane.lane_id, lane.gpu_share, lane.members) for lane in decision.lanes] == [(0, 1.0, ())]

    def test_without_a_draft_model(self):
        """Without a draft model it is AD only."""
        problem = without_draft(random_problem(1, 6))
        assert BestSingleMode().decide(problem) == AdOnly().decide(problem)


def most_in_two_batches(problem, mode):
    """Most users in one batch with the whole GPU or two over GRID, from all sets of users and `is_feasible`."""
    gamma = problem.server.draft_length if mode is Mode.SD else 0
    problem = replace(problem, uses_sd=mode is Mode.SD and gamma > 0)
    ids = problem.candidates.request_id.tolist()
    sets = [frozenset(members) for size in range(len(ids) + 1) for members in combinations(ids, size)]

    def possible(gpu, memory):
        lanes = [(members, Lane(0, mode, gpu, memory, tuple(sorted(members)), gamma)) for members in sets]
        return [members for members, lane in lanes if is_feasible(problem, Decision((lane,)))]

    best = max(len(members) for members in possible(1.0, 1.0))
    for z in GRID:
        for share in GRID:
            first, second = possible(z, share), possible(1.0 - z, 1.0 - share)
            best = max([best, *(len(one) + len(two) for one in first for two in second if not one & two)])
    return best


class TestTwoBatches:
    @FEW
    @given(problem=problems())
    def test_never_below_one_batch_of_the_mode(self, problem):
        """The single batch with the whole GPU is among what is compared."""
        assert served(AdTwoBatches(share_step=0.25, refine=False), problem) >= served(AdOnly(), problem)
        assert served(SdTwoBatches(share_step=0.25, refine=False), problem) >= served(SdOnly(), problem)

    @settings(FEW, max_examples=10)
    @given(problem=problems(max_count=4, continuous=False))
    def test_at_least_half_of_all_pairs_of_sets(self, problem):
        """Two batches of a mode serve at least half of the best two disjoint sets over the same grid."""
        pairs = ((AdTwoBatches(0.25, False), Mode.AD), (SdTwoBatches(0.25, False), Mode.SD))
        for policy, mode in pairs:
            optimum = most_in_two_batches(problem, mode)
            assert optimum >= served(policy, problem) >= optimum / 2

    def test_separates_short_from_long(self):
        """Eight short urgent answers and two long patient ones: one batch pads to the long, two batches serve all.

        AD steps cost about 2 ms: 10 tokens take 0.02 s, 200 tokens 0.4 s; the urgent have 0.2 s.
        """
        users = make_candidates([20] * 10, [10] * 8 + [200] * 2, [0.2] * 8 + [4.0] * 2)
        problem = make_problem(users)
        assert served(AdOnly(), problem) == 8
        decision = AdTwoBatches().decide(problem)
        assert [lane.mode for lane in decision.lanes] == [Mode.AD, Mode.AD]
        assert sorted(sorted(lane.members) for lane in decision.lanes) == [list(range(8)), [8, 9]]

    def test_one_draft_model_for_both(self):
        """Two SD batches take the draft's weights off the memory once, and never an AD lane."""
        users = make_candidates([20] * 10, [10] * 8 + [400] * 2, [0.1] * 8 + [4.0] * 2)
        decision = SdTwoBatches().decide(make_problem(users))
        assert {lane.mode for lane in decision.lanes} == {Mode.SD}
        assert len(decision.admitted) == 10

    def test_both_lanes_with_residents_stay(self):
        """Residents of lanes 0 and 2 keep both lanes, with shares of the whole, and new members may join either."""
        table = residents([np.inf, np.inf], lane_id=np.array([0, 2]))
        lanes = (Lane(0, Mode.AD, 0.3, 0.5), Lane(2, Mode.AD, 0.7, 0.5))
        users = make_candidates([20] * 6, [10] * 4 + [200] * 2, [0.5] * 4 + [9.0] * 2)
        problem = make_problem(
            users, make_server(9000), ContinuousLanes(), lanes=lanes, make_residents=lambda: table, held_bytes=200.0
        )
        decision = AdTwoBatches().decide(problem)
        assert is_feasible(problem, decision).reasons == ()
        assert sorted(lane.lane_id for lane in decision.lanes) == [0, 2]
        assert sum(lane.gpu_share for lane in decision.lanes) == pytest.approx(1.0)
        assert len(decision.admitted) == 6

    def test_options(self):
        """Fixed shares are kept, and wrong options are one clear line."""
        users = make_candidates([20] * 10, [10] * 8 + [200] * 2, [0.2] * 8 + [4.0] * 2)
        policy = AdTwoBatches(gpu_share=0.4, memory_share=0.3)
        lanes = policy.decide(make_problem(users)).lanes
        assert [(lane.gpu_share, lane.memory_share) for lane in lanes] == [(0.4, 0.3), (0.6, 0.7)]
        with pytest.raises(ValueError, match="gpu_share must be above 0 and below 1, got 2"):
            AdTwoBatches(gpu_share=2.0)
        with pytest.raises(ValueError, match="share_step must be"):
            SdTwoBatches(share_step=0.3)
        with pytest.raises(ValueError, match="draft_length must be at least 0"):
            SdTwoBatches(draft_length=-1)

    def test_no_draft_model(self):
        """Two SD batches need a draft model and say so; two AD batches do not."""
        problem = without_draft(random_problem(1, 6))
        assert len(AdTwoBatches().decide(problem).admitted) > 0
        with pytest.raises(ValueError, match=r"server\.draft must be given"):
            SdTwoBatches().decide(problem)


SHARING = [policy() for policy in POLICIES if hasattr(policy(), "smallest_gpu_share")]


def test_policies_that_divide_the_gpu_say_so():
    """A policy with two lanes or more states its smallest share, so that a switch cost above its window is found."""
    assert {policy.name for policy in SHARING} >= {
        "balance", "balance_rate", "ad_two_batches", "sd_two_batches", "multi_batch", "random_split", "static_split",
        "edf",
    }  # fmt: skip


@pytest.mark.parametrize("policy", SHARING, ids=lambda policy: policy.name)
@pytest.mark.parametrize("continuous", [False, True])
def test_no_lane_below_the_smallest_share(policy, continuous):
    """Of twelve decisions no lane has a smaller share of the GPU than the policy states."""
    for seed in range(12):
        problem = random_problem(seed, 24, continuous=continuous, slack=(0.1, 3.0))
        shares = [lane.gpu_share for lane in policy.decide(problem).lanes]
        assert min(shares) >= policy.smallest_gpu_share * (1 - 1e-9)


@pytest.mark.parametrize(
    ("policy", "smallest"),
    [
        (AdTwoBatches(), 0.025),  # a quarter of the step around the best
        (AdTwoBatches(refine=False), 0.1),
        (SdTwoBatches(gpu_share=0.7), 0.3),
        (MultiBatch(refine=False, batch_step=0.05), 0.05),
        (RandomSplit(gpu_share=0.25), 0.25),
        (StaticSplit(gpu_share=0.75), 0.25),
        (Edf(), 0.25),
        (Edf(gpu_share=0.9), 0.1),
    ],
)
def test_smallest_shares(policy, smallest):
    """The smallest share follows from the options."""
    assert policy.smallest_gpu_share == pytest.approx(smallest)
