"""Any number of batches: the search against all sets of users, its bound, and what it must never fall below."""

from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from balancesim.core.batch_search import BatchSearch, lane_choices, simplex
from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import is_feasible
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.memory import speculates
from balancesim.core.request import Mode
from balancesim.policies import AdTwoBatches, Balance, MultiBatch, SdTwoBatches
from balancesim.policies.lanes import ad_lane, sd_lane
from tests.problems import make_candidates, make_problem, make_server, problems, random_problem
from tests.test_lane_models import residents

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
COARSE = {"share_step": 0.25, "refine": False}


def served(policy, problem):
    return len(policy.decide(problem).admitted)


class Brute:
    """Most users in lanes of given kinds and shares, from the feasibility of every set of users in every lane."""

    def __init__(self, problem, lanes):
        drafts = any(speculates(lane.mode, lane.draft_length) for lane in lanes)
        self.problem, self.lanes, self.known = replace(problem, uses_sd=drafts), lanes, {}
        self.ids = problem.candidates.request_id.tolist()

    def sets(self, lane):
        key = (lane.mode, lane.gpu_share, lane.memory_share)
        if key not in self.known:
            members = [c for size in range(len(self.ids) + 1) for c in combinations(self.ids, size)]
            alone = [replace(lane, members=m) for m in members]
            possible = [x for x in alone if not x.members or is_feasible(self.problem, Decision((x,)))]
            self.known[key] = [frozenset(x.members) for x in possible]
        return self.known[key]

    def most(self, gpu, memory):
        served_by = {frozenset()}
        for lane, z, share in zip(self.lanes, gpu, memory, strict=True):
            mine = self.sets(replace(lane, gpu_share=z, memory_share=share))
            served_by = {before | one for before in served_by for one in mine if not before & one}
        return max(len(members) for members in served_by)


@FEW
@given(problem=problems(max_count=4, continuous=False))
def test_at_least_half_of_all_choices_of_three_batches(problem):
    """For every choice of three modes the search has half of the best disjoint sets over the same grid of shares."""
    shares = simplex(4, 3)
    for lanes in lane_choices(problem, 3, (ad_lane(), sd_lane(problem))):
        brute = Brute(problem, lanes)
        optimum = max(brute.most(gpu, memory) for gpu in shares for memory in shares)
        found = len(BatchSearch(problem).over_grid(lanes, 4, -1).admitted)
        assert optimum >= found >= optimum / 2


@FEW
@given(problem=problems(max_count=6))
def test_never_below_the_policies_of_two_batches(problem):
    """With two batches it serves as many as the best policy of two; with residents as BALANCE, whose lanes it has."""
    mine = served(MultiBatch(max_batches=2, **COARSE), problem)
    assert mine >= served(Balance(**COARSE), problem)
    if not problem.lanes:
        assert mine == max(served(p(**COARSE), problem) for p in (Balance, AdTwoBatches, SdTwoBatches))


@FEW
@given(problem=problems())
def test_more_batches_never_hurt(problem):
    """A larger max_batches serves at least as many, in at most so many lanes (or those that have residents)."""
    counts = []
    for most in (1, 2, 3, 4):
        decision = MultiBatch(max_batches=most, **COARSE).decide(problem)
        assert is_feasible(problem, decision).reasons == ()
        assert len(decision.lanes) <= max(most, len(problem.lanes))
        counts.append(len(decision.admitted))
    assert counts == sorted(counts)


@pytest.mark.parametrize("continuous", [False, True])
def test_refinement_never_hurts(continuous):
    """Dividing lanes and shares anew starts from the best of the grid."""
    for seed in range(3):
        problem = random_problem(seed, 25, continuous=continuous, slack=(0.2, 2.0))
        assert served(MultiBatch(refine=True), problem) >= served(MultiBatch(refine=False), problem)


