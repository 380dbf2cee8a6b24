from balancesim.core.feasibility import is_feasible
from balancesim.policies import Balance
from balancesim.precompile import continuous_problem, main, small_problem


def test_the_small_problems_need_both_lanes():
    """The decisions that compile the kernels are real ones: feasible, with somebody admitted, nobody for free."""
    main()
    for problem in (small_problem(), continuous_problem()):
        decision = Balance().decide(problem)
        assert not is_feasible(problem, decision).reasons
        assert 0 < len(decision.admitted) < len(problem.candidates)
