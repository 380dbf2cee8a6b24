"""What real engines do inside a continuous lane: chunks, blocks, a cap on sequences, a watermark, reuse of blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancesim.catalog import gpu, llm
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.latency import Batch, decode_steps_s, mixed_cost, prefill_s, rounds_s
from balancesim.core.request import Mode, Outcome, Request
from balancesim.core.slicing import Slicing
from balancesim.core.work import Phase, chunk_pass, decode_pass, merged, pass_flops, prefill_pass
from balancesim.latency_laws import Profiled
from tests.test_continuous import AD, LAWS, World, make_spec
from tests.test_simulate import BUSY, check_invariants, run

KV = make_spec().target.kv_bytes_per_token
PAGED = ContinuousLanes(token_budget=64, kv_reservation="paged", block_tokens=16)


@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=6))
def test_chunks_add_up_to_the_prompt(sizes):
    """q tokens behind p cached ones count 2pq + q² pairs: (p+q)² − p², so the chunks of s tokens sum to s²."""
    done = pairs = 0
    for q in sizes:
        pairs += q * (2 * done + q)
        done += q
    whole = prefill_pass(float(done), float(done) ** 2, 1.0)
    assert (done, pairs) == (whole.new_tokens, whole.attention_pairs)


CHUNK, DECODE = chunk_pass(2.0, 300.0, 300.0 * 500.0, 100.0), decode_pass(8.0, 4000.0)


def test_mixed_pass_by_law():
    """`flops` adds its coefficients' parts; `affine` pays for the pass once; `roofline` takes the merged pass."""
    server = make_spec("flops")
    parts = [pass_flops(server.target, work) for work in (CHUNK, DECODE)]
    assert server.target_mixed_s(CHUNK, Phase.DECODE, DECODE) == pytest.approx(1e-14 * parts[0] + 2e-13 * parts[1])
    server = make_spec("affine")
    assert server.target_mixed_s(CHUNK, Phase.DECODE, DECODE) == pytest.approx(1e-14 * sum(parts) + 3e-3)
    server = make_spec("roofline")
    both = server.target_law.forward_s(server.target, server.gpu, Phase.DECODE, merged(CHUNK, DECODE))
    assert server.target_mixed_s(CHUNK, Phase.DECODE, DECODE) == both


@pytest.mark.parametrize("law", [*LAWS, "profiled"])
@given(new=st.integers(1, 2048), cached=st.integers(0, 4000), size=st.integers(1, 200), context=st.integers(1, 4000))
@settings(max_examples=25, deadline=None)
def test_mixed_pass_lies_between_the_longer_part_and_the_sum(law, new, cached, size, context):
    """Rows that share a pass cost no more than in passes of their own, and no less than either alone."""
    spec = make_spec("roofline" if law == "profiled" else law)
    model = Profiled() if law == "profiled" else spec.target_law
    target, card = (llm("Llama-3.1-8B"), gpu("RTX 4090")) if law == "profiled" else (spec.target, spec.gpu)
    chunk = chunk_pass(1.0, float(new), float(new * (2 * cached + new)), float(cached))
    work = decode_pass(float(size), float(size * context))
    alone = [model.forward_s(target, card, Phase.PREFILL, chunk), model.forward_s(target, card, Phase.DECODE, work)]
    both = model.mixed_s(target, card, chunk, Phase.DECODE, work)
    assert max(alone) * (1 - 1e-9) <= both <= sum(alone) * (1 + 1e-9)


def test_parts_of_a_mixed_step():
    """What the chunks add is prefill; with nobody running it is a prefill; SD's drafts come first."""
    spec = make_spec()
    alone = mixed_cost(spec, 0, prefill_pass(300.0, 9e4, 1.0), Batch(0.0, 0.0))
    assert alone.total_s == alone.prefill_s == prefill_s(spec, Mode.AD, 1.0, 300.0, 9e4)
    cost = mixed_cost(spec, 0, CHUNK, Batch(8.0, 4000.0))
    assert cost.decode_s == float(decode_steps_s(spec, 8.0, np.array([4000.0]))[0])
    assert cost.total_s == pytest.approx(float(spec.target_mixed_s(CHUNK, Phase.DECODE, DECODE)), rel=1e-12)
    drafted = mixed_cost(spec, 4, CHUNK, Batch(8.0, 4000.0))
    assert drafted.draft_s == float(rounds_s(spec, 8.0, np.array([4000.0]), 4).draft_s[0])


