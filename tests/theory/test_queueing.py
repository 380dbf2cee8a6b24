"""The server against queueing theory, at loads from 30 to 95 %, with intervals over independent replications."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from balancesim.core.decision import Decision, Lane
from balancesim.core.request import Mode, Outcome, Request
from tests.edge import Edge, StepLaw

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class AdmitAll:
    """Admits whoever waits to one AD lane; rejects who does not fit when ``reject`` is set."""

    name: str = "admit_all"
    reject: bool = False

    def decide(self, problem):
        room = problem.server.free_bytes(uses_sd=False) - problem.held_bytes
        members, rejected = [], []
        for request_id, s, n in zip(
            problem.candidates.request_id,
            problem.candidates.prompt_tokens,
            problem.candidates.output_tokens,
            strict=True,
        ):
            if s + n <= room:
                room -= s + n
                members.append(int(request_id))
            elif self.reject:
                rejected.append(int(request_id))
        lanes = (Lane(0, Mode.AD, 1.0, 1.0, tuple(members)),) if members or len(problem.lanes) else ()
        return Decision(lanes, tuple(rejected))


def poisson_requests(rng, rate_hz, lengths, prompt_tokens=1):
    times = np.cumsum(rng.exponential(1 / rate_hz, len(lengths)))
    return [Request(k, 0, t, prompt_tokens, int(n)) for k, (t, n) in enumerate(zip(times, lengths, strict=True))]


def mean_sojourn_s(visits, skip):
    kept = [v for v in visits if v.request.request_id >= skip and v.outcome is Outcome.COMPLETED]
    return float(np.mean([v.server_last_token_s - v.request.arrival_s for v in kept]))


def interval(samples, confidence=0.99):
    """Student's interval of the mean over replications."""
    half = stats.t.ppf((1 + confidence) / 2, len(samples) - 1) * np.std(samples, ddof=1) / math.sqrt(len(samples))
    return float(np.mean(samples)), float(half)


def assert_mean(samples, expected, bias_s=0.0):
    """The theory lies in the interval of the replications, widened by a bias derived where it is given."""
    mean, half = interval(samples)
    assert half < 0.3 * expected, f"the interval ±{half:.3g} is too wide to say anything about {expected:.3g}"
    assert mean - half - bias_s <= expected <= mean + half, f"{mean:.5g} ± {half:.2g}, expected {expected:.5g}"


