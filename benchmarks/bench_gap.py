"""How far BALANCE is from the exhaustive optimum over the same grid of shares, on small contested problems.

Run it by ``make bench-gap``. Contested: best single mode < optimum < K; elsewhere a hybrid decides nothing. Padded
batches, the paper's ranges: T 0.5–13 s, α 0.6–0.95, γ 4, Llama-2-7B with TinyLlama on 24 GB, uniform s ≤ 500, n ≤ 200.
"""

import argparse

import numpy as np

from balancesim.catalog import gpu, llm
from balancesim.core.brute_force import exhaustive
from balancesim.core.lane_models import StaticLanes
from balancesim.core.problem import Candidates, Problem
from balancesim.core.server import ServerSpec
from balancesim.latency_laws import Flops
from balancesim.policies import AdOnly, Balance, SdOnly

GRID = (0.25, 0.5, 0.75)
LAW = Flops(prefill_s_per_flop=1.2e-14, decode_s_per_flop=6e-13, verify_s_per_flop=2e-13)


def problem(seed: int, count: int) -> Problem:
    """Return a random static problem; costs are those of a slow GPU, so that few users are as contested as 70."""
    rng = np.random.default_rng(seed)
    server = ServerSpec(
        gpu("RTX 4090"), llm("Llama-2-7B"), LAW, 24e9, draft=llm("TinyLlama-1.1B"), draft_law=LAW, draft_length=4
    )
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
    return Problem(0.0, 0, server, StaticLanes(), candidates)


def main() -> None:
    """Print the gaps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--users", type=int, default=5)
    options = parser.parse_args()
    balance = Balance(share_step=0.25, refine=False)
    gaps, contested = [], []
    for seed in range(options.problems):
        case = problem(seed, options.users)
        optimum = len(exhaustive(case, GRID, GRID).admitted)
        ours = len(balance.decide(case).admitted)
        single = max(len(AdOnly().decide(case).admitted), len(SdOnly().decide(case).admitted))
        gap = 1.0 - ours / optimum if optimum else 0.0
        gaps.append(gap)
        if single < optimum < options.users:
            contested.append(gap)
    worst = 1.0 - max(gaps)
    print(f"{len(gaps)} static problems of {options.users} users, z and λ in {GRID}")  # noqa: T201
    print(f"all:       mean gap {100 * np.mean(gaps):.2f} %, worst ratio {worst:.3f} (proved: at least 0.5)")  # noqa: T201
    if contested:
        print(f"contested: {len(contested)} problems, mean gap {100 * np.mean(contested):.2f} %")  # noqa: T201


if __name__ == "__main__":
    main()
