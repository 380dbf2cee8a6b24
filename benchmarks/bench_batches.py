"""What the third, fourth, … batch adds: `multi_batch` on random contested static problems of the paper's ranges.

Run it by ``make bench-batches``. Contested: the best single batch serves fewer than the most batches do, and those not
all. Ranges and cost coefficients are those of `scenarios/paper_balance.toml`: one RTX 4090 with 24 GB, Llama-2-7B with
TinyLlama, T 0.5–13 s, α 0.6–0.95, γ 4, s ≤ 500, n ≤ 200; padded cost under the laws `flops` and `roofline`, the
additive cost under `flops`.
"""

import argparse
import time
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from balancesim.core.decision import Decision
from balancesim.core.lane_models import PerUserLanes, StaticLanes
from balancesim.core.problem import LaneModel, Problem
from balancesim.core.work import LatencyLaw
from balancesim.latency_laws import Flops, Roofline
from balancesim.policies import AdTwoBatches, Balance, MultiBatch, Policy, SdTwoBatches
from benchmarks.bench_solver import SLOW, random_problem

FLOPS = Flops(prefill_s_per_flop=1.2e-14, decode_s_per_flop=6e-14, verify_s_per_flop=2e-14)
ROOFLINE = Roofline(launch_s=1e-4, bandwidth_efficiency=0.8, compute_efficiency=0.6)
SETTINGS: tuple[tuple[str, LaneModel, LatencyLaw], ...] = (
    ("padded, flops", StaticLanes(), FLOPS),
    ("padded, roofline", StaticLanes(), ROOFLINE),
    ("per user, flops", PerUserLanes(), FLOPS),
)


@dataclass
class Tally:
    """Results over the contested problems of one setting; [problem][M − 1] for `multi_batch`."""

    served: list[list[int]]
    seconds: list[list[float]]
    rivals: list[list[int]]  #: balance, ad_two_batches, sd_two_batches
    modes: Counter[str]
    lanes: Counter[int]


def decided(policy: Policy, case: Problem) -> tuple[Decision, float]:
    """Return the decision and the CPU seconds it took: one thread, and other programs do not count."""
    began = time.process_time()
    decision = policy.decide(case)
    return decision, time.process_time() - began


def measure(lane_model: LaneModel, law: LatencyLaw, options: argparse.Namespace) -> Tally:
    """Return the tally of one setting; cost tables are shared by all problems, as in a run."""
    tally = Tally([], [], [], Counter(), Counter())
    server = replace(random_problem(0, 1, SLOW).server, target_law=law, draft_law=law)
    MultiBatch(max_batches=options.batches).decide(
        replace(random_problem(options.problems, options.users, SLOW), server=server, lane_model=lane_model)
    )
    for seed in range(options.problems):
        case = replace(random_problem(seed, options.users, SLOW), server=server, lane_model=lane_model)
        found = [decided(MultiBatch(max_batches=m), case) for m in range(1, options.batches + 1)]
        counts = [len(decision.admitted) for decision, _ in found]
        if not counts[0] < counts[-1] < options.users:
            continue
        tally.served.append(counts)
        tally.seconds.append([seconds for _, seconds in found])
        rivals: tuple[Policy, ...] = (Balance(), AdTwoBatches(), SdTwoBatches())
        tally.rivals.append([len(policy.decide(case).admitted) for policy in rivals])
        tally.modes["".join(sorted(str(lane.mode) for lane in found[-1][0].lanes))] += 1
        tally.lanes[len(found[-1][0].lanes)] += 1
    return tally


def report(name: str, tally: Tally, options: argparse.Namespace) -> None:
    """Print one setting."""
    print(f"\n{name}: {len(tally.served)} contested of {options.problems} problems of {options.users} users")  # noqa: T201
    if not tally.served:
        return
    served, seconds = np.array(tally.served), 1e3 * np.array(tally.seconds)
    print("  M  served of K  gain of batch M    won nothing  CPU ms a decision: median, p95")  # noqa: T201
    for place in range(options.batches):
        share = 100 * served[:, place].mean() / options.users
        gain, nothing = "", ""
        if place:
            won = served[:, place] - served[:, place - 1]
            error = 1.96 * won.std(ddof=1) / np.sqrt(len(won)) if len(won) > 1 else float("nan")
            gain = f"{won.mean():+.2f} ± {error:.2f} users"
            nothing = f"{100 * np.mean(won == 0):.0f} %"
        times = f"{np.median(seconds[:, place]):.0f}  {np.percentile(seconds[:, place], 95):.0f}"
        print(f"  {place + 1}  {share:9.1f} %  {gain:>20}  {nothing:>10}  {times:>20}")  # noqa: T201
    names = ("balance", "ad_two_batches", "sd_two_batches")
    means = np.array(tally.rivals).mean(axis=0) / options.users
    print("  two batches: " + ", ".join(f"{n} {100 * x:.1f} %" for n, x in zip(names, means, strict=True)))  # noqa: T201
    print(f"  modes at M ≤ {options.batches}: {dict(tally.modes.most_common(4))}")  # noqa: T201


def main() -> None:
    """Print what every batch adds, setting by setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("--users", type=int, default=70)
    parser.add_argument("--batches", type=int, default=4)
    options = parser.parse_args()
    for name, lane_model, law in SETTINGS:
        report(name, measure(lane_model, law, options), options)


if __name__ == "__main__":
    main()
