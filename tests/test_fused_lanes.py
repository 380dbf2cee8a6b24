"""Predictions of the fused process, the policies that plan for it, and the scenario keys."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import check_structure, is_feasible, predict
from balancesim.core.fused_lanes import FusedLanes
from balancesim.core.goodput import GoodputRule
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.request import Mode
from balancesim.policies import AdOnly, Balance, BestSingleMode, Fcfs, GoodputSd, SdOnly
from tests.fused_twin import passes_s
from tests.problems import make_candidates, make_problem, make_server, problems, random_problem
from tests.scenario_files import changed, complaints

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Always:
    def lengths(self, server, members):
        return members.longest_draft


def fused(problem):
    return replace(problem, lane_model=FusedLanes())


@pytest.mark.parametrize("lane", [Lane(0, Mode.AD, 1.0, 1.0), Lane(1, Mode.SD, 1.0, 1.0, draft_length=4)])
def test_one_lane_is_a_continuous_lane_with_the_whole_gpu(lane):
    """Completion times, slacks and memory are those of a continuous lane, residents included."""
    for seed in range(8):
        problem = random_problem(seed, 6, continuous=True, residents=7)
        inside = problem.residents
        mine = inside.lane_id == lane.lane_id
        table = replace(inside, **{name: column[mine] for name, column in vars(inside).items()})
        lanes = (lane,) if mine.any() else ()
        problem = replace(problem, lanes=lanes, make_residents=lambda table=table: table)
        full = replace(lane, members=tuple(problem.candidates.request_id.tolist()))
        ours, theirs = FusedLanes().predict(problem, full), ContinuousLanes().predict(problem, full)
        assert ours.request_id.tolist() == theirs.request_id.tolist()
        assert ours.finish_s == pytest.approx(theirs.finish_s, rel=1e-12)
        assert ours.slack_s.tolist() == theirs.slack_s.tolist()
        assert ours.reserved_bytes == pytest.approx(theirs.reserved_bytes, rel=1e-12)
        assert FusedLanes().new_bytes(problem, full) == ContinuousLanes().new_bytes(problem, full)


def test_mixed_lanes_by_walking():
    """AD and SD together, α = 1 so that γ + 1 tokens are sure: the end of each from passes added up one by one."""
    server = make_server(9000, 2)
    users = make_candidates([30, 20, 10], [4, 7, 2], [np.inf] * 3, alpha=[1.0] * 3, upload=[0.0, 0.1, 0.0])
    problem = make_problem(users, server, FusedLanes())
    lanes = (Lane(0, Mode.AD, 0.3, 0.5, (0, 2)), Lane(1, Mode.SD, 0.7, 0.5, (1,), 2))
    # prompts of 60 tokens on the target, of 20 on the draft (LinearLaw: 2 ms + 20 us a row, 0.3 ms + 3 us a row)
    prefill = 2e-3 + 60 * 2e-5 + 3e-4 + 20 * 3e-6
    first = prefill + passes_s(server, [(31, 0), (21, 2), (11, 0)])  # request 2 is done
    second = first + passes_s(server, [(32, 0), (24, 2)])  # request 1 has its 7 tokens
    third = second + passes_s(server, [(33, 0)])
    ad, sd = predict(problem, Decision(lanes))
    assert ad.finish_s == pytest.approx([third, first], rel=1e-12)
    assert sd.finish_s == pytest.approx([second + 0.1], rel=1e-12)
    ruled = (lanes[0], replace(lanes[1], draft_rule=Always()))
    for plain, chosen in zip((ad, sd), predict(problem, Decision(ruled)), strict=True):
        assert chosen.finish_s == pytest.approx(plain.finish_s, rel=1e-12)


@pytest.mark.parametrize("policy", [Fcfs(), Fcfs(Mode.SD), GoodputSd(), GoodputSd(max_draft_length=0)])
@FEW
@given(problem=problems(continuous=True))
def test_blind_policies_break_no_structure(policy, problem):
    """Decisions of policies that do not look at deadlines keep all other rules."""
    problem = fused(problem)
    check_structure(problem, policy.decide(problem))


@pytest.mark.parametrize("policy", [AdOnly(), SdOnly(), BestSingleMode()])
@FEW
@given(problem=problems(continuous=True))
def test_single_modes_keep_deadlines(policy, problem):
    """Decisions of the single modes pass every check of the fused prediction."""
    problem = fused(problem)
    assert is_feasible(problem, policy.decide(problem)).reasons == ()


def test_single_modes_serve_as_many_as_continuous():
    """On an empty server fused AD only and SD only are those of continuous batching."""
    for seed in range(6):
        problem = random_problem(seed, 10, continuous=True, slack=(0.2, 1.5))
        for policy in (AdOnly(), SdOnly()):
            assert policy.decide(fused(problem)).admitted == policy.decide(problem).admitted


class TestRules:
    def test_one_rule(self):
        """One rule chooses for all lanes that speculate; an AD lane beside them needs none."""
        users = make_candidates([5, 5], [5, 5], [np.inf] * 2)
        problem = make_problem(users, lane_model=FusedLanes())
        ruled = Lane(1, Mode.SD, 0.5, 0.5, (0,), 4, draft_rule=GoodputRule())
        assert is_feasible(problem, Decision((ruled, Lane(0, Mode.AD, 0.5, 0.5, (1,)))))
        reasons = is_feasible(problem, Decision((ruled, Lane(3, Mode.SD, 0.5, 0.5, (1,), 2)))).reasons
        assert len(reasons) == 1
        assert reasons[0].startswith("draft_rule must be the same for all lanes that speculate")

    def test_the_rule_stays(self):
        """A lane with residents keeps its rule; goodput_sd keeps whatever rule and limit its residents have."""
        before = Lane(1, Mode.SD, 1.0, 1.0, draft_length=3, draft_rule=GoodputRule(per_request=False))
        problem = fused(random_problem(2, 2, continuous=True))
        problem = replace(problem, lanes=(before,), uses_sd=True)
        lane = GoodputSd(max_draft_length=6).decide(problem).lanes[0]
        assert (lane.draft_length, lane.draft_rule) == (3, before.draft_rule)
        reasons = is_feasible(problem, Decision((replace(lane, draft_rule=None),))).reasons
        assert any("draft_rule must stay" in reason for reason in reasons)


class TestPolicy:
    def test_admits_as_fcfs(self):
        """goodput_sd admits whom fcfs admits in SD, into one lane with a rule."""
        problem = fused(random_problem(4, 12, continuous=True, server=make_server(6000)))
        ours, theirs = GoodputSd().decide(problem), Fcfs(Mode.SD).decide(problem)
        assert ours.admitted == theirs.admitted
        assert len(ours.admitted) > 0
        assert [lane.draft_rule for lane in ours.lanes] == [GoodputRule()]

    def test_bad_options(self):
        """A negative limit, and a server that cannot draft, are one clear line each."""
        with pytest.raises(ValueError, match="max_draft_length must be at least 0, got -1"):
            GoodputSd(max_draft_length=-1)
        problem = fused(random_problem(1, 3, continuous=True))
        problem = replace(problem, server=replace(problem.server, draft=None, draft_law=None))
        with pytest.raises(ValueError, match=r"server\.draft must be given"):
            GoodputSd().decide(problem)

    def test_two_lanes_cannot_divide_one_process(self):
        """BALANCE's pairs of lanes need slices."""
        with pytest.raises(ValueError, match="must be one that slices the GPU for a policy of two lanes, got fused"):
            Balance().decide(fused(random_problem(1, 8, continuous=True, slack=(0.05, 0.3))))


class TestScenario:
    ON = ("scheduling.discipline=fused", 'run.policies=["fcfs", "ad_only", "sd_only", "goodput_sd"]')

    def test_loads(self, tmp_path):
        """The policies of one lane and goodput_sd run under the discipline."""
        assert len(changed(tmp_path, *self.ON).policies) == 4

    def test_policies_of_two_lanes_are_refused(self, tmp_path):
        """A policy that does not say that it plans for fused is refused with a hint."""
        found = complaints(tmp_path, "scheduling.discipline=fused", 'run.policies=["balance"]')
        assert len(found) == 1
        assert "discipline must be another for this policy, got fused" in found[0]

    def test_goodput_needs_fused(self, tmp_path):
        """Under time slices nobody chooses draft lengths step by step."""
        found = complaints(tmp_path, 'run.policies=["goodput_sd"]')
        assert len(found) == 1
        assert "discipline must be fused for this policy, got continuous" in found[0]

    def test_bad_limit(self, tmp_path):
        """γ_max below 0 names the key."""
        policies = 'run.policies=[{kind = "goodput_sd", max_draft_length = -2}]'
        found = complaints(tmp_path, self.ON[0], policies)
        assert any("must be at least 0, got -2" in line for line in found)
