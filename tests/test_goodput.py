"""Draft lengths of most goodput, and the time of a fused step they are chosen for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancesim.catalog import gpu as gpu_named
from balancesim.catalog import llm
from balancesim.core.fused import DepthSums, FusedMembers, depth_sums, fused_steps_s
from balancesim.core.goodput import GoodputRule, exhaustive_lengths, goodput_lengths, goodput_tps
from balancesim.core.latency import decode_steps_s, rounds_s
from balancesim.core.server import ServerSpec
from balancesim.core.speculation import kept_by_depth, tokens_per_round
from balancesim.latency_laws import Roofline
from balancesim.units import GIB
from tests.problems import LinearLaw, make_server
from tests.test_fused import ACCEPTANCE, make_spec

LINEAR = make_server(laws=(LinearLaw(2e-3, 1e-4, 0.0), LinearLaw(3e-4, 1e-5, 0.0)))


def members(context, rate, longest):
    return FusedMembers(np.array(context, float), np.array(rate, float), np.array(longest, dtype=np.int64))


def random_members(rng, count, longest=3):
    return members(rng.integers(1, 2000, count), rng.uniform(0, 1, count), rng.integers(0, longest + 1, count))


def scenario_server():
    """An A100 with Llama-3.1-8B in fp8 and Llama-3.2-1B, as in the scenario fused_speculation."""
    law = Roofline(launch_s=5e-4, bandwidth_efficiency=0.68, compute_efficiency=0.64)
    target, draft = (llm(name, "fp8", "fp16") for name in ("Llama-3.1-8B", "Llama-3.2-1B"))
    return ServerSpec(gpu_named("A100-40 SXM"), target, law, 35 * GIB, draft, law, 5)


class TestStep:
    def test_by_hand(self):
        """γ = 2, 1, 0: draft passes of 2 and 1 rows, 3·10⁻⁴ + rows·10⁻⁵ each; a target pass of 3 + 2 + 1 rows."""
        cost = fused_steps_s(LINEAR, depth_sums(np.array([2, 1, 0]), np.array([50.0, 60.0, 70.0])))
        assert float(cost.draft_s) == pytest.approx(2 * 3e-4 + 3 * 1e-5, rel=1e-12)
        assert float(cost.verify_s) == pytest.approx(2e-3 + 6 * 1e-4, rel=1e-12)

    @pytest.mark.parametrize("law", ["roofline", "affine", "flops", "profiled"])
    def test_limits(self, law):
        """No drafts: an AD step. All alike: a round of speculation. One call for many batches: each on its own."""
        spec, context = make_spec(law), np.array([700.0, 300.0, 20.0])
        zero = fused_steps_s(spec, depth_sums(np.zeros(3, int), context)).total_s
        assert float(zero) == pytest.approx(float(decode_steps_s(spec, 3.0, context.sum())), rel=1e-14)
        alike = fused_steps_s(spec, depth_sums(np.full(3, 4), context)).total_s
        assert float(alike) == pytest.approx(float(rounds_s(spec, 3.0, context.sum(), 4).total_s), rel=1e-12)
        both = fused_steps_s(spec, DepthSums([3.0, np.array([0.0, 2.0])], [context.sum(), np.array([0.0, 320.0])]))
        mixed = fused_steps_s(spec, depth_sums(np.array([0, 1, 1]), context)).total_s
        assert both.total_s == pytest.approx([float(zero), float(mixed)], rel=1e-12)


class TestLengths:
    @settings(max_examples=40, deadline=None)
    @given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
    def test_optimal_where_only_depth_and_number_count(self, seed, count):
        """With times that are fixed plus linear in the rows the lengths reach the goodput of the exhaustive search."""
        batch = random_members(np.random.default_rng(seed), count)
        best = goodput_tps(LINEAR, batch, exhaustive_lengths(LINEAR, batch))
        assert goodput_tps(LINEAR, batch, goodput_lengths(LINEAR, batch)) == pytest.approx(best, rel=1e-12)

    @pytest.mark.parametrize(
        ("law", "gap"), [("roofline", 1e-3), ("affine", 1e-3), ("profiled", 1e-3), ("flops", 0.05)]
    )
    def test_near_the_exhaustive_search(self, law, gap):
        """With real laws and contexts from 1 to 2,000: never above the exhaustive search, and close below it.

        Under `flops` whoever has a short context drafts cheaply, which the order by acceptance rate does not see.
        """
        rng, spec = np.random.default_rng(5), make_spec(law)
        for _ in range(25):
            batch = random_members(rng, 4)
            best = goodput_tps(spec, batch, exhaustive_lengths(spec, batch))
            found = goodput_tps(spec, batch, goodput_lengths(spec, batch))
            assert (1 - gap) * best <= found <= best * (1 + 1e-12)

    def test_per_request_is_never_worse_than_one_length(self):
        """Every common length is among the alternatives, and so is drafting nothing."""
        rng, spec = np.random.default_rng(7), make_spec()
        for _ in range(20):
            batch = random_members(rng, int(rng.integers(1, 60)), longest=6)
            free, common = (goodput_lengths(spec, batch, per_request=each) for each in (True, False))
            assert (free <= batch.longest_draft).all()
            assert (free >= 0).all()
            everyone = [np.minimum(depth, batch.longest_draft) for depth in range(7)]
            best = max(goodput_tps(spec, batch, lengths) for lengths in everyone)
            assert goodput_tps(spec, batch, common) == pytest.approx(best, rel=1e-12)
            assert goodput_tps(spec, batch, free) >= best * (1 - 1e-12)

    def test_lengths_of_their_own_pay_in_large_mixed_batches(self):
        """One request needs no second length; 96 of very different acceptance rates gain over 3 % by them."""
        rng, spec, gains = np.random.default_rng(2), scenario_server(), {1: [], 96: []}
        for count in (1, 96):
            for _ in range(10):
                batch = members(rng.uniform(300, 2500, count), rng.uniform(0.1, 0.95, count), [5] * count)
                free, common = (goodput_lengths(spec, batch, per_request=each) for each in (True, False))
                gains[count].append(goodput_tps(spec, batch, free) / goodput_tps(spec, batch, common) - 1)
        assert gains[1] == [0.0] * 10
        assert np.mean(gains[96]) > 0.03

    def test_falls_with_the_batch(self):
        """SmartSpec's point: one request drafts; a large batch of short contexts is compute bound and does not."""
        spec, rule = make_spec(), GoodputRule()
        assert rule.lengths(spec, members([20], [0.8], [6]))[0] >= 2
        assert rule.lengths(spec, members([20] * 600, [0.8] * 600, [6] * 600)).max() == 0

    def test_the_better_ones_draft_longer(self):
        """Where every row costs time, drafts of high acceptance rates are taken; one that nobody keeps never is."""
        rows = make_server(laws=(LinearLaw(2e-3, 1e-3, 0.0), LinearLaw(1e-5, 1e-6, 0.0)))
        lengths = goodput_lengths(rows, members([500] * 3, [0.97, 0.6, 0.0], [6] * 3))
        assert lengths[0] > lengths[1] >= lengths[2] == 0

    def test_nobody_may_draft(self):
        """AD requests only, or none at all."""
        assert goodput_lengths(LINEAR, members([5, 6], [1.0, 1.0], [0, 0])).tolist() == [0, 0]