def test_three_kinds_of_requests_take_three_batches():
    """Short urgent, medium and long patient answers: padding lets two batches serve two kinds, three serve all."""
    users = make_candidates(
        [20] * 18, [10] * 6 + [60] * 6 + [300] * 6, [0.15] * 6 + [1.0] * 6 + [5.0] * 6, alpha=[0.0] * 18
    )
    problem = make_problem(users, make_server(9000))
    assert served(MultiBatch(max_batches=2), problem) < 18
    decision = MultiBatch().decide(problem)
    assert sorted(sorted(lane.members) for lane in decision.lanes) == [
        list(range(6)), list(range(6, 12)), list(range(12, 18)),
    ]  # fmt: skip


def test_stops_where_a_batch_adds_nobody():
    """Requests that one batch serves get one lane with the whole GPU."""
    decision = MultiBatch().decide(random_problem(1, 6, slack=(20.0, 30.0)))
    assert [(len(lane.members), lane.gpu_share) for lane in decision.lanes] == [(6, 1.0)]


def test_lanes_with_residents_stay_and_count():
    """Three lanes with residents stay though two were allowed, and new members join them, but no fourth lane."""
    lanes = (Lane(0, Mode.AD, 0.4, 0.4), Lane(1, Mode.SD, 0.3, 0.3, draft_length=4), Lane(2, Mode.AD, 0.3, 0.3))
    table = residents(
        [np.inf] * 3,
        lane_id=np.array([0, 1, 2]),
        is_sd=np.array([False, True, False]),
        draft_length=np.array([0, 4, 0]),
    )
    problem = make_problem(
        make_candidates([20] * 6, [10] * 6, [9.0] * 6), make_server(9000), ContinuousLanes(), lanes=lanes,
        make_residents=lambda: table, held_bytes=300.0, uses_sd=True,
    )  # fmt: skip
    decision = MultiBatch(max_batches=2).decide(problem)
    assert is_feasible(problem, decision).reasons == ()
    assert sorted(lane.lane_id for lane in decision.lanes) == [0, 1, 2]
    assert len(decision.admitted) == 6


def test_without_a_draft_model():
    """Without a draft model all batches are AD."""
    problem = random_problem(1, 20, slack=(0.2, 2.0))
    problem = replace(problem, server=replace(problem.server, draft=None, draft_law=None))
    decision = MultiBatch().decide(problem)
    assert {lane.mode for lane in decision.lanes} == {Mode.AD}
    assert len(decision.admitted) >= served(AdTwoBatches(), problem)


def test_simplex():
    """Three positive quarters: 1+1+2, 1+2+1, 2+1+1; in general binom(parts−1, count−1) ways."""
    assert simplex(4, 3).tolist() == [[0.25, 0.25, 0.5], [0.25, 0.5, 0.25], [0.5, 0.25, 0.25]]
    assert simplex(3, 1).tolist() == [[1.0]]
    assert len(simplex(10, 4)) == comb(9, 3)
    assert simplex(10, 4).sum(axis=1) == pytest.approx(1.0)
    assert simplex(2, 3).shape == (0, 3)


def test_choices_of_lanes():
    """Three lanes beside an SD lane 1 with residents: it stays, and 2, 1 or 0 new AD lanes join with new SD lanes."""
    problem = replace(random_problem(1, 3), lanes=(Lane(1, Mode.SD, 1.0, 1.0, draft_length=4),))
    choices = list(lane_choices(problem, 3, (ad_lane(), sd_lane(problem))))
    assert [[lane.lane_id for lane in lanes] for lanes in choices] == [[0, 2, 1], [0, 1, 3], [1, 3, 5]]
    assert [lane.draft_length for lane in choices[2]] == [4, 4, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batches": 0}, "max_batches must be at least 1, got 0"),
        ({"batch_step": 0.3}, "batch_step must be 1/2, 1/3"),
        ({"share_step": 0.0}, "share_step must be"),
        ({"draft_length": -1}, "draft_length must be at least 0"),
    ],
)
def test_bad_options(options, message):
    """A bad option is one clear line."""
    with pytest.raises(ValueError, match=message):
        MultiBatch(**options)
