"""Every policy's answer to problems at their limits: defined, feasible, and what the problem itself says it must be."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from balancesim.core.feasibility import check_structure, is_feasible
from balancesim.core.lane_models import LANE_MODELS, PipelineLanes
from balancesim.policies import POLICIES
from tests.problems import make_candidates, make_problem, make_server
from tests.test_policies import BLIND, spoken

#: Policies whose decisions always keep the draft model in memory.
WITH_DRAFT = {"sd_only", "goodput_sd", "sd_two_batches", "random_split", "static_split"}
EASY = 60.0  #: seconds; a request of 20 + 20 tokens takes well below one


@cache
def server(kv_tokens=9000, draft_length=4):
    """One server for all tests, so that its cost tables are made once."""
    return make_server(kv_tokens, draft_length)


def users(count=5, slack=EASY, **columns):
    """Short requests with numbers 3, 4, … and, unless said otherwise, time enough."""
    ids = list(range(3, 3 + count))
    return make_candidates([20] * count, [20] * count, [slack] * count, ids=ids, **columns)


@pytest.mark.parametrize("lane_model", [m() for m in LANE_MODELS if m is not PipelineLanes], ids=lambda m: m.name)
@pytest.mark.parametrize("policy", [policy() for policy in POLICIES], ids=lambda policy: policy.name)
class TestBadProblems:
    @staticmethod
    def admitted(policy, problem):
        """Return whom the policy admits, after its decision has been checked; it must say the same twice."""
        problem = spoken(policy, problem)
        decision = policy.decide(problem)
        assert policy.decide(problem) == decision
        check_structure(problem, decision)
        if policy.name not in BLIND:
            assert is_feasible(problem, decision).reasons == ()
        return sorted(decision.admitted)

    def check(self, policy, problem, expected):
        """Check whom the policy admits; one that serves most per second may leave some of them for later."""
        found = self.admitted(policy, problem)
        if policy.name == "balance_rate" and problem.lane_model.runs_to_end and expected:
            assert found
            assert set(found) <= set(expected)
        else:
            assert found == expected

    def test_no_candidates(self, policy, lane_model):
        """Nobody waits: no lanes, nobody admitted."""
        problem = make_problem(users(0), server(), lane_model)
        assert policy.decide(spoken(policy, problem)).lanes == ()

    def test_no_memory(self, policy, lane_model):
        """One byte of KV memory holds nobody."""
        self.check(policy, make_problem(users(), server(0), lane_model), [])

    def test_no_memory_for_the_draft_model(self, policy, lane_model):
        """4,000 tokens are less than the draft's weights: AD serves all, who always loads the draft nobody."""
        problem = make_problem(users(), server(4000), lane_model)
        self.check(policy, problem, [] if policy.name in WITH_DRAFT else [3, 4, 5, 6, 7])

    def test_deadline_passed(self, policy, lane_model):
        """No time left: nobody is admitted but by policies that do not look at deadlines."""
        for slack in (-1.0, 0.0):
            found = self.admitted(policy, make_problem(users(slack=slack), server(), lane_model))
            assert found == ([3, 4, 5, 6, 7] if policy.name in BLIND else [])

    def test_acceptance_and_draft_length(self, policy, lane_model):
        """α = 0 and 1, γ = 0 and 4: with time enough all are served."""
        for rate, gamma in product((0.0, 1.0), (0, 4)):
            problem = make_problem(users(alpha=[rate] * 5), server(9000, gamma), lane_model)
            self.check(policy, problem, [3, 4, 5, 6, 7])

    def test_identical_users(self, policy, lane_model):
        """Fifteen equal requests of 40 tokens and memory for ten in AD: the first ten, in any order of the table."""
        problem = make_problem(users(15), server(400), lane_model)
        if policy.name == "pipelined_sd":  # drafts elsewhere: γ tokens more for each request
            assert 1 <= len(self.admitted(policy, problem)) <= 10
            return
        turned = replace(problem, candidates=problem.candidates.take(np.arange(15)[::-1]))
        for case in (problem, turned):
            self.check(policy, case, [] if policy.name in WITH_DRAFT else list(range(3, 13)))

    def test_one_user(self, policy, lane_model):
        """One request with time enough is served."""
        self.check(policy, make_problem(users(1), server(), lane_model), [3])

    def test_no_channel(self, policy, lane_model):
        """A request whose upload takes NaN or infinitely long waits, whatever its deadline; the others are served."""
        for upload, slack in product((np.nan, np.inf), (EASY, np.inf)):
            columns = {"upload": [0.1, upload, 0.1, 0.0, 0.1], "slack": slack}
            self.check(policy, make_problem(users(**columns), server(), lane_model), [3, 5, 6, 7])
        self.check(policy, make_problem(users(upload=[np.nan] * 5), server(), lane_model), [])

    def test_no_deadlines(self, policy, lane_model):
        """Without deadlines all that fit are served."""
        problem = make_problem(users(slack=np.inf), server(), lane_model)
        self.check(policy, problem, [3, 4, 5, 6, 7])

    def test_longer_than_memory(self, policy, lane_model):
        """A request longer than the whole memory waits; it keeps others out only where nobody overtakes."""
        columns = make_candidates([20, 9000, 20], [20, 20, 20], [EASY] * 3, ids=[3, 4, 5])
        problem = make_problem(columns, server(8000), lane_model)
        if policy.name in BLIND:
            assert 4 not in self.admitted(policy, problem)
        else:
            self.check(policy, problem, [3, 5])
