"""Tests of the two-node pipeline: instance, round times, recursion and bounds."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim.core.pipeline import inference_s, partition_inference_s, pipeline_schedule, sequential_inference_s
from balancesim.core.pipeline_bounds import PathBounds, PathTerms
from balancesim.core.pipeline_instance import PipelineInstance, PipelineTasks, admit, rounds_needed
from balancesim.core.pipeline_nodes import Fronthaul, PipelineNode
from balancesim.core.pipeline_times import batch_times, contiguous_times, row_of
from balancesim.core.speculation import expected_tokens_per_round
from balancesim.core.work import ForwardPass, Phase, pass_flops
from balancesim.latency_laws import Affine, Roofline
from tests.pipeline_cases import DRAFT, GPU, LINK_DOWN, TARGET, instance, random_instance, tasks, with_draft_memory


def event_times(draft, verify, up, down):
    """Simulate the two stages event by event: an independent twin of the recursion."""
    rounds, batches = draft.shape
    jobs = [(n, m) for n in range(rounds) for m in range(batches)]
    drafted, verified = {}, {}
    sbs_free = mbs_free = 0.0
    waiting_draft, waiting_verify = list(jobs), list(jobs)
    while waiting_verify:
        if waiting_draft and (waiting_draft[0][0] == 0 or (waiting_draft[0][0] - 1, waiting_draft[0][1]) in verified):
            n, m = waiting_draft.pop(0)
            verdict = 0.0 if n == 0 else verified[n - 1, m] + down[m]
            drafted[n, m] = sbs_free = max(sbs_free, verdict) + draft[n, m]
        else:
            n, m = waiting_verify.pop(0)
            verified[n, m] = mbs_free = max(mbs_free, drafted[n, m] + up[m]) + verify[n, m]
    return drafted, verified


def test_schedule_of_two_batches_by_hand():
    """Two rounds of two batches follow D and V of the recursion, computed by hand."""
    draft, verify = np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[4.0, 1.0], [4.0, 1.0]])
    # D11 = 1, V11 = 5; D12 = 1+2 = 3, V12 = max(3,5)+1 = 6; D21 = max(3,5)+1 = 6, V21 = max(6,6)+4 = 10;
    # D22 = max(6,6)+2 = 8, V22 = max(8,10)+1 = 11
    schedule = pipeline_schedule(draft, verify)
    assert schedule.draft_end_s.tolist() == [[1.0, 3.0], [6.0, 8.0]]
    assert schedule.verify_end_s.tolist() == [[5.0, 6.0], [10.0, 11.0]]
    assert float(schedule.inference_s) == 11.0


def test_fronthaul_delays_by_hand():
    """One batch pays the way up in every round and the way down between rounds: 2·(1+3) + 2·0.5 + 1·0.25."""
    schedule = pipeline_schedule(np.full((2, 1), 1.0), np.full((2, 1), 3.0), 0.5, 0.25)
    assert float(schedule.inference_s) == 2 * (1 + 3) + 2 * 0.5 + 0.25


def test_schedule_without_batches_or_rounds_takes_no_time():
    """T_inf of nothing is 0."""
    assert float(pipeline_schedule(np.zeros((3, 0)), np.zeros((3, 0))).inference_s) == 0.0
    assert float(pipeline_schedule(np.zeros((0, 2)), np.zeros((0, 2))).inference_s) == 0.0


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_recursion_equals_event_simulation(rounds, batches, seed):
    """The vectorised recursion gives the times of an event-by-event simulation, for a stack of pipelines at once."""
    rng = np.random.default_rng(seed)
    draft, verify = rng.exponential(size=(3, rounds, batches)), rng.exponential(size=(3, rounds, batches))
    up, down = rng.exponential(size=batches), rng.exponential(size=batches)
    schedule = pipeline_schedule(draft, verify, up, down)
    for case in range(3):
        drafted, verified = event_times(draft[case], verify[case], up, down)
        for (n, m), end in drafted.items():
            assert schedule.draft_end_s[case, n, m] == pytest.approx(end, rel=1e-12)
            assert schedule.verify_end_s[case, n, m] == pytest.approx(verified[n, m], rel=1e-12)


def test_equal_rounds_are_paced_by_the_slowest_circuit():
    """With equal rounds the pipeline gains exactly max(Σd, Σv, max(d+v)) a round once it is filled."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        draft, verify = rng.exponential(size=4), rng.exponential(size=4)
        ends = pipeline_schedule(np.tile(draft, (60, 1)), np.tile(verify, (60, 1))).verify_end_s[:, -1]
        pace = max(draft.sum(), verify.sum(), (draft + verify).max())
        assert ends[-1] - ends[-2] == pytest.approx(pace, rel=1e-9)
        assert 60 * pace <= ends[-1] + 1e-9


