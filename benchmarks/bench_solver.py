"""Speed of BALANCE's decision and its distance to the exact optimum; run by ``make bench-solver``.

Padded batches in the paper's ranges: s uniform on 1…500, n on 1…200, T 0.5–13 s, α 0.6–0.95, γ 4, Llama-2-7B with
TinyLlama on 24 GB, z and λ on a grid of 19×19. Law `flops`; up to 16 users the GPU is ten times slower, so that few
users contend as 70 do. Writes ``benchmarks/results/solver.json``.

Speed: `Balance(share_step=0.05, refine=False)`, every result compared with the plain scan of the full grid. Exhaustive
search: all 3^16 assignments with shares in closed form, vectorised, nothing pruned. Quality: BALANCE as it comes
against the exact optimum over continuous shares; contested: best single mode < optimum < K.
"""

import argparse
import json
import platform
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from balancesim.catalog import gpu, llm
from balancesim.core.candidates import Candidates
from balancesim.core.lane_models import StaticLanes
from balancesim.core.optimum_exhaustive import exhaustive_optimum
from balancesim.core.optimum_two_colour import two_colour
from balancesim.core.problem import Problem
from balancesim.core.server import ServerSpec
from balancesim.core.shares import divided
from balancesim.core.two_stage import scan
from balancesim.latency_laws import Flops
from balancesim.policies import AdOnly, Balance, SdOnly
from balancesim.policies.lanes import ad_lane, sd_lane

RESULT = Path(__file__).parent / "results" / "solver.json"
FAST = Flops(prefill_s_per_flop=1.2e-14, decode_s_per_flop=6e-14, verify_s_per_flop=2e-14)
SLOW = Flops(prefill_s_per_flop=1.2e-14, decode_s_per_flop=6e-13, verify_s_per_flop=2e-13)
GRID = np.arange(1, 20) / 20
SIZES = {10: 30, 16: 30, 70: 30, 200: 10, 1000: 5}  #: users: problems


@cache
def server(law: Flops) -> ServerSpec:
    """Return the server; its tables of costs are made once, as in a run."""
    target, draft = llm("Llama-2-7B"), llm("TinyLlama-1.1B")
    return ServerSpec(gpu("RTX 4090"), target, law, 24e9, draft=draft, draft_law=law, draft_length=4)


def random_problem(seed: int, count: int, law: Flops | None = None) -> Problem:
    """Return a problem of this many users; up to 16 users wait for the slow GPU unless a law is given."""
    rng = np.random.default_rng((seed, count))
    candidates = Candidates(
        request_id=np.arange(count),
        prompt_tokens=rng.integers(1, 501, count),
        output_tokens=rng.integers(1, 201, count),
        acceptance_rate=rng.uniform(0.6, 0.95, count),
        slack_s=rng.uniform(0.5, 13.0, count),
        upload_s=rng.uniform(0.0, 0.02, count),
        waited_s=np.zeros(count),
        prompt_bits=np.ones(count),
        spectral_efficiency_bps_hz=np.ones(count),
    )
    return Problem(0.0, 0, server(law or (SLOW if count <= 16 else FAST)), StaticLanes(), candidates)


def single_modes(problem: Problem) -> int:
    """Return the users that the better single mode serves."""
    return max(len(policy.decide(problem).admitted) for policy in (AdOnly(), SdOnly()))


def plain_scan(problem: Problem) -> int:
    """Return the most users over the full grid, both orders and both single modes, every cell solved from scratch."""
    lanes = (ad_lane(), sd_lane(problem))
    subs = [problem.lane_model.sub_problem(problem, lane) for lane in lanes]
    grid, count = divided(problem, lanes, GRID, GRID), len(problem.candidates)
    orders = (scan((subs[0], subs[1]), count, grid), scan((subs[1], subs[0]), count, grid.swapped))
    return max(single_modes(problem), *(served for served, _ in orders))


def speed(count: int, problems: int) -> dict[str, float]:
    """Return the time of a decision at this size, and how many results differ from the plain scan."""
    policy, times_ms, differ = Balance(share_step=0.05, refine=False), [], 0
    for seed in range(problems):
        problem = random_problem(seed, count)
        start = perf_counter()
        served = len(policy.decide(problem).admitted)
        times_ms.append(1e3 * (perf_counter() - start))
        differ += served != plain_scan(random_problem(seed, count))
    row = {
        "k": count,
        "median_ms": round(float(np.median(times_ms)), 3),
        "p95_ms": round(float(np.percentile(times_ms, 95)), 3),
        "problems": problems,
        "differ_from_plain_scan": differ,
    }
    say(
        f"K = {count:5d}: median {row['median_ms']:9.2f} ms, 95th percentile {row['p95_ms']:9.2f} ms; "
        f"{differ} of {problems} differ from the plain scan"
    )
    return row


