"""Time of the pipeline's searches, and how far they are from the best partitions; run by ``make bench``.

Writes ``benchmarks/results/pipeline.json`` and prints the same. Instances: K inputs uniform on 1..512, outputs on
1..2048 (small ones: 1..120), cost laws log-uniform from weight-bound to compute-bound, fixed seeds. Decisions of the
policy `pipelined_sd` are about requests of the scenario hetnet_pipeline that wait together.
"""

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from balancesim.catalog import gpu, llm
from balancesim.core import pipeline_brute_force as brute
from balancesim.core.candidates import Candidates
from balancesim.core.pipeline_batching import dynamic_programming
from balancesim.core.pipeline_exact import exact
from balancesim.core.pipeline_instance import PipelineInstance, PipelineTasks
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.pipeline_nodes import PipelineNode
from balancesim.core.pipeline_plans import joint, joint_exact
from balancesim.core.problem import Problem
from balancesim.core.request import Request
from balancesim.latency_laws import Affine
from balancesim.policies import PipelinedSd
from balancesim.scenario import load
from balancesim.streams import Streams
from balancesim.workload import Tally

RESULT = Path(__file__).parent / "results" / "pipeline.json"


def random_instance(seed: int, count: int, longest_output: int, max_draft_length: int = 10) -> PipelineInstance:
    """Return an instance with tasks sorted by input length."""
    rng = np.random.default_rng(seed)
    tasks = PipelineTasks(
        np.sort(rng.integers(1, 513, count)),
        rng.integers(1, longest_output + 1, count),
        np.full(count, 0.8),
        rng.uniform(1e4, 1e6, count),
        rng.uniform(1.0, 8.0, count),
    )
    laws = [Affine(10 ** rng.uniform(-14, -13), 10 ** rng.uniform(-4, -1.5)) for _ in range(2)]
    return PipelineInstance(
        tasks,
        PipelineNode(llm("TinyLlama-1.1B"), gpu("RTX 4090"), laws[0], 16e9),
        PipelineNode(llm("Llama-2-7B"), gpu("RTX 4090"), laws[1]),
        20e6,
        max_draft_length,
    )


def gaps(instances: int, ordered: int) -> dict[str, float]:
    """Return the dynamic programming's gap to the best contiguous partition, and that one's to all ordered ones."""
    to_contiguous, to_ordered, proved = [], [], 0
    for seed in range(instances):
        case = random_instance(seed, 4 + seed % 7, 120)
        length = 1 + seed % 8
        found = dynamic_programming(case, length).inference_s
        result = exact(case, length)
        best = brute.best_contiguous(case, length)[0]
        proved += result.proved and abs(result.partition.inference_s / best - 1) < 1e-9
        to_contiguous.append(found / best - 1)
    for seed in range(ordered):
        case = random_instance(10_000 + seed, 4 + seed % 2, 40)
        contiguous = exact(case, 1 + seed % 8).partition.inference_s
        to_ordered.append(contiguous / brute.best_ordered(case, 1 + seed % 8)[0] - 1)
    gap, order = np.array(to_contiguous), np.array(to_ordered)
    return {
        "instances": instances,
        "exact_equals_enumeration": proved,
        "dp_gap_mean": float(gap.mean()),
        "dp_gap_worst": float(gap.max()),
        "dp_share_not_optimal": float((gap > 1e-9).mean()),
        "ordered_instances": ordered,
        "contiguous_gap_to_ordered_mean": float(order.mean()),
        "contiguous_gap_to_ordered_worst": float(order.max()),
    }


def times(repeats: int) -> dict[str, float]:
    """Return seconds for K = 100, l_max = 10: the joint plan by dynamic programming and by branch and bound."""
    cases = [random_instance(seed, 100, 2048) for seed in range(repeats)]
    result: dict[str, float] = {}
    for name, plan in (("dp", joint), ("exact", joint_exact)):
        seconds = []
        for case in cases:
            start = perf_counter()
            plan(case)
            seconds.append(perf_counter() - start)
        result[f"{name}_k100_median_s"] = float(np.median(seconds))
        result[f"{name}_k100_worst_s"] = float(np.max(seconds))
    large = [joint(case).inference_s / joint_exact(case).inference_s - 1 for case in cases]
    return result | {"dp_gap_k100_mean": float(np.mean(large)), "dp_gap_k100_worst": float(np.max(large))}


def decisions(repeats: int) -> dict[str, float]:
    """Return CPU seconds of a planning decision of `pipelined_sd` in the scenario hetnet_pipeline, by tasks waiting."""
    scenario = load("hetnet_pipeline")
    server = scenario.servers[0].under(PipelineLanes())
    result: dict[str, float] = {}
    for waiting in (10, 32, 200):
        seconds = []
        for seed in range(repeats):
            requests = scenario.workload.requests(Streams(seed, 0), np.arange(scenario.network.users), Tally())
            problem = Problem(0.0, 0, server, PipelineLanes(), _waiting(list(islice(requests, waiting))))
            start = process_time()
            PipelinedSd().decide(problem)
            seconds.append(process_time() - start)
        result[f"decision_{waiting}_waiting_median_s"] = float(np.median(seconds))
        result[f"decision_{waiting}_waiting_worst_s"] = float(np.max(seconds))
    return result


def _waiting(requests: list[Request]) -> Candidates:
    """Return the candidates of these requests, their prompts at the SBS."""
    count = len(requests)
    return Candidates(
        request_id=np.arange(count),
        prompt_tokens=np.array([request.prompt_tokens for request in requests]),
        output_tokens=np.array([request.predicted_output_tokens for request in requests]),
        acceptance_rate=np.array([request.predicted_acceptance_rate for request in requests]),
        slack_s=np.array([request.deadline_s for request in requests]),
        upload_s=np.zeros(count),
        waited_s=np.arange(count, 0.0, -1.0),
        prompt_bits=np.zeros(count),
        spectral_efficiency_bps_hz=np.ones(count),
    )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=600)
    parser.add_argument("--ordered", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    numbers = gaps(options.instances, options.ordered) | times(options.repeats) | decisions(options.repeats)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(numbers, indent=2)
    options.out.write_text(text + "\n")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