def test_float_path_equals_the_array_recursion():
    """partition_inference_s and pipeline_schedule agree on the batches of an instance."""
    for seed in range(20):
        case = random_instance(seed, 6)
        times = contiguous_times(case, 3)
        rows = [row_of(0, 1), row_of(2, 2), row_of(3, 5)]
        schedule = pipeline_schedule(
            times.draft_s(rows), times.verify_s(rows), times.to_mbs_s[rows], times.to_sbs_s[rows]
        )
        assert partition_inference_s(times, rows) == pytest.approx(float(schedule.inference_s), rel=1e-12)


def test_path_bounds_never_exceed_the_completion_time():
    """Every path bound is at most T_inf and at least N·max(Σd, Σv, max(d+v)) of the mean round without fronthaul."""
    for seed in range(60):
        case = random_instance(seed, 7)
        length = 1 + seed % 4
        times = contiguous_times(case, length)
        rng = np.random.default_rng(seed)
        cuts = [0, *(1 + np.flatnonzero(rng.random(6) < 0.5)).tolist(), 7]
        rows = [row_of(a, b - 1) for a, b in pairwise(cuts)]
        bounds, terms = PathBounds.empty(1), PathTerms.of(times)
        for row in rows:
            bounds = bounds.extend(terms.take(slice(row, row + 1)))
        completion = partition_inference_s(times, rows)
        plain = max(
            times.draft_sum_s[rows].sum(),
            times.verify_sum_s[rows].sum(),
            (times.draft_sum_s + times.verify_sum_s)[rows].max(),
        )
        assert plain * (1 - 1e-12) <= bounds.bound_s[0] <= completion * (1 + 1e-12)
        assert completion <= sequential_inference_s(times, rows) * (1 + 1e-12)


def test_expected_tokens_and_rounds():
    """E = (1−α^(l+1))/(1−α), l+1 at α = 1, 1 at α = 0; N = ⌈O/E⌉ of the slowest task."""
    assert expected_tokens_per_round(np.array([0.0, 0.5, 1.0]), 2).tolist() == [1.0, 1.75, 3.0]
    columns = replace(tasks([5, 5], [7, 3]), acceptance_rate=np.array([0.5, 0.0]))
    assert rounds_needed(columns, 2) == 4  # ⌈7/1.75⌉ = 4, ⌈3/1⌉ = 3
    assert rounds_needed(columns, 0) == 7  # autoregressive: one token a round
    assert rounds_needed(tasks([]), 2) == 0


