"""Policies that choose modes by a rule: random and static split, earliest deadline first."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import is_feasible
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.request import Mode
from balancesim.policies import AdOnly, Edf, RandomSplit, SdOnly, StaticSplit
from tests.problems import make_candidates, make_problem, make_server, problems, random_problem
from tests.test_lane_models import residents

FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def members(decision, mode):
    return sorted(member for lane in decision.lanes if lane.mode is mode for member in lane.members)


def largest_within(problem, lane, ids):
    """Most of these users in one lane at its shares, from all subsets and `is_feasible`."""
    problem = replace(problem, uses_sd=problem.server.draft_length > 0)
    for size in range(len(ids), 0, -1):
        for chosen in combinations(ids, size):
            if is_feasible(problem, Decision((replace(lane, members=chosen),))):
                return size
    return 0


class TestSplits:
    @FEW
    @given(problem=problems(max_count=6, continuous=False))
    def test_each_group_is_served_exactly(self, problem):
        """At fixed shares each group gets its largest batch: the same as trying all its subsets."""
        users, gamma = problem.candidates, problem.server.draft_length
        limit = np.median(users.slack_s[users.slack_s > 0]) if (users.slack_s > 0).any() else 0.0
        lanes = (Lane(0, Mode.AD, 0.25, 0.75), Lane(1, Mode.SD, 0.75, 0.25, draft_length=gamma))
        groups = [users.request_id[mask].tolist() for mask in (users.slack_s >= limit, users.slack_s < limit)]
        expected = [largest_within(problem, lane, ids) for lane, ids in zip(lanes, groups, strict=True)]
        decision = StaticSplit(gpu_share=0.25, memory_share=0.75).decide(problem)
        assert [len(members(decision, mode)) for mode in (Mode.AD, Mode.SD)] == expected

    def test_urgent_requests_speculate(self):
        """Below the threshold SD, from it on AD; without one the tighter half of those still alive."""
        users = make_candidates([10] * 6, [10] * 6, [-1.0, 1.0, 2.0, 3.0, 4.0, np.inf])
        problem = make_problem(users)
        assert members(StaticSplit(sd_below_s=2.0).decide(problem), Mode.SD) == [1]
        assert members(StaticSplit(sd_below_s=2.0).decide(problem), Mode.AD) == [2, 3, 4, 5]
        assert members(StaticSplit().decide(problem), Mode.SD) == [1, 2]  # the median of 1, 2, 3, 4, inf is 3

    def test_coins_are_fair_keyed_and_free_of_order(self):
        """Of 500 requests half are AD within 4 standard deviations; a request's coin depends on seed and number."""
        count = 500
        users = make_candidates([1] * count, [1] * count, [np.inf] * count)
        problem = make_problem(users, make_server(30_000))
        ad = set(members(RandomSplit().decide(problem), Mode.AD))
        assert abs(len(ad) - count / 2) < 4 * np.sqrt(count / 4)
        turned = replace(problem, epoch=7, candidates=users.take(np.arange(count)[::-2]))
        assert set(members(RandomSplit().decide(turned), Mode.AD)) == ad & set(range(1, count, 2))
        assert set(members(RandomSplit(seed=1).decide(problem), Mode.AD)) != ad

    @pytest.mark.parametrize(("probability", "mode"), [(1.0, Mode.AD), (0.0, Mode.SD)])
    def test_a_certain_coin(self, probability, mode):
        """With certainty all are of one mode, at the fixed share of that mode's lane, which then gets all the room."""
        decision = RandomSplit(ad_probability=probability).decide(random_problem(1, 8))
        assert [(lane.mode, lane.gpu_share) for lane in decision.lanes] == [(mode, 1.0)]

    @pytest.mark.parametrize("policy", [RandomSplit(gpu_share=0.9), StaticSplit(gpu_share=0.9)])
    def test_residents_are_not_starved(self, policy):
        """A fixed share that would break a resident's deadline gives way to the shares in force."""
        lanes = (Lane(0, Mode.AD, 0.2, 0.5), Lane(1, Mode.SD, 0.8, 0.5, draft_length=4))
        table = residents(
            [np.inf, np.inf], lane_id=np.array([0, 1]), is_sd=np.array([False, True]), draft_length=np.array([0, 4])
        )
        users = make_candidates([10] * 4, [10] * 4, [9.0] * 4)
        problem = make_problem(
            users, make_server(9000), ContinuousLanes(), lanes=lanes, make_residents=lambda: table, held_bytes=200.0,
            uses_sd=True,
        )  # fmt: skip
        needed = float(problem.lane_model.predict(problem, lanes[1]).finish_s[0])
        table = replace(table, slack_s=np.array([np.inf, needed * 1.001]))
        decision = policy.decide(replace(problem, make_residents=lambda: table))
        assert is_feasible(replace(problem, make_residents=lambda: table), decision).reasons == ()
        assert [lane.gpu_share for lane in decision.lanes] == [0.2, 0.8]

    @pytest.mark.parametrize("policy", [RandomSplit(), StaticSplit(), Edf()])
    def test_without_a_draft_model(self, policy):
        """Without a draft model all are AD with the whole GPU."""
        problem = random_problem(1, 6, slack=(5.0, 9.0))
        problem = replace(problem, server=replace(problem.server, draft=None, draft_law=None))
        decision = policy.decide(problem)
        assert members(decision, Mode.AD) == members(AdOnly().decide(problem), Mode.AD)
        assert decision.lanes[0].gpu_share == 1.0


