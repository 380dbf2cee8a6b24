"""Predictions of static and continuous lanes against hand-computed values and step-by-step sums."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from balancesim.core.decision import Lane
from balancesim.core.lane_models import LANE_MODELS, ContinuousLanes, PerUserLanes, StaticLanes
from balancesim.core.latency import decode_steps_s, prefill_s, rounds_s
from balancesim.core.problem import Residents
from balancesim.core.request import Mode
from balancesim.core.speculation import expected_tokens_per_round, planned_rounds
from tests.problems import make_candidates, make_problem, make_server, problems, random_problem, with_sbs
from tests.test_padded import COUNTING, CountingLaw


def test_static_by_hand():
    """U + C/share: uploads 1 and 2, b=2, S=3, N=3 costs 28 (test_padded), half the GPU: 2 + 56 = 58 for both."""
    users = make_candidates([3, 2], [2, 3], [60.0, 50.0], upload=[1.0, 2.0], ids=[7, 9])
    prediction = StaticLanes().predict(make_problem(users, COUNTING), Lane(0, Mode.AD, 0.5, 1.0, (9, 7)))
    assert prediction.request_id.tolist() == [9, 7]
    assert prediction.finish_s.tolist() == [58.0, 58.0]
    assert prediction.late.tolist() == [True, False]
    assert prediction.reserved_bytes == 2 * 6 * 524_288


def test_static_waits_for_the_draft_model():
    """A lane that drafts starts when upload and loading are both done: TinyLlama's 2.2 GB at 1.1 GB/s take 2 s."""
    server = replace(COUNTING, draft_load_bytes_s=1.1e9)
    users = make_candidates([3, 3], [3, 3], [99.0, 99.0], alpha=[1.0, 1.0], upload=[0.5, 0.0])
    lane = Lane(1, Mode.SD, 1.0, 1.0, (0, 1), draft_length=2)
    problem = make_problem(users, server, draft_loaded=False)
    # α=1, γ=2: 3 tokens a round, 2 tokens after the first: 1 round; C = 6.6 + 2.4 + 19 (test_padded)
    assert StaticLanes().predict(problem, lane).finish_s == pytest.approx([30.0, 30.0])
    assert StaticLanes().predict(replace(problem, draft_loaded=True), lane).finish_s == pytest.approx([28.5, 28.5])


def test_continuous_by_hand():
    """Two members, n = 2 and 3, s = 3 and 2, target weight 1: one prefill 5; step 1: 2 rows + contexts 4 and 3 = 9;
    step 2: the longer alone, 1 row + context 4 = 5. Work 14 and 19; half the GPU and 1 s of upload: 29 and 39."""
    users = make_candidates([3, 2], [2, 3], [np.inf, np.inf], upload=[1.0, 1.0])
    problem = make_problem(users, COUNTING, ContinuousLanes())
    prediction = ContinuousLanes().predict(problem, Lane(0, Mode.AD, 0.5, 1.0, (0, 1)))
    assert prediction.finish_s.tolist() == [29.0, 39.0]
    assert prediction.reserved_bytes == 10 * 524_288


def walk(server, gamma, members):
    """Work until each member's end, step by step; members are (steps, context, tokens a step, prompt to prefill)."""
    prefills = [member[3] for member in members if member[3]]
    work, ends = 0.0, {}
    if prefills:
        mode = Mode.SD if gamma else Mode.AD
        work = float(prefill_s(server, mode, len(prefills), sum(prefills), sum(p * p for p in prefills)))
    step = 0
    while True:
        ends |= {k: work for k, member in enumerate(members) if member[0] == step}
        here = [(c + step * e) for steps, c, e, _ in members if steps > step]
        if not here:
            return [ends[k] for k in range(len(members))]
        step += 1
        cost = (
            rounds_s(server, float(len(here)), sum(here), gamma).total_s
            if gamma
            else decode_steps_s(server, len(here), sum(here))
        )
        work += float(cost)


@pytest.mark.parametrize("lane_id", [0, 1])
def test_continuous_equals_walking_step_by_step(lane_id):
    """New members and residents, prefilled or not, finish where a walk over all steps says."""
    server = make_server(9000, 4, laws=(CountingLaw(1e-4), CountingLaw(1e-5)))
    for seed in range(10):
        problem = random_problem(seed, 5, continuous=True, residents=9, server=server)
        users, old = problem.candidates, problem.residents
        gamma = 4 * lane_id
        members = []
        for s, n, a in zip(users.prompt_tokens, users.output_tokens, users.acceptance_rate, strict=True):
            steps = planned_rounds(int(n), a, gamma)
            members.append((steps, s + 1.0, expected_tokens_per_round(a, gamma), s))
        for k in np.flatnonzero(old.lane_id == lane_id):
            needs, rate = bool(old.needs_prefill[k]), float(old.acceptance_rate[k])
            steps = planned_rounds(int(old.remaining_tokens[k]) + (0 if needs else 1), rate, gamma)
            context = float(old.context_tokens[k])
            members.append((steps, context + needs, expected_tokens_per_round(rate, gamma), needs * int(context)))
        starts = np.concatenate((users.upload_s, old.upload_s[old.lane_id == lane_id]))
        lane = Lane(lane_id, Mode(("AD", "SD")[lane_id]), 0.25, 1.0, tuple(users.request_id.tolist()), gamma)
        expected = starts + np.array(walk(server, gamma, members)) / 0.25
        assert problem.lane_model.predict(problem, lane).finish_s == pytest.approx(expected, rel=1e-9)