def test_round_times_by_hand():
    """T_d and T_v of a batch of two equal c1·FLOPs + c2 of the passes written out one by one."""
    case = instance(tasks([10, 30], 6, acceptance=0.5), max_draft_length=2)
    times = batch_times(case, np.array([2]), np.array([30]), 2)
    assert times.rounds == 4  # ⌈6/1.75⌉

    def cost(node, new, pairs, head):
        work = ForwardPass(2.0, 2.0 * new, 2.0 * pairs, 0.0, 2.0 * head)
        return node.law.s_per_flop * pass_flops(node.llm, work) + node.law.fixed_s

    draft, verify = times.draft_s([0]), times.verify_s([0])
    # round 1: prefill of 30, then draft 2 attends to 31; the target reads 30 + 2 rows, 3 with logits
    assert draft[0, 0] == pytest.approx(cost(case.draft, 30, 900, 1) + cost(case.draft, 1, 31, 1), rel=1e-12)
    assert verify[0, 0] == pytest.approx(cost(case.target, 32, 32**2, 3), rel=1e-12)
    # round 3: context 30 + 2·6/4 = 33; drafts at 33, 34; three rows at 33, 34, 35
    assert draft[2, 0] == pytest.approx(cost(case.draft, 1, 33, 1) + cost(case.draft, 1, 34, 1), rel=1e-12)
    assert verify[2, 0] == pytest.approx(cost(case.target, 3, 33 + 34 + 35, 3), rel=1e-12)
    assert times.draft_sum_s[0] == pytest.approx(draft.sum(), rel=1e-12)
    assert times.verify_sum_s[0] == pytest.approx(verify.sum(), rel=1e-12)
    assert times.verify_last_s[0] == pytest.approx(verify[-1, 0], rel=1e-12)


def test_autoregressive_rounds_have_no_drafts():
    """l = 0: T_d = 0, N = O_max, step n runs at context Î + n − 1, and the link is not used."""
    case = replace(instance(tasks([20], 5)), fronthaul=LINK_DOWN)
    times = batch_times(case, np.array([1]), np.array([20]), 0)
    law = case.target.law
    assert times.draft_s([0]).tolist() == [[0.0]] * 5
    prefill = ForwardPass(1.0, 20.0, 400.0, 0.0, 1.0)
    step = ForwardPass(1.0, 1.0, 22.0, 22.0, 1.0)
    assert times.verify_s([0])[0, 0] == pytest.approx(law.forward_s(TARGET, GPU, Phase.PREFILL, prefill), rel=1e-12)
    assert times.verify_s([0])[2, 0] == pytest.approx(law.forward_s(TARGET, GPU, Phase.DECODE, step), rel=1e-12)
    assert math.isfinite(partition_inference_s(times, [0]))


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_few_rounds_need_no_interpolation(outputs):
    """With one, two or three rounds the interpolated times have as many rows as rounds."""
    times = batch_times(instance(tasks([4], outputs)), np.array([1]), np.array([4]), 0)
    assert times.draft_s([0]).shape == (outputs, 1)
    assert (times.verify_s([0]) > 0).all()
    assert times.verify_last_s[0] == pytest.approx(times.verify_s([0])[-1, 0], rel=1e-12)


def test_interpolation_converges_for_a_roofline():
    """A roofline is not affine in the context: more knots bring its round times to the exact ones from above."""
    law = Roofline(bandwidth_efficiency=0.8, compute_efficiency=0.7, launch_s=1e-4)
    sums = []
    for points in (2, 9, 399):
        nodes = [PipelineNode(llm, GPU, law, context_points=points) for llm in (DRAFT, TARGET)]
        case = PipelineInstance(tasks([100] * 8, 400), nodes[0], nodes[1], 20e6, 4)
        times = batch_times(case, np.array([8]), np.array([100]), 0)
        sums.append(float(times.verify_sum_s[0]))
    assert sums[0] >= sums[1] * (1 - 1e-12) >= sums[2] * (1 - 2e-12)
    assert sums[1] == pytest.approx(sums[2], rel=1e-3)


def test_contiguous_rows_name_first_and_last():
    """Row i·(i+1)/2 + j is the batch of tasks j..i, padded to task i's input."""
    times = contiguous_times(instance(tasks([1, 5, 9])), 1)
    assert [(times.sizes[row_of(j, i)], times.inputs[row_of(j, i)]) for i in range(3) for j in range(i + 1)] == [
        (1, 1), (2, 5), (1, 5), (3, 9), (2, 9), (1, 9),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="tasks must be sorted by prompt_tokens"):
        contiguous_times(instance(tasks([5, 1])), 1)


