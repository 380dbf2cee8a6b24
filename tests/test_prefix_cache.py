"""Prompts that begin alike: what is seen once need not be prefilled again."""

import pytest

from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.latency import Batch, mixed_cost
from balancesim.core.request import Request
from balancesim.core.slicing import Slicing
from balancesim.core.work import chunk_pass
from balancesim.processes.prefix_cache import PrefixCache
from tests.test_continuous import AD, World, make_spec
from tests.test_simulate import check_invariants, run


def prompt(tokens, *blocks):
    return Request(0, 0, 0.0, tokens, 10, prefix_blocks=blocks)


def test_longest_prefix_and_least_recently_used():
    """Only whole blocks from the front count; the block that was used longest ago goes when there is no room."""
    cache = PrefixCache(3)
    cache.keep(prompt(1200, 1, 2, 3))  # 1,200 tokens: blocks 1 and 2 are whole
    assert cache.cached_tokens(prompt(2000, 1, 2, 3)) == 1024
    assert cache.cached_tokens(prompt(2000, 1, 9, 2)) == 512
    assert cache.cached_tokens(prompt(2000, 2)) == 512
    cache.keep(prompt(1024, 7, 8))  # 1 has not been used since 2: it goes
    assert cache.cached_tokens(prompt(2000, 1, 2)) == 0
    assert cache.cached_tokens(prompt(2000, 7, 8)) == 1024


def test_the_last_token_is_always_computed():
    """A prompt that is all there still needs a pass for its first token."""
    cache = PrefixCache(8)
    cache.keep(prompt(1024, 1, 2))
    assert cache.cached_tokens(prompt(1024, 1, 2)) == 1023
    assert PrefixCache(0).cached_tokens(prompt(1024, 1, 2)) == 0


@pytest.mark.parametrize("budget", [None, 4096])
def test_the_second_of_two_equal_prefixes_is_prefilled_behind_it(budget):
    """Of 1,500 tokens the second computes 476, and reads 1,024; both get their whole answers."""
    engine = ContinuousLanes(token_budget=budget, prefix_cache_gib=4.0)
    world = World(make_spec(), Slicing(0.05), engine=engine)
    world.shares(0.0, {0: 1.0})
    for k, time in ((0, 0.0), (1, 5.0)):
        world.admit(time, AD, Request(k, k, time, 1500, 20, prefix_blocks=(1, 2, 10 + k)))
    world.env.run()
    first, second = (span.prefill_s for span in world.spans if span.prefill_s > 0)
    spec, nobody = make_spec(), Batch(0.0, 0.0)
    assert first == mixed_cost(spec, 0, chunk_pass(1.0, 1500.0, 1500.0**2, 0.0), nobody).prefill_s
    behind = chunk_pass(1.0, 476.0, 1500.0**2 - 1024.0**2, 1024.0)
    assert second == mixed_cost(spec, 0, behind, nobody).prefill_s
    visits = sorted(world.done, key=lambda visit: visit.request.request_id)
    assert [visit.cached_tokens for visit in visits] == [0, 1024]
    assert [visit.tokens_out for visit in visits] == [20, 20]


def test_a_trace_with_hashes(tmp_path):
    """Mooncake's conversation trace shares prefixes: hits with a cache, none without, and less prefill work."""
    settings = (
        'requests.arrivals={kind="trace", file="mooncake_conversation"}',
        "requests.lengths=trace",
        "requests.deadline=none",
        "server.target=Llama-3.1-8B",
        "server.draft=Llama-3.2-1B",
        "server.gpu=H100 SXM",
        "network.servers=one",
        'run.policies=["fcfs"]',
        "run.horizon_s=60",
        "scheduling.epoch_mode=on_event",
    )
    found = {}
    for gib in (0, 200):
        kind = f'scheduling.discipline={{kind="continuous", prefix_cache_gib={gib}}}'
        scenario, result, recorder = run(tmp_path, "fcfs", *settings, kind)
        check_invariants(scenario, result, recorder)
        hits = sum(row.cached_tokens for row in recorder.requests)
        found[gib] = (hits, sum(span.prefill_s for span in recorder.gpu_spans))
    assert found[0][0] == 0
    assert found[200][0] > 0
    assert found[200][1] < found[0][1]