class TestEdf:
    def test_walk_by_hand(self):
        """TARGET_LAW, AD alone: 1 prompt of 10, 10 answers takes (2e-3 + 2e-4 + ...) a step, about 0.02 s.

        Request 2 has the earliest deadline but 0.001 s left: it is passed over. 0 and 1 are admitted; 3, of 4,000
        tokens, would make both late (80 s of steps) and is passed over, though its own deadline is far.
        """
        users = make_candidates([10, 10, 10, 10], [10, 10, 10, 4000], [0.5, 0.6, 0.001, 99.0])
        problem = make_problem(users, make_server(20_000))
        problem = replace(problem, server=replace(problem.server, draft=None, draft_law=None))
        assert Edf().decide(problem).admitted == (0, 1)

    def test_mode_in_which_it_ends_first(self):
        """At equal shares, acceptance 1 ends first in SD (5 tokens a round), acceptance 0 in AD (no drafts made)."""
        users = make_candidates([10] * 4, [50] * 4, [5.0] * 4, alpha=[1.0, 0.0, 1.0, 0.0])
        decision = Edf(gpu_share=0.5).decide(make_problem(users))
        assert members(decision, Mode.SD) == [0, 2]
        assert members(decision, Mode.AD) == [1, 3]

    @FEW
    @given(problem=problems(max_count=6))
    def test_each_could_not_join_before(self, problem):
        """At a fixed z nobody who waits could join the lanes as they are, with the memory that is left."""
        decision = Edf(gpu_share=0.5).decide(problem)
        free = problem.server.free_bytes(uses_sd=problem.uses_sd or problem.server.draft_length > 0)
        predictions = [problem.lane_model.predict(problem, lane) for lane in decision.lanes]
        held = sum(prediction.reserved_bytes for prediction in predictions)
        if len(decision.lanes) < 2 or any(lane.gpu_share != 0.5 for lane in decision.lanes):
            return
        for request_id in set(problem.candidates.request_id.tolist()) - set(decision.admitted):
            for lane, prediction in zip(decision.lanes, predictions, strict=True):
                joined = replace(lane, members=(*lane.members, request_id))
                after = problem.lane_model.predict(problem, joined)
                finite = np.isfinite(after.finish_s[: len(joined.members)]).all()
                more = held - prediction.reserved_bytes + after.reserved_bytes
                assert after.late.any() or not finite or more > free

    @FEW
    @given(problem=problems())
    def test_never_above_what_shares_allow(self, problem):
        """With one lane only, the walk cannot beat the exact single batch of static lanes."""
        without = replace(problem, server=replace(problem.server, draft=None, draft_law=None, draft_length=0))
        if problem.lane_model.name.startswith("static"):
            assert len(Edf().decide(without).admitted) <= len(AdOnly().decide(without).admitted)

    def test_alone_is_compared(self):
        """Where sharing costs, one mode with the whole GPU is taken: 0.16 s left, 100 tokens, acceptance 1."""
        users = make_candidates([50] * 4, [100] * 4, [0.16] * 4, alpha=[1.0] * 4)
        problem = make_problem(users, make_server(9000))
        assert len(SdOnly().decide(problem).admitted) == 4
        decision = Edf().decide(problem)
        assert [(lane.mode, lane.gpu_share) for lane in decision.lanes] == [(Mode.SD, 1.0)]
        assert len(decision.admitted) == 4


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (RandomSplit, {"ad_probability": 1.5}, "ad_probability must be between 0 and 1, got 1.5"),
        (RandomSplit, {"seed": -1}, "seed must be at least 0, got -1"),
        (RandomSplit, {"gpu_share": 0.0}, "gpu_share must be above 0"),
        (StaticSplit, {"sd_below_s": -1.0}, "sd_below_s must be at least 0, got -1.0"),
        (StaticSplit, {"memory_share": 1.0}, "memory_share must be above 0 and below 1, got 1.0"),
        (Edf, {"share_step": 0.3}, "share_step must be"),
        (Edf, {"gpu_share": -0.5}, "gpu_share must be above 0"),
        (Edf, {"draft_length": -2}, "draft_length must be at least 0"),
    ],
)
def test_bad_options(policy, options, message):
    """A bad option is one clear line."""
    with pytest.raises(ValueError, match=message):
        policy(**options)