def test_fronthaul_carries_drafts_up_and_verdicts_down():
    """Up: delay + b·l·bits/rate; down: delay + b·(l+1)·bits/rate."""
    link = Fronthaul(rate_bps=1000.0, delay_s=0.5, draft_token_bits=10.0, verified_token_bits=1.0)
    assert link.to_mbs_s(np.array([3]), 4).tolist() == [0.5 + 3 * 4 * 10 / 1000]
    assert link.to_sbs_s(np.array([3]), 4).tolist() == [0.5 + 3 * 5 * 1 / 1000]
    assert link.to_mbs_s(np.array([3]), 0).tolist() == [0.0]
    assert Fronthaul().to_mbs_s(np.array([3]), 4).tolist() == [0.0]


def test_link_down_makes_speculation_endless_but_not_autoregression():
    """An infinite fronthaul delay gives an infinite T_inf with drafts and a finite one without."""
    case = replace(instance(tasks([3, 8])), fronthaul=LINK_DOWN)
    assert inference_s(case, ((0,), (1,)), 2) == math.inf
    assert math.isfinite(inference_s(case, ((0,), (1,)), 0))


def test_admission_tells_outage_memory_and_waiting_apart():
    """A user without uplink, a task that never fits, and one that does not fit beside earlier ones are kept apart."""
    columns = replace(
        tasks([100, 50, 5000, 80, 30], 10), spectral_efficiency_bps_hz=np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    )
    case = with_draft_memory(instance(columns), 160.0)
    result = admit(case)
    # 100+10 fits 160; then (100+80)+2·10 = 200 does not, (100+30)+2·10 = 150 does
    assert result.admitted.tolist() == [0, 4]
    assert result.deferred.tolist() == [3]
    assert result.outage.tolist() == [1]
    assert result.too_large.tolist() == [2]


def test_admission_checks_the_target_memory_only_when_it_is_limited():
    """The MBS memory is unlimited in [P2]; with a limit its KV cache counts, and without drafts only its."""
    case = instance(tasks([100, 100], 10))
    assert admit(case).admitted.tolist() == [0, 1]
    tight = replace(case.target, memory_bytes=TARGET.weight_bytes + 150 * TARGET.kv_bytes_per_token)
    assert admit(replace(case, target=tight)).admitted.tolist() == [0]
    assert admit(replace(with_draft_memory(case, 0.0), max_draft_length=0)).admitted.tolist() == [0, 1]


def test_admission_of_nothing():
    """Zero tasks: nothing admitted, nothing refused."""
    result = admit(instance(tasks([])))
    assert [len(column) for column in vars(result).values()] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tasks([0]), "prompt_tokens and output_tokens must be at least 1"),
        (lambda: tasks([1], acceptance=1.5), "acceptance_rate must be between 0 and 1"),
        (lambda: replace(tasks([1]), upload_bits=np.zeros(2)), "tasks.upload_bits must have one value per task"),
        (lambda: PipelineNode(DRAFT, GPU, Affine(1e-14, 0.0), context_points=1), "context_points must be at least 2"),
        (lambda: Fronthaul(rate_bps=0.0), "fronthaul.rate_bps must be positive"),
        (lambda: Fronthaul(delay_s=-1.0), "fronthaul.delay_s must be at least 0"),
        (lambda: replace(instance(tasks([1])), bandwidth_hz=0.0), "pipeline.bandwidth_hz must be positive"),
        (lambda: instance(tasks([1]), max_draft_length=-1), "pipeline.max_draft_length must be at least 0"),
    ],
)
def test_bad_values_are_refused(build, message):
    """Bad fields are refused with their name and rule."""
    with pytest.raises(ValueError, match=message):
        build()


def test_tasks_are_read_only():
    """The columns of an instance cannot be changed behind a plan's back."""
    columns: PipelineTasks = tasks([1, 2])
    with pytest.raises(ValueError, match="read-only"):
        columns.prompt_tokens[0] = 5