class TestLuck:
    @pytest.mark.parametrize("law", ACCEPTANCE, ids=lambda law: law.name)
    def test_rounds_of_constant_length_walk_along_it(self, law):
        """Going from position to position with 1 + K[p, γ] tokens gives exactly the law's own rounds."""
        from balancesim.core.request import Request
        from balancesim.streams import Streams

        luck = Streams(1, 0).keyed("acceptance")
        for key, (rate, gamma, tokens) in enumerate(
            [(0.8, 4, 200), (0.5, 1, 60), (1.0, 3, 30), (0.0, 2, 20), (0.9, 5, 1)]
        ):
            request = Request(key, key, 0.0, 5, tokens, acceptance_rate=rate)
            table = law.kept_by_depth(request, 6, luck)
            position, emitted = 0.0, [0]
            while emitted[-1] < tokens - 1:
                row = table[int(position) if len(table) > 1 else 0]
                position += 1 + row[gamma]
                emitted.append(min(int(position + 1e-9), tokens - 1))
            assert np.diff(emitted).tolist() == law.rounds(request, gamma, luck).tolist()

    def test_runs_by_hand(self):
        """kept kept rejected kept: runs of 2, 1, 0, 1; at most g of them."""
        table = kept_by_depth(np.array([True, True, False, True]), 2)
        assert table.tolist() == [[0, 1, 2], [0, 1, 1], [0, 0, 0], [0, 1, 1]]
        assert kept_by_depth(np.empty(0, bool), 2).shape == (0, 3)
        assert tokens_per_round(np.array([0.1, 0.1, 0.9, 0.1]), 0.5, 2).tolist() == [3, 1]
