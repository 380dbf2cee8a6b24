"""The exact optimum three ways, against each other and against the search over a grid of shares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancesim.core.brute_force import exhaustive
from balancesim.core.feasibility import is_feasible
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.optimum import ShareChoice
from balancesim.core.optimum_exhaustive import exhaustive_optimum
from balancesim.core.optimum_milp import integer_program
from balancesim.core.optimum_two_colour import two_colour
from balancesim.core.problem import no_residents
from balancesim.policies import Balance, Clairvoyant, Optimal
from tests.problems import make_candidates, make_problem, make_server, problems, random_problem
from tests.test_padded import COUNTING

GRID = (0.25, 0.5, 0.75)
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def static(problem):
    """The same candidates before padded batches on an empty server."""
    problem = replace(problem, lanes=(), make_residents=no_residents, held_bytes=0.0, uses_sd=False)
    return replace(problem, lane_model=make_problem(problem.candidates).lane_model)


@FEW
@given(problem=problems(max_count=6, continuous=False))
def test_two_colour_serves_as_many_as_all_assignments(problem):
    """Branch and bound finds and proves what trying all 3^K assignments finds; both decisions are feasible."""
    problem = static(problem)
    every, found = exhaustive_optimum(problem, chunk=100), two_colour(problem)
    assert (found.served, found.bound) == (every.served, every.bound)
    for optimum in (every, found):
        assert optimum.proved
        assert is_feasible(problem, optimum.decision).reasons == ()


@settings(FEW, max_examples=25)
@given(problem=problems(max_count=5, continuous=False))
def test_the_integer_program_serves_as_many(problem):
    """HiGHS proves the same optimum from a formulation of its own."""
    problem = static(problem)
    found = integer_program(problem)
    assert found.proved
    assert is_feasible(problem, found.decision).reasons == ()
    assert found.served == two_colour(problem).served


@FEW
@given(problem=problems(max_count=5, continuous=False))
def test_over_a_grid_of_shares(problem):
    """Over the shares of a grid the optimum is that of the search that asks `is_feasible` about every decision."""
    problem = static(problem)
    found = two_colour(problem, ShareChoice(np.array(GRID), np.array(GRID)))
    assert is_feasible(problem, found.decision).reasons == ()
    assert found.served == len(exhaustive(problem, GRID, GRID).admitted)
    assert found.served <= two_colour(problem).served


@pytest.mark.parametrize("seed", range(6))
def test_larger_problems(seed):
    """Twelve users, where branching goes deep: the same number as all 531,441 assignments, and BALANCE no more."""
    problem = random_problem(seed, 12, slack=(0.2, 1.5), server=make_server(7000))
    found = two_colour(problem)
    assert found.served == exhaustive_optimum(problem).served
    assert found.served >= len(Balance().decide(problem).admitted) >= found.served / 2


@pytest.mark.parametrize(("patience_s", "served"), [(100.0, 2), (60.0, 1)])
def test_by_hand(patience_s, served):
    """An urgent user needs AD and 4/4.5 = 0.889 of the GPU; what is left is 0.111, and a patient one needs 8.8 s of SD.

    Prompt 1, answer 2 (test_padded): AD 1 + (1 + 2) = 4 s, as a pair 8 s; SD 1.1 for the prefill, 3 + 2 + 2 = 7 for the
    verification and 0.1·((1 + 2) + (1 + 3)) = 0.7 for the drafts. 8.8/100 = 0.088 fits beside, 8.8/60 = 0.147 does not.
    """
    users = make_candidates([1, 1], [2, 2], [4.5, patience_s], alpha=[0.5, 0.5])
    problem = make_problem(users, COUNTING)
    assert (two_colour(problem).served, exhaustive_optimum(problem).served) == (served, served)


def test_node_limit_leaves_a_bound():
    """With too few nodes the best decision found is taken, and the bound is not below what is possible."""
    problem = random_problem(3, 14, slack=(0.2, 1.5), server=make_server(7000))
    short, full = two_colour(problem, node_limit=1), two_colour(problem)
    assert short.served <= full.served <= short.bound
    assert is_feasible(problem, short.decision)


@pytest.mark.parametrize("method", ["two_colour", "integer_program", "exhaustive"])
def test_policy_methods(method):
    """The policy's methods agree."""
    problem = random_problem(5, 6, slack=(0.2, 1.5))
    assert len(Optimal(method=method).decide(problem).admitted) == len(Clairvoyant().decide(problem).admitted)


def test_other_disciplines_are_an_error():
    """The optimum is one of padded batches."""
    problem = make_problem(make_candidates([3], [3], [5.0]), lane_model=ContinuousLanes())
    with pytest.raises(ValueError, match="discipline must be static for the exact optimum, got continuous"):
        Optimal().decide(problem)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"method": "guess"}, "method must be one of two_colour"), ({"node_limit": 0}, "node_limit must be at least 1")],
)
def test_bad_options(options, message):
    """A bad option is one clear line."""
    with pytest.raises(ValueError, match=message):
        Optimal(**options)


def test_too_many_for_all_assignments():
    """Trying all assignments says when it is hopeless."""
    with pytest.raises(ValueError, match="candidates must be at most 20 for an exhaustive search, got 21"):
        exhaustive_optimum(random_problem(1, 21))


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(seed=st.integers(0, 2**32), count=st.integers(2, 10), tight=st.floats(0.1, 3.0), room=st.integers(4300, 12000))
def test_no_problem_breaks_half_of_the_optimum(seed, count, tight, room):
    """Searched for problems with a low ratio: BALANCE over a grid never falls below half of the optimum over it."""
    from hypothesis import target

    problem = random_problem(seed, count, slack=(0.05, tight), server=make_server(room), lengths=(1, 200))
    optimum = two_colour(problem, ShareChoice(np.array(GRID), np.array(GRID))).served
    ours = len(Balance(share_step=0.25, refine=False, both_orders=False).decide(problem).admitted)
    target(-ours / optimum if optimum else -1.0)
    assert ours >= optimum / 2