SIZES = {0.3: (8, 3000), 0.6: (8, 6000), 0.8: (8, 15000), 0.95: (10, 30000)}


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_static_batch_of_one_is_m_d_1(load):
    """Static, one candidate at a time, equal lengths: wait ρs/(2(1−ρ)) before a service of s."""
    service_s, samples = 1.0, []
    replications, count = SIZES[load]
    for seed in range(replications):
        rng = np.random.default_rng([seed, 1])
        edge = Edge(StepLaw(prefill_s=service_s), AdmitAll(), static=True, max_candidates=1)
        visits = edge.run(poisson_requests(rng, load / service_s, np.ones(count, int)))
        samples.append(mean_sojourn_s(visits, count // 5))
    assert_mean(samples, service_s + load * service_s / (2 * (1 - load)))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_static_batch_of_one_with_random_lengths_is_m_g_1(load):
    """Pollaczek-Khinchine: wait λE[S²]/(2(1−ρ)); S = n·c with n uniform on 1…39 (mean 20, E[n²] = 526⅔)."""
    step_s, samples = 0.05, []
    replications, count = SIZES[load]
    rate_hz = load / (20 * step_s)
    for seed in range(replications):
        rng = np.random.default_rng([seed, 2])
        edge = Edge(StepLaw(fixed_s=step_s, prefill_s=step_s), AdmitAll(), static=True, max_candidates=1)
        visits = edge.run(poisson_requests(rng, rate_hz, rng.integers(1, 40, count)))
        samples.append(mean_sojourn_s(visits, count // 5))
    second = sum(n * n for n in range(1, 40)) / 39 * step_s**2
    assert_mean(samples, 20 * step_s + rate_hz * second / (2 * (1 - load)))


LENGTHS = {
    "exponential": lambda rng, count: rng.geometric(1 / 100, count),
    "fixed": lambda rng, count: np.full(count, 100),
    "two_point": lambda rng, count: rng.choice([50, 550], count, p=[0.9, 0.1]),
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_steps_proportional_to_the_batch_are_processor_sharing(load, length):
    """M/G/1-PS: mean sojourn E[S]/(1−ρ) whatever the law of the lengths (exponential: 1/(μ−λ)).

    A request waits for the end of the step in progress, which PS does not have: at most one step, c/(1−ρ) on average.
    """
    row_s, samples = 0.01, []
    replications, count = SIZES[load]
    for seed in range(replications):
        rng = np.random.default_rng([seed, 3])
        edge = Edge(StepLaw(per_row_s=row_s), AdmitAll())
        # token 1 comes with the (free) prefill, so n + 1 tokens are n steps
        visits = edge.run(poisson_requests(rng, load / (100 * row_s), LENGTHS[length](rng, count) + 1))
        samples.append(mean_sojourn_s(visits, count // 5))
    assert_mean(samples, 100 * row_s / (1 - load), bias_s=2 * row_s / (1 - load))


def test_processor_sharing_at_95_percent():
    """The same at a load of 95 %, where a peer was found 28 to 71 % off."""
    row_s, samples = 0.02, []
    replications, count = SIZES[0.95]
    for seed in range(replications):
        rng = np.random.default_rng([seed, 4])
        edge = Edge(StepLaw(per_row_s=row_s), AdmitAll())
        visits = edge.run(poisson_requests(rng, 0.95 / (50 * row_s), np.full(count, 51)))
        samples.append(mean_sojourn_s(visits, count // 5))
    assert_mean(samples, 50 * row_s / 0.05, bias_s=2 * row_s / 0.05)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_batched_decoding_has_its_closed_form(load):
    """Step c_fix + c_var·b: mean latency C1/(1−λC2), C1 = n(c_fix + c_var), C2 = n·c_var (model.md §9)."""
    fixed_s, row_s, steps, samples = 0.02, 0.005, 200, []
    rate_hz = load / (steps * row_s)
    for seed in range(8):
        rng = np.random.default_rng([seed, 5])
        edge = Edge(StepLaw(fixed_s=fixed_s, per_row_s=row_s), AdmitAll())
        visits = edge.run(poisson_requests(rng, rate_hz, np.full(6000, steps + 1)))
        samples.append(mean_sojourn_s(visits, 1500))
    expected = steps * (fixed_s + row_s) / (1 - rate_hz * steps * row_s)
    assert_mean(samples, expected, bias_s=expected / steps)


@pytest.mark.parametrize("offered", [2.0, 5.0, 9.0])
def test_a_full_server_that_rejects_is_erlang_b(offered):
    """Memory for m = 6 requests, steps that do not depend on the batch: loss B(6, a)."""
    room, step_s, steps, samples = 6, 0.01, 100, []
    for seed in range(8):
        rng = np.random.default_rng([seed, 6])
        edge = Edge(StepLaw(fixed_s=step_s), AdmitAll(reject=True), memory_tokens=room * (1 + steps + 1))
        requests = poisson_requests(rng, offered / (steps * step_s), np.full(8000, steps + 1))
        visits = edge.run(requests)
        samples.append(np.mean([v.outcome is Outcome.REJECTED for v in visits]))
    terms = [offered**k / math.factorial(k) for k in range(room + 1)]
    mean, half = interval(samples)
    # waiting for the step in progress lengthens a stay by at most one step in a hundred
    longer = offered * (1 + 1 / steps)
    upper = [longer**k / math.factorial(k) for k in range(room + 1)]
    assert mean - half <= upper[-1] / sum(upper)
    assert terms[-1] / sum(terms) <= mean + half
    assert half < 0.2 * mean


def test_littles_law_is_an_identity():
    """The area under N(t), counted from the spans' batch sizes and waiting, equals the sum of sojourn times."""
    rng = np.random.default_rng(7)
    edge = Edge(StepLaw(fixed_s=0.01, per_row_s=0.002, prefill_s=0.03), AdmitAll())
    visits = edge.run(poisson_requests(rng, 2.0, rng.integers(1, 200, 3000)))
    events = sorted([(v.request.arrival_s, 1) for v in visits] + [(v.server_last_token_s, -1) for v in visits])
    area, inside, at = 0.0, 0, 0.0
    for time, change in events:
        area += inside * (time - at)
        inside, at = inside + change, time
    assert inside == 0
    assert area == pytest.approx(sum(v.server_last_token_s - v.request.arrival_s for v in visits), rel=1e-9)
    served = sum((span.end_s - span.start_s) * span.batch_size for span in edge.spans)
    prefilling = sum((s.end_s - s.start_s) * s.batch_size for s in edge.spans if s.prefill_s > 0)
    assert 0 < prefilling < served <= area * (1 + 1e-9)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_utilisation_law(load):
    """The GPU is busy for λE[S] of the time under processor sharing without fixed cost."""
    shares = []
    for seed in range(8):
        rng = np.random.default_rng([seed, 8])
        edge = Edge(StepLaw(per_row_s=0.01), AdmitAll())
        visits = edge.run(poisson_requests(rng, load / (100 * 0.01), np.full(4000, 101)))
        end = max(v.server_last_token_s for v in visits)
        shares.append(sum(s.decode_s for s in edge.spans) / end)
    mean, half = interval(shares)
    assert mean - half <= load <= mean + half
