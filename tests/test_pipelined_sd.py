"""The policy of the two-node pipeline: its plans are the paper's, its baselines are options, its edges are defined."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim.core.feasibility import check_structure, is_feasible
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.pipeline_nodes import Fronthaul
from balancesim.core.pipeline_plans import BASELINES, joint, joint_exact
from balancesim.core.request import Mode
from balancesim.policies import PipelinedSd
from balancesim.policies.pipelined_sd import Bandwidth, Batching
from tests.pipeline_cases import instance, random_instance, tasks
from tests.pipeline_world import spec_of
from tests.problems import in_pipeline, make_candidates, make_problem, make_server, problems, random_problem
from tests.test_policies import FEW

PAPER = PipelinedSd(by_rate=False, max_draft_length=4)
#: options that make the policy one of [P2]'s baselines, by the name of `core.pipeline_plans.BASELINES`
OPTIONS = {
    "no_batching": {"batching": Batching.NONE},
    "fixed_draft_length": {"draft_length": 7},
    "static_batching": {"batching": Batching.STATIC},
    "maximum_batching": {"batching": Batching.MAXIMUM},
    "heuristic_batching": {"batching": Batching.HEURISTIC},
    "uniform_bandwidth": {"bandwidth": Bandwidth.UNIFORM},
}


def problem_of(case, **changes):
    """The tasks of an instance as candidates, with uploads still to be made."""
    columns = case.tasks
    users = make_candidates(
        columns.prompt_tokens,
        columns.output_tokens,
        np.full(len(columns), np.inf),
        alpha=columns.acceptance_rate,
        upload=np.zeros(len(columns)),
    )
    users = replace(
        users,
        prompt_bits=columns.upload_bits.copy(),
        spectral_efficiency_bps_hz=columns.spectral_efficiency_bps_hz.copy(),
        **changes,
    )
    return make_problem(users, spec_of(case), PipelineLanes(early_exit=False))


def batches(decision):
    return tuple(lane.members for lane in decision.lanes if lane.members)


@pytest.mark.parametrize("seed", range(8))
def test_plans_as_the_paper(seed):
    """All at once: the batches, draft length, bandwidths and T_inf of the dynamic programming, one lane a batch."""
    case = random_instance(seed, 12)
    plan, decision = joint(case), PAPER.decide(problem_of(case))
    assert batches(decision) == plan.batches
    assert [lane.lane_id for lane in decision.lanes] == list(range(len(plan.batches)))
    assert {lane.draft_length for lane in decision.lanes} == {plan.draft_length}
    weights = np.array([decision.bandwidth_weights[task] for task in range(12)])
    assert weights / weights.sum() == pytest.approx(plan.bandwidth_hz / plan.bandwidth_hz.sum(), rel=1e-12)
    finish = max(lane.predicted_finish_s for lane in decision.lanes)
    assert finish <= plan.inference_s * (1 + 1e-9)  # N rounds are padded to the slowest task of all batches
    exact = replace(PAPER, batching=Batching.EXACT).decide(problem_of(case))
    assert batches(exact) == joint_exact(case).batches


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
def test_baselines_are_options(name, options):
    """Each baseline of the paper is the policy with one option changed."""
    for seed in range(4):
        case = random_instance(seed, 9)
        plan, decision = BASELINES[name](case), replace(PAPER, **options).decide(problem_of(case))
        assert batches(decision) == plan.batches
        assert {lane.draft_length for lane in decision.lanes} == {plan.draft_length}
    if name == "uniform_bandwidth":
        assert len(set(decision.bandwidth_weights.values())) == 1


@pytest.mark.parametrize(("name", "options"), [("without_pipeline", {}), ("autoregressive", {"draft_length": 0})])
def test_batches_in_turn(name, options):
    """Without a pipeline one batch of the baseline's is inside: that of the oldest request; the others wait."""
    policy = replace(PAPER, pipelined=False, **options)
    for seed in range(4):
        case = random_instance(seed, 9)
        plan, decision = BASELINES[name](case), policy.decide(problem_of(case))
        assert batches(decision) == tuple(batch for batch in plan.batches if 0 in batch)
        assert decision.lanes[0].mode is (Mode.AD if options else Mode.SD)
        busy = replace(problem_of(case), lanes=decision.lanes)
        assert policy.decide(busy).admitted == ()


def test_no_task_and_one_task():
    """Nobody waits: no lanes. One task: one batch of one."""
    assert PAPER.decide(problem_of(instance(tasks([])))).lanes == ()
    assert batches(PAPER.decide(problem_of(instance(tasks([40]))))) == ((0,),)


def test_a_task_that_never_fits_the_sbs():
    """Its KV cache exceeds the empty SBS: rejected. Without drafts only the MBS counts, and it is served."""
    case = instance(tasks([100, 900, 200], [50, 50, 50]))
    node = case.draft
    case = replace(
        case, draft=replace(node, memory_bytes=node.llm.weight_bytes + 600 * node.llm.kv_bytes_per_token)
    )  # 100 + 50 + 200 + 50 tokens fit, 950 never do
    decision = PAPER.decide(problem_of(case))
    assert decision.rejected == (1,)
    assert sorted(decision.admitted) == [0, 2]
    assert sorted(replace(PAPER, draft_length=0).decide(problem_of(case)).admitted) == [0, 1, 2]


def test_what_does_not_fit_now_waits():
    """With 400 of 600 tokens held on the SBS, a task of 300 waits and is not rejected."""
    case = instance(tasks([250], [50]))
    node = case.draft
    kv = node.llm.kv_bytes_per_token
    case = replace(case, draft=replace(node, memory_bytes=node.llm.weight_bytes + 600 * kv))
    decision = PAPER.decide(replace(problem_of(case), sbs_held_bytes=400 * kv))
    assert decision.admitted == decision.rejected == ()


