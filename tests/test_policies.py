"""Contract of every policy, and of BALANCE's family among themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancesim.core.brute_force import exhaustive
from balancesim.core.feasibility import check_structure, is_feasible
from balancesim.core.fused_lanes import FusedLanes
from balancesim.core.lane_models import LANE_MODELS, ContinuousLanes, PipelineLanes, StaticLanes
from balancesim.core.problem import no_residents
from balancesim.policies import POLICIES, AdOnly, Balance, Fcfs, SdOnly
from tests.problems import in_pipeline, make_candidates, make_problem, make_server, problems, random_problem

#: Policies that do not look at deadlines: their decisions keep all rules but those.
BLIND = {"fcfs", "goodput_sd", "pipelined_sd"}
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
COARSE = Balance(share_step=0.25, refine=False)
GRID = (0.25, 0.5, 0.75)


def spoken(policy, problem):
    """The problem, or the same for two nodes or for padded batches where the policy plans for those only."""
    disciplines = getattr(policy, "disciplines", None)
    if isinstance(problem.lane_model, FusedLanes) and "fused" not in (disciplines or ()):
        problem = replace(problem, lane_model=ContinuousLanes())  # the policy's lanes divide the GPU
    if disciplines == ("static",):
        empty = {"lanes": (), "make_residents": no_residents, "held_bytes": 0.0, "uses_sd": False}
        return replace(problem, lane_model=StaticLanes(), **empty)
    if disciplines == ("fused",):
        return replace(problem, lane_model=FusedLanes())
    return in_pipeline(problem) if disciplines == ("pipeline",) else problem


def served(policy, problem):
    return len(policy.decide(problem).admitted)


def shuffled(problem, seed):
    order = np.random.default_rng(seed).permutation(len(problem.candidates))
    return replace(problem, candidates=problem.candidates.take(order))


def as_lists(problem):
    tables = (problem.candidates, problem.residents)
    return [{name: column.tolist() for name, column in vars(table).items()} for table in tables]


@pytest.mark.parametrize("policy", [policy() for policy in POLICIES], ids=lambda policy: policy.name)
class TestEveryPolicy:
    @FEW
    @given(problem=problems())
    def test_feasible(self, policy, problem):
        """A decision breaks no rule; policies that look at deadlines keep them."""
        problem = spoken(policy, problem)
        decision = policy.decide(problem)
        check_structure(problem, decision)
        if policy.name not in BLIND:
            assert is_feasible(problem, decision).reasons == ()

    @FEW
    @given(problem=problems(max_count=5), seed=st.integers(0, 99))
    def test_order_of_candidates_is_irrelevant(self, policy, problem, seed):
        """Candidates in another order give as many members."""
        problem = spoken(policy, problem)
        assert served(policy, shuffled(problem, seed)) == served(policy, problem)

    @FEW
    @given(problem=problems(max_count=5))
    def test_deterministic_and_input_unchanged(self, policy, problem):
        """The same problem gives the same decision, and a decision leaves the problem as it was."""
        problem = spoken(policy, problem)
        before = as_lists(problem)
        first = policy.decide(problem)
        assert policy.decide(problem) == first
        assert str(as_lists(problem)) == str(before)  # as text: NaN differs from itself

    @pytest.mark.parametrize("lane_model", [model() for model in LANE_MODELS if model is not PipelineLanes])
    def test_nobody_waits(self, policy, lane_model):
        """Without candidates and residents there are no lanes."""
        problem = spoken(policy, make_problem(make_candidates([], [], []), lane_model=lane_model))
        assert policy.decide(problem).lanes == ()

    def test_residents_keep_their_lanes(self, policy):
        """Without candidates every lane with residents stays, with a share."""
        if getattr(policy, "disciplines", None) == ("static",):
            pytest.skip("a static server decides when it is empty")
        problem = spoken(policy, random_problem(3, 0, continuous=True, residents=6, server=make_server(9000)))
        lanes = policy.decide(problem).lanes
        assert sorted(lane.lane_id for lane in lanes) == [0, 1]
        assert all(lane.gpu_share > 0 for lane in lanes)


class TestFamily:
    @FEW
    @given(problem=problems())
    def test_never_below_the_single_modes(self, problem):
        """BALANCE serves at least as many as AD only and as SD only on the same predictions."""
        assert served(COARSE, problem) >= max(served(AdOnly(), problem), served(SdOnly(), problem))

    @FEW
    @given(problem=problems(max_count=5))
    def test_at_least_half_of_the_exhaustive_optimum(self, problem):
        """BALANCE serves at least half of the optimum over the same grid of shares."""
        optimum = len(exhaustive(problem, GRID, GRID).admitted)
        assert optimum >= served(COARSE, problem) >= optimum / 2

    @FEW
    @given(problem=problems(max_count=5, continuous=False))
    def test_single_modes_are_exact_for_static_batches(self, problem):
        """With padded or additive cost AD only and SD only serve as many as the exhaustive search of one mode."""
        for policy, other in ((AdOnly(), "SD"), (SdOnly(), "AD")):
            assert served(policy, problem) == _best_single(problem, other)

    def test_ablations_fix_the_shares(self):
        """ECRA and EMA fix z and λ: a hybrid decision has exactly these shares."""
        policy = Balance(gpu_share=0.5, memory_share=0.5, single_modes=False)
        lanes = policy.decide(random_problem(1, 12, slack=(0.3, 1.0))).lanes
        assert [(lane.gpu_share, lane.memory_share) for lane in lanes] == [(0.5, 0.5), (0.5, 0.5)]

    def test_published_order_only(self):
        """Without SD first and without refinement no more users are served than with them."""
        plain, full = Balance(both_orders=False, refine=False), Balance()
        for seed in range(5):
            problem = random_problem(seed, 12, slack=(0.2, 1.5))
            assert served(plain, problem) <= served(full, problem)


def _best_single(problem, other):
    """Most users in one lane with the whole GPU, by trying all subsets."""
    from itertools import combinations

    from balancesim.core.decision import Decision, Lane
    from balancesim.core.request import Mode

    mode = Mode.SD if other == "AD" else Mode.AD
    gamma = problem.server.draft_length if mode is Mode.SD else 0
    ids = problem.candidates.request_id.tolist()
    for size in range(len(ids), 0, -1):
        for members in combinations(ids, size):
            if is_feasible(problem, Decision((Lane(0, mode, 1.0, 1.0, members, gamma),))):
                return size
    return 0


class TestFcfs:
    def test_stops_at_the_first_that_does_not_fit(self):
        """The head of the queue is not overtaken: 1,000 tokens hold 400 + 500, not 200 more, though 100 would fit."""
        users = make_candidates([300, 400, 100, 50], [100, 100, 100, 50], [np.inf] * 4)
        problem = make_problem(users, make_server(1000), ContinuousLanes())
        assert Fcfs().decide(problem).admitted == (0, 1)

    def test_never_builds_residents(self):
        """Memory held is a number of the problem: the table of residents is not asked for."""

        def refuse():
            raise AssertionError("residents were built")

        problem = random_problem(1, 4, continuous=True, residents=5, server=make_server(9000))
        problem = replace(problem, make_residents=refuse, candidates=problem.candidates)
        check_structure(problem, Fcfs().decide(problem))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share_step": 0.3}, "share_step must be"),
        ({"share_step": 0.0}, "share_step must be"),
        ({"gpu_share": 1.0}, "gpu_share must be above 0 and below 1, got 1.0"),
        ({"memory_share": -0.1}, "memory_share must be above 0"),
        ({"draft_length": -1}, "draft_length must be at least 0, got -1"),
    ],
)
def test_bad_options(options, message):
    """A bad option is one clear line."""
    with pytest.raises(ValueError, match=message):
        Balance(**options)


def test_no_draft_model():
    """Without a draft model BALANCE is AD only, and SD only says what is missing."""
    problem = random_problem(1, 6)
    problem = replace(problem, server=replace(problem.server, draft=None, draft_law=None))
    assert Balance().decide(problem) == AdOnly().decide(problem)
    with pytest.raises(ValueError, match=r"server\.draft must be given"):
        SdOnly().decide(problem)