def residents(slack, **changes):
    count = len(slack)
    columns = {
        "request_id": np.arange(50, 50 + count),
        "lane_id": np.zeros(count, np.int64),
        "is_sd": np.zeros(count, np.bool_),
        "tokens_out": np.full(count, 5),
        "remaining_tokens": np.full(count, 2),
        "context_tokens": np.full(count, 10),
        "needs_prefill": np.zeros(count, np.bool_),
        "acceptance_rate": np.full(count, 0.5),
        "draft_length": np.zeros(count, np.int64),
        "reserved_bytes": np.full(count, 100.0),
        "slack_s": np.array(slack, dtype=float),
        "upload_s": np.zeros(count),
    }
    return Residents(**(columns | changes))


def test_only_deadlines_that_can_be_kept_count():
    """Two residents: 2 steps of 2+20 and 2+22 = 46 at the whole GPU. Slack −1 and 45 are lost and impose nothing."""
    for slack, counts in ((-1.0, False), (45.0, False), (46.0, True)):
        table = residents([slack, np.inf])
        lanes = (Lane(0, Mode.AD, 1.0, 1.0),)
        empty = make_candidates([], [], [])
        problem = make_problem(empty, COUNTING, ContinuousLanes(), lanes=lanes, make_residents=lambda t=table: t)
        prediction = problem.lane_model.predict(problem, replace(lanes[0], gpu_share=0.5))
        assert prediction.finish_s.tolist() == [92.0, 92.0]
        assert prediction.late.tolist() == [counts, False]


def test_rebuilt_cache_emits_no_token():
    """A resident that was preempted with 5 tokens out prefills its 10 tokens and then makes all 2 remaining ones."""
    table = residents([np.inf], needs_prefill=np.ones(1, np.bool_))
    lanes = (Lane(0, Mode.AD, 1.0, 1.0),)
    problem = make_problem(
        make_candidates([], [], []), COUNTING, ContinuousLanes(), lanes=lanes, make_residents=lambda: table
    )
    # prefill 10, then steps at contexts 10 and 11: 1 + 10 and 1 + 11
    assert problem.lane_model.predict(problem, lanes[0]).finish_s.tolist() == [33.0]


def test_additive_batch():
    """Alone they cost 4 + (1 + 5) + (1 + 6) = 17 and 2 + (1 + 3) = 6: 3 + 2·23 at half the GPU; memory is padded."""
    users = make_candidates([4, 2], [3, 2], [50.0, 60.0], upload=[1.0, 3.0])
    prediction = PerUserLanes().predict(make_problem(users, COUNTING), Lane(0, Mode.AD, 0.5, 1.0, (0, 1)))
    assert prediction.finish_s.tolist() == [49.0, 49.0]
    assert prediction.reserved_bytes == 2 * (4 + 3) * COUNTING.target.kv_bytes_per_token


@pytest.mark.parametrize("lane_model", [model() for model in LANE_MODELS], ids=lambda model: model.name)
class TestEveryLaneModel:
    def test_empty_lane_and_zero_share(self, lane_model):
        """An empty lane has nothing to predict; a share of zero never finishes."""
        problem = make_problem(make_candidates([3], [3], [5.0]), with_sbs(COUNTING), lane_model)
        empty = lane_model.predict(problem, Lane(0, Mode.AD, 1.0, 1.0))
        assert (len(empty.request_id), len(empty.finish_s), empty.reserved_bytes) == (0, 0, 0.0)
        if lane_model.name != "fused":  # one process for all lanes: shares mean nothing
            assert lane_model.predict(problem, Lane(0, Mode.AD, 0.0, 1.0, (0,))).finish_s.tolist() == [np.inf]

    def test_unknown_member(self, lane_model):
        """A member that is no candidate is named."""
        problem = make_problem(make_candidates([3], [3], [5.0]), with_sbs(COUNTING), lane_model)
        with pytest.raises(ValueError, match=r"lane 0: members must be candidates, got request ids \[8\]"):
            lane_model.predict(problem, Lane(0, Mode.AD, 1.0, 1.0, (0, 8)))

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(problem=problems(max_count=6))
    def test_new_bytes_is_what_members_add(self, lane_model, problem):
        """The memory of new members alone is the lane's memory with them less that without."""
        problem = replace(problem, lane_model=lane_model)
        if lane_model.name == "pipeline":  # a batch under way is closed: new members are a batch of their own
            problem = replace(problem, server=with_sbs(problem.server), lanes=())
        lane = Lane(0, Mode.AD, 0.5, 0.5, tuple(problem.candidates.request_id.tolist()))
        alone = (
            0.0
            if lane_model.name.startswith("static")
            else lane_model.predict(problem, replace(lane, members=())).reserved_bytes
        )
        whole = lane_model.predict(problem, lane).reserved_bytes
        assert lane_model.new_bytes(problem, lane) == pytest.approx(whole - alone, rel=1e-9)