def test_a_user_in_outage_waits():
    """Without a channel a request is neither served nor rejected; the others are served."""
    case = instance(tasks([100, 50, 70]))
    problem = problem_of(case)
    users = replace(problem.candidates, upload_s=np.array([0.0, np.inf, 0.0]))
    decision = PAPER.decide(replace(problem, candidates=users))
    assert sorted(decision.admitted) == [0, 2]
    assert decision.rejected == ()
    assert set(decision.bandwidth_weights) == {0, 2}


@pytest.mark.parametrize("how", ["l_max = 0", "l = 0", "fronthaul down"])
def test_decoding_on_the_mbs_alone(how):
    """l_max = 0, l = 0 or a fronthaul that is down leave autoregressive decoding on the MBS."""
    case = random_instance(3, 6)
    policy = {"l_max = 0": PipelinedSd(max_draft_length=0), "l = 0": PipelinedSd(draft_length=0)}.get(how, PAPER)
    if how == "fronthaul down":
        case = replace(case, fronthaul=Fronthaul(delay_s=math.inf))
    problem = problem_of(case)
    decision = policy.decide(problem)
    assert decision.admitted
    assert {(lane.mode, lane.draft_length) for lane in decision.lanes} == {(Mode.AD, 0)}
    assert is_feasible(problem, decision)
    assert all(math.isfinite(lane.predicted_finish_s) for lane in decision.lanes)


def test_rules_of_the_pipeline():
    """Drafts need the fronthaul and room on the SBS; a batch under way takes no new members."""
    case = random_instance(3, 6)
    problem = problem_of(case)
    decision = PAPER.decide(problem)
    down = replace(case, fronthaul=Fronthaul(delay_s=math.inf))
    reasons = is_feasible(replace(problem, server=spec_of(down)), decision).reasons
    assert "lane 0: mode must be AD while the fronthaul is down, got SD" in reasons
    small = replace(problem, sbs_held_bytes=16e9)
    with pytest.raises(ValueError, match=r"KV cache on the SBS must be at most .* tokens, got .* held \+ .* new"):
        check_structure(small, decision)
    running = replace(problem, lanes=(replace(decision.lanes[0], members=()),))
    with pytest.raises(ValueError, match="lane 0: members must be none for a batch under way"):
        check_structure(running, decision)


def test_new_batches_queue_behind():
    """It plans anew when few enough batches are inside, and numbers the new ones behind them."""
    problem = in_pipeline(random_problem(5, 4, continuous=True, residents=4, server=make_server(20000)))
    assert len(problem.lanes) == 2
    assert PipelinedSd().decide(problem).admitted == ()
    assert PipelinedSd(batches_inside=1).decide(problem).admitted == ()
    decision = PipelinedSd(batches_inside=2).decide(problem)
    assert decision.admitted
    assert [lane.lane_id for lane in decision.lanes] == list(range(len(decision.lanes)))
    assert decision.lanes[0].members == decision.lanes[1].members == ()


def test_the_oldest_when_too_many_wait():
    """At most ``max_tasks`` are planned for, the oldest first."""
    case = random_instance(2, 9)
    waited = np.array([1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 5.0])
    decision = replace(PAPER, max_tasks=4).decide(problem_of(case, waited_s=waited))
    assert sorted(decision.admitted) == [1, 3, 5, 7]


@pytest.mark.parametrize("seed", range(6))
def test_by_rate_serves_no_less_per_second(seed):
    """Planning for fewer where that is better never serves fewer requests per predicted second."""
    case = random_instance(seed, 16)
    kv = case.target.llm.kv_bytes_per_token
    case = replace(case, target=replace(case.target, memory_bytes=case.target.llm.weight_bytes + 4000 * kv))
    rates = []
    for policy in (PAPER, replace(PAPER, by_rate=True)):
        decision = policy.decide(problem_of(case))
        assert is_feasible(problem_of(case), decision)
        rates.append(len(decision.admitted) / max(lane.predicted_finish_s for lane in decision.lanes))
    assert rates[1] >= rates[0] * 0.95  # early ends within the plan are not in the rate that is compared


@FEW
@given(problem=problems(max_count=6), batching=st.sampled_from(list(Batching)))
def test_deadlines_are_kept(problem, batching):
    """With the option, nobody is admitted who would be late by the prediction; every rule holds."""
    problem = in_pipeline(problem)
    decision = PipelinedSd(deadlines=True, batching=batching, batches_inside=2).decide(problem)
    assert is_feasible(problem, decision).reasons == ()


@FEW
@given(problem=problems(max_count=6), batching=st.sampled_from(list(Batching)), pipelined=st.booleans())
def test_every_option_keeps_the_rules(problem, batching, pipelined):
    """Whatever the batching, memories and structure hold, also where padding needs more than tasks alone."""
    problem = in_pipeline(problem, sbs_kv_tokens=500)
    policy = PipelinedSd(batching=batching, batch_size=3, pipelined=pipelined, bandwidth=Bandwidth.UNIFORM)
    check_structure(problem, policy.decide(problem))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_draft_length": -1}, "max_draft_length must be at least 0, got -1"),
        ({"draft_length": -2}, "draft_length must be at least 0, got -2"),
        ({"max_tasks": 0}, "max_tasks must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batches_inside": 1, "pipelined": False}, "batches_inside must be 0 without a pipeline, got 1"),
    ],
)
def test_bad_options(options, message):
    """A bad option is one clear line."""
    with pytest.raises(ValueError, match=message):
        PipelinedSd(**options)