def against_exhaustive(seed: int, count: int = 16) -> dict[str, float]:
    """Return how much faster BALANCE is than trying all assignments of one stated problem."""
    problem = random_problem(seed, count)
    times = []
    for _ in range(30):
        fresh = random_problem(seed, count)
        start = perf_counter()
        ours = len(Balance(share_step=0.05, refine=False).decide(fresh).admitted)
        times.append(perf_counter() - start)
    balance_s = float(np.median(times))
    start = perf_counter()
    optimum = exhaustive_optimum(problem).served
    exhaustive_s = perf_counter() - start
    start = perf_counter()
    branched = two_colour(problem).served
    two_colour_s = perf_counter() - start
    if branched != optimum:
        raise RuntimeError(f"optimum: all assignments serve {optimum}, branch and bound {branched}")
    each_ns = 1e9 * exhaustive_s / 3**count
    say(
        f"all 3^{count} = {3**count:,} assignments (problem {seed}): {exhaustive_s:.1f} s, {each_ns:.0f} ns each; "
        f"BALANCE {1e3 * balance_s:.2f} ms: {exhaustive_s / balance_s:,.0f} times faster, {ours} of {optimum} users; "
        f"exact branch and bound {1e3 * two_colour_s:.1f} ms"
    )
    return {
        "speedup_vs_exhaustive_k16": round(exhaustive_s / balance_s),
        "exhaustive_s_k16": round(exhaustive_s, 3),
        "exhaustive_ns_per_assignment": round(each_ns, 1),
    }


@dataclass
class Gaps:
    """Gaps of BALANCE to the optimum over a set of problems."""

    every: list[float] = field(default_factory=list)
    contested: list[float] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)  #: of the exact optimum
    unproved: int = 0

    def add(self, problem: Problem) -> None:
        """Solve one problem both ways."""
        start = perf_counter()
        optimum = two_colour(problem)
        self.times_ms.append(1e3 * (perf_counter() - start))
        if not optimum.proved:
            self.unproved += 1
            return
        gap = 1.0 - len(Balance().decide(problem).admitted) / optimum.served if optimum.served else 0.0
        self.every.append(gap)
        if single_modes(problem) < optimum.served < len(problem.candidates):
            self.contested.append(gap)

    def report(self, what: str) -> None:
        """Print the gaps."""
        worst = 1.0 - max(self.every)
        say(
            f"{what}: mean gap {100 * np.mean(self.every):.3f} % over {len(self.every)} problems, "
            f"{100 * np.mean(self.contested):.3f} % over {len(self.contested)} contested; worst ratio {worst:.3f} "
            f"(proved: at least 0.5); exact optimum {np.median(self.times_ms):.1f} ms, {self.unproved} not proved"
        )


def quality(contested: int, large: int) -> dict[str, float]:
    """Return the gaps for K = 10–16, until so many problems were contested, and for K = 70."""
    small, seed = Gaps(), 0
    while len(small.contested) < contested:
        small.add(random_problem(seed, 10 + seed % 7))
        seed += 1
    small.report("K = 10–16")
    big = Gaps()
    for number in range(large):
        big.add(random_problem(number, 70))
    big.report("K = 70")
    return {
        "mean_gap_percent_k10_16": round(100 * float(np.mean(small.contested)), 4),
        "mean_gap_percent_k10_16_all": round(100 * float(np.mean(small.every)), 4),
        "mean_gap_percent_k70": round(100 * float(np.mean(big.every)), 4),
        "worst_ratio": round(1.0 - max(*small.every, *big.every), 4),
        "contested": len(small.contested),
        "optimum_median_ms_k70": round(float(np.median(big.times_ms)), 2),
    }


def say(line: str) -> None:
    """Print a line of the report."""
    print(line, flush=True)  # noqa: T201


def main() -> None:
    """Print and write all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--contested", type=int, default=500, help="contested problems of 10–16 users; default 500")
    parser.add_argument("--large", type=int, default=50, help="problems of 70 users; default 50")
    options = parser.parse_args()
    Balance().decide(random_problem(0, 10))  # compiled code is loaded
    rows: list[dict[str, Any]] = [speed(count, problems) for count, problems in SIZES.items()]
    sizes, medians = ([float(row[key]) for row in rows if row["k"] >= 70] for key in ("k", "median_ms"))
    growth = float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
    say(f"growth of the median with K from 70 to 1000: K^{growth:.2f} (the paper: O(K^6 log K))")
    result = {"k": rows, "growth_exponent": round(growth, 3), **against_exhaustive(0)}
    result |= {**quality(options.contested, options.large), "python": platform.python_version()}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