def test_blocks_are_taken_as_tokens_come():
    """100 + 1 tokens take 7 blocks of 16 at once; an answer of 60 needs 10 in the end, whatever was predicted."""
    world = World(make_spec(), Slicing(0.05), capacity=1000 * KV, engine=PAGED)
    world.shares(0.0, {0: 1.0})
    world.admit(0.0, AD, Request(0, 0, 0.0, 100, 60, predicted_output_tokens=500))
    world.env.run(until=1e-3)
    assert world.memory.held_bytes == 7 * 16 * KV
    world.env.run()
    assert world.memory.take_peak() == 10 * 16 * KV
    assert world.done[0].tokens_out == 60


@pytest.mark.parametrize("reuse", [False, True])
def test_a_preempted_cache_is_used_again_while_it_lasts(reuse):
    """Two of 100 tokens share 16 blocks. The younger gives way; what the other overwrites is computed again, no more.

    Both hold 7 blocks (112 tokens), 2 are free. With 12 tokens out each takes an eighth. With 28 out the older needs a
    ninth: the younger leaves its 8 blocks. The older takes 2 of them, for 44 and for 60 tokens, from the back of the
    younger's cache; when it is done the younger comes back with 6 blocks = 96 of its 128 tokens still there.
    """
    engine = ContinuousLanes(token_budget=512, kv_reservation="paged", block_tokens=16, prefix_caching=reuse)
    world = World(make_spec(), Slicing(0.05), capacity=16 * 16 * KV, engine=engine)
    world.shares(0.0, {0: 1.0})
    for k in range(2):
        world.admit(0.0, AD, Request(k, k, 0.0, 100, 60))
    world.env.run()
    old, young = sorted(world.done, key=lambda visit: visit.request.request_id)
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert (old.tokens_out, young.tokens_out) == (60, 60)
    again = [span for span in world.spans if span.prefill_s > 0][1]
    cached = 96.0 if reuse else 0.0
    new = 128.0 - cached
    expected = mixed_cost(make_spec(), 0, chunk_pass(1.0, new, 128.0**2 - cached**2, cached), Batch(0.0, 0.0))
    assert again.prefill_s == pytest.approx(expected.prefill_s, rel=1e-12)
    assert world.memory.held_bytes == 0.0


def test_most_sequences_and_watermark(tmp_path):
    """No more requests are inside than allowed, admission leaves its part of the memory free, nothing is lost."""
    settings = (*BUSY, "scheduling.epoch_mode=on_event", 'run.policies=["fcfs"]', "requests.deadline=none")
    kind = 'scheduling.discipline={kind="continuous", token_budget=256, kv_reservation="paged", '
    capped = run(tmp_path, "fcfs", *settings, kind + "max_sequences=3}")
    check_invariants(*capped)
    assert max(row.residents for row in capped[2].epochs) < 3
    assert {row.outcome for row in capped[2].requests} == {Outcome.COMPLETED}
    kept = run(tmp_path, "fcfs", *settings, kind + "watermark=0.5}")
    check_invariants(*kept)
    for row in kept[2].epochs:
        assert row.admitted == 0 or row.residents == 0 or row.kv_used_bytes <= 0.5 * row.kv_capacity_bytes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_budget": 0}, "token_budget must be at least 1, got 0"),
        ({"max_sequences": 0}, "max_sequences must be at least 1, got 0"),
        ({"block_tokens": 0}, "block_tokens must be at least 1, got 0"),
        ({"kv_reservation": "swap"}, "kv_reservation must be prediction or paged, got 'swap'"),
        ({"watermark": 1.0}, "watermark must be at least 0 and below 1, got 1.0"),
        ({"prefix_caching": True}, "prefix_caching must be false without"),
    ],
)
def test_bad_options(options, message):
    """A bad option is one clear line."""
    with pytest.raises(ValueError, match=message):
        ContinuousLanes(**options)
