"""What happens to requests in the simulated pipeline: shared stations, deadlines, predictions, memory, bandwidth."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from balancesim.acceptance import Iid
from balancesim.core.pipeline_instance import PipelineInstance
from balancesim.core.pipeline_nodes import Fronthaul, PipelineNode
from balancesim.core.request import Outcome, Request
from balancesim.core.speculation import expected_tokens_per_round
from balancesim.core.work import Phase
from balancesim.policies import PipelinedSd
from tests.pipeline_cases import DRAFT, GPU, TARGET, random_instance, tasks
from tests.pipeline_world import PipelineWorld, Scripted, requests_of


@dataclass(frozen=True)
class ByPhase:
    """A pass takes a time of its phase, whatever the batch: rounds that can be added up by hand."""

    name: ClassVar[str] = "by_phase"
    prefill_s: float
    step_s: float

    def forward_s(self, llm, gpu, phase, work):
        return (self.prefill_s if phase is Phase.PREFILL else self.step_s) + 0.0 * work.new_tokens


def world_of(*policies, fronthaul=None, draft=(1.0, 1.0), target=(10.0, 3.0), memory=(16e9, math.inf), **options):
    """Draft prefill 1 s, draft pass 1 s; target prefill 10 s, verification 3 s, unless given."""
    case = PipelineInstance(
        tasks=tasks([]),
        draft=PipelineNode(DRAFT, GPU, ByPhase(*draft), memory[0]),
        target=PipelineNode(TARGET, GPU, ByPhase(*target), memory[1]),
        bandwidth_hz=1.0,
        max_draft_length=4,
        fronthaul=fronthaul or Fronthaul(),
    )
    return PipelineWorld(case, list(policies), **options)


def test_one_batch_by_hand():
    """l = 2, α = 1: 3 tokens a round. Round 1: 1 + 1 and 10; round 2: 2 and 3. Of 3 and 6 tokens: 12 and 17 s."""
    world = world_of(Scripted([([[0, 1]], 2)]))
    visits = world.run([Request(0, 0, 0.0, 5, 3, acceptance_rate=1.0), Request(1, 0, 0.0, 5, 6, acceptance_rate=1.0)])
    assert [visits[k].server_last_token_s for k in (0, 1)] == [12.0, 17.0]
    assert [visits[k].server_first_token_s for k in (0, 1)] == [12.0, 12.0]
    assert [(visits[k].draft_rounds, visits[k].tokens_out) for k in (0, 1)] == [(1, 3), (2, 6)]
    rows = [visits[k].row() for k in (0, 1)]
    assert [(row.drafted_tokens, row.accepted_tokens) for row in rows] == [(2, 2), (4, 4)]
    mbs, sbs = world.spans
    assert (mbs.start_s, mbs.end_s, mbs.steps, mbs.tokens) == (0.0, 17.0, 2, 9)
    assert (mbs.server_id, mbs.prefill_s, mbs.draft_s, mbs.verify_s, mbs.decode_s) == (1, 10.0, 0.0, 3.0, 0.0)
    assert (sbs.server_id, sbs.prefill_s, sbs.draft_s, sbs.verify_s, sbs.tokens) == (0, 2.0, 2.0, 0.0, 0)
    assert world.epochs[0].predicted_finish_s == world.epochs[0].measured_finish_s == 17.0


def test_two_sbs_share_the_verifier():
    """Two SBS send their first drafts at 2 s: the MBS takes 10 s each, the second waits; then 3 s rounds alternate.

    SBS 0: verified at 12, drafts to 14, verified 22 (the MBS is busy until then) to 25. SBS 1: 22, 24, 25 to 28.
    """
    world = world_of(Scripted([([[0]], 2)]), Scripted([([[1]], 2)]))
    visits = world.run([Request(k, k, 0.0, 5, 6, acceptance_rate=1.0) for k in (0, 1)])
    assert [visits[k].server_last_token_s for k in (0, 1)] == [25.0, 28.0]
    alone = world_of(Scripted([([[0]], 2)])).run([Request(0, 0, 0.0, 5, 6, acceptance_rate=1.0)])
    assert alone[0].server_last_token_s == 17.0


def test_two_sbs_share_the_memory():
    """The MBS holds one batch of 11 tokens: the other SBS sees what is held and waits for it to be released."""
    room = TARGET.weight_bytes + 15 * TARGET.kv_bytes_per_token
    world = world_of(PipelinedSd(draft_length=2), PipelinedSd(draft_length=2), memory=(16e9, room))
    visits = world.run([Request(k, k, 0.0, 5, 6, acceptance_rate=1.0) for k in (0, 1)])
    assert [visits[k].outcome for k in (0, 1)] == [Outcome.COMPLETED] * 2
    first, second = (visits[k] for k in (0, 1))
    assert first.server_last_token_s == 17.0
    assert second.admitted_s >= first.server_last_token_s


@pytest.mark.parametrize(("queueing", "ends"), [(False, (8.5, 9.0)), (True, (8.5, 14.5))])
def test_transfers_queue_on_a_shared_fronthaul(queueing, ends):
    """With a verifier of 0.5 s the second transfer decides: it leaves at 2 s, or at 8 s when the first has passed."""
    fronthaul = Fronthaul(1.0, 0.0, 3.0, 0.0, queueing=queueing)
    world = world_of(Scripted([([[0]], 2)]), Scripted([([[1]], 2)]), fronthaul=fronthaul, target=(0.5, 0.5))
    visits = world.run([Request(k, k, 0.0, 5, 3, acceptance_rate=1.0) for k in (0, 1)])
    assert tuple(visits[k].server_last_token_s for k in (0, 1)) == ends


def test_a_small_transfer_does_not_overtake():
    """Two batches of one SBS, 2 and 1 requests: the second's drafts, sent at 4 s, arrive with the first's at 14 s."""
    fronthaul = Fronthaul(1.0, 0.0, 3.0, 0.0)
    world = world_of(Scripted([([[0, 1], [2]], 2)]), fronthaul=fronthaul)
    visits = world.run([Request(k, 0, 0.0, 5, 3, acceptance_rate=1.0) for k in range(3)])
    # 2 requests · 2 drafts · 3 bits = 12 s from 2 s on; verified 14..24, then the second batch 24..34
    assert [visits[k].server_last_token_s for k in range(3)] == [24.0, 24.0, 34.0]


def test_decoding_and_speculating_batches_share_the_mbs():
    """A batch that is decoded on the MBS alone never visits the SBS: 10 s, then 3 s a token."""
    world = world_of(Scripted([([[0]], 0), ([[1]], 2)]), draft=(1.0, 1.0))
    visits = world.run([Request(0, 0, 0.0, 5, 3), Request(1, 0, 0.5, 5, 3, acceptance_rate=1.0)])
    # decoding: 0..10, back in the queue at once; the drafts come at 0.5 + 2 and wait: verified 10..20; then 20..23..26
    assert visits[1].server_last_token_s == 20.0
    assert visits[0].server_last_token_s == 26.0
    assert visits[0].draft_rounds == 0


def test_an_answer_longer_than_predicted_is_cut():
    """The batch has room for its longest predicted answer: what goes beyond is cut and late."""
    request = Request(0, 0, 0.0, 5, 9, acceptance_rate=1.0, predicted_output_tokens=6)
    visits = world_of(Scripted([([[0]], 2)])).run([request])
    assert (visits[0].tokens_out, visits[0].truncated, visits[0].outcome) == (6, True, Outcome.LATE)
    assert visits[0].server_last_token_s == 17.0


def test_an_overestimated_acceptance_takes_more_rounds():
    """Planned with α = 1 one round of 3 tokens; with α = 0 every round emits one: 12, then 5 s twice."""
    request = Request(0, 0, 0.0, 5, 3, acceptance_rate=0.0, predicted_acceptance_rate=1.0)
    world = world_of(Scripted([([[0]], 2)]))
    visits = world.run([request])
    assert visits[0].server_last_token_s == 22.0
    assert world.epochs[0].predicted_finish_s == 12.0


def test_abort_late_stops_at_the_next_verification():
    """A deadline at 13 s: the verification that ends at 17 s is the last; what is out then is all there is."""
    request = Request(0, 0, 0.0, 5, 9, deadline_s=13.0, acceptance_rate=1.0)
    visits = world_of(Scripted([([[0]], 2)]), abort_late=True).run([request])
    assert (visits[0].outcome, visits[0].tokens_out, visits[0].server_last_token_s) == (Outcome.LATE, 6, 17.0)
    visits = world_of(Scripted([([[0]], 2)])).run([request])
    assert (visits[0].outcome, visits[0].tokens_out, visits[0].server_last_token_s) == (Outcome.LATE, 9, 22.0)


def test_the_end_of_the_run_leaves_it_unfinished():
    """At 13 s round 1 is done: 3 tokens are out, and the batch still holds its memory."""
    world = world_of(Scripted([([[0]], 2)]))
    visits = world.run([Request(0, 0, 0.0, 5, 9, acceptance_rate=1.0)], until=13.0)
    assert (visits[0].outcome, visits[0].tokens_out, visits[0].draft_rounds) == (Outcome.UNFINISHED, 3, 1)


def test_residents_as_a_policy_sees_them():
    """A second request arrives at 13 s: of the first, 3 tokens are out and 6 are expected to be left."""
    policy = Scripted([([[0]], 2)])
    world = world_of(policy)
    seen = []
    decide = policy.decide
    policy.decide = lambda problem: seen.append((problem, problem.residents)) or decide(problem)
    world.run([Request(0, 0, 0.0, 5, 9, acceptance_rate=1.0), Request(1, 0, 13.0, 5, 1)], until=14.0)
    problem, residents = seen[-1]
    assert residents.tokens_out.tolist() == [3]
    assert residents.remaining_tokens.tolist() == [6]
    assert residents.context_tokens.tolist() == [8]
    assert residents.needs_prefill.tolist() == [False]
    assert residents.reserved_bytes.sum() == problem.held_bytes == 14 * TARGET.kv_bytes_per_token
    assert problem.sbs_held_bytes == 14 * DRAFT.kv_bytes_per_token


@pytest.mark.parametrize("seed", range(3))
def test_random_acceptance_takes_as_many_rounds_as_theory(seed):
    """Over many requests, drawn rounds come close to tokens over E; the batch leaves with its slowest member."""
    rng = np.random.default_rng(seed)
    alpha, length, count, tokens = 0.8, 4, 60, 120
    requests = [Request(k, 0, 0.0, int(rng.integers(5, 50)), tokens, acceptance_rate=alpha) for k in range(count)]
    batches = [list(range(0, 30)), list(range(30, 60))]
    world = world_of(Scripted([(batches, length)]), acceptance=Iid(), memory=(math.inf, math.inf))
    visits = world.run(requests)
    rounds = np.array([visits[k].draft_rounds for k in range(count)])
    expected = tokens / float(expected_tokens_per_round(alpha, length))
    assert abs(rounds.mean() - expected) < 4 * rounds.std() / math.sqrt(count) + 0.6
    for span, batch in zip(sorted(world.verified, key=lambda span: span.lane_id), batches, strict=True):
        assert span.steps == rounds[batch].max()


def test_memory_is_never_exceeded_and_all_is_released():
    """Streaming arrivals under the policy: both memories hold what batches reserve, and are empty at the end."""
    case = random_instance(4, 30, longest_output=40)
    kv = case.draft.llm.kv_bytes_per_token
    node = replace(case.draft, memory_bytes=case.draft.llm.weight_bytes + 3000 * kv)
    case = replace(case, draft=node)
    requests = [replace(r, arrival_s=0.05 * r.request_id) for r in requests_of(case)]
    policy = PipelinedSd(max_draft_length=4, batches_inside=1)
    world = PipelineWorld(case, [policy], acceptance=Iid())
    visits = world.run(requests)
    assert {visit.outcome for visit in visits.values()} == {Outcome.COMPLETED}
    (server,) = world.servers
    assert server._memory.held_bytes == server._setup.site.memory.held_bytes == 0.0
    assert max(len(epoch.lane_id) for epoch in world.epochs) > 1
