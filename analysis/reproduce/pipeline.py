"""Reproduce the evaluation of Zhu et al. (arXiv 2510.11331 v1): the paper's value beside ours, with intervals.

    python -m analysis.reproduce.pipeline [--quick]

Reads the constants that `fit_pipeline` found (docs/reproduction/pipeline_fit.json), runs every sweep over replications
and writes docs/reproduction/pipeline.md, pipeline.csv and pipeline_*.png. "x % below" is 1 − ours/baseline in total
latency T_up + T_inf, computed within a replication; intervals are 95 % Student intervals over replications.
"""

import argparse
import json
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from scipy.stats import t as student

from analysis.reproduce.pipeline_report import figures, report, residual_points
from analysis.reproduce.pipeline_study import PAIRS, Comparison, Comparisons, Constants, Setting, instance
from balancesim.core.pipeline import PipelinePlan
from balancesim.core.pipeline_instance import PipelineInstance
from balancesim.core.pipeline_plans import (
    BASELINES,
    joint,
    joint_exact,
    same_batches_autoregressive,
    same_batches_without_pipeline,
    uniform_bandwidth,
)

log = logging.getLogger(__name__)

OUT = Path("docs/reproduction")
Known = dict[tuple[Setting, int], PipelinePlan]
#: baselines that vary the proposal's own plan
_DERIVED = {
    "same_batches_autoregressive": same_batches_autoregressive,
    "same_batches_without_pipeline": same_batches_without_pipeline,
    "uniform_bandwidth": uniform_bandwidth,
}


@dataclass(frozen=True)
class Sweep:
    """One figure: settings by x value, and the schemes drawn."""

    figure: str
    unit: str
    points: tuple[tuple[str, Setting], ...]  #: x value as text, setting
    schemes: tuple[str, ...]


def sweeps(pair: str, alphas: Iterable[float]) -> tuple[Sweep, ...]:
    """Return the sweeps of the paper; those without a pair in the paper use ``pair``."""
    base = Setting(pair)
    lengths = ("joint", "without_pipeline", "same_batches_without_pipeline", "heuristic_batching")
    batchings = ("maximum_batching", "heuristic_batching", "static_batching", "no_batching", "fixed_draft_length")
    return (
        Sweep(
            "bandwidth",
            "MHz",
            tuple((f"{mhz}", Setting(p, bandwidth_hz=mhz * 1e6)) for p in PAIRS for mhz in (5, 10, 15, 20, 25)),
            ("joint", "uniform_bandwidth"),
        ),
        Sweep(
            "acceptance",
            "acceptance rate α",
            tuple((f"{alpha}", Setting(p, acceptance_rate=alpha)) for p in PAIRS for alpha in alphas),
            ("joint", "autoregressive", "same_batches_autoregressive"),
        ),
        Sweep(
            "input length",
            "tokens",
            tuple((f"{most}", replace(base, max_input=most)) for most in (128, 256, 512)),
            lengths,
        ),
        Sweep(
            "output length",
            "tokens",
            tuple((f"{most}", replace(base, max_output=most)) for most in (768, 1280, 1792)),
            lengths,
        ),
        Sweep(
            "tasks",
            "tasks",
            tuple((f"{count}", replace(base, tasks=count)) for count in (50, 70, 90)),
            ("joint", "joint_exact", *batchings),
        ),
    )


def run(sweep: Sweep, constants: Constants, replications: int, known: Known) -> pd.DataFrame:
    """Return one row per point, scheme and replication; proposals in ``known`` are used and added."""
    rows: list[dict[str, object]] = []
    for x, setting in sweep.points:
        for replication in range(replications):
            case = instance(constants, setting, replication)
            plan = _proposal(case, setting, replication, known)
            for scheme in sweep.schemes:
                found = plan if scheme == "joint" else _plan(scheme, case, plan)
                rows.append(
                    {
                        "figure": sweep.figure,
                        "x": x,
                        "pair": setting.pair,
                        "scheme": scheme,
                        "replication": replication,
                        "total_s": found.total_s,
                        "upload_s": found.upload_s,
                        "inference_s": found.inference_s,
                        "draft_length": found.draft_length,
                        "batches": len(found.batches),
                    }
                )
    return pd.DataFrame(rows)


def _proposal(case: PipelineInstance, setting: Setting, replication: int, known: Known) -> PipelinePlan:
    """Return the proposal; batches do not depend on the band and uploads scale with 1/B, so bands share one plan."""
    key = (replace(setting, bandwidth_hz=1.0), replication)
    if key not in known:
        known[key] = joint(replace(case, bandwidth_hz=1.0))
    plan = known[key]
    band = case.bandwidth_hz
    return replace(plan, bandwidth_hz=plan.bandwidth_hz * band, upload_s=plan.upload_s / band)


def _plan(scheme: str, case: PipelineInstance, plan: PipelinePlan) -> PipelinePlan:
    if scheme in _DERIVED:
        return _DERIVED[scheme](case, plan)
    return joint_exact(case) if scheme == "joint_exact" else BASELINES[scheme](case)


def interval(values: "pd.Series[float]") -> tuple[float, float, float]:
    """Return mean, and the ends of its 95 % Student interval; NaN ends for one value."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return mean, math.nan, math.nan
    half = float(student.ppf(0.975, count - 1)) * float(values.std(ddof=1)) / math.sqrt(count)
    return mean, mean - half, mean + half


def below_percent(runs: pd.DataFrame, baseline: str) -> "pd.Series[float]":
    """Return how far the proposal is below a baseline, in percent, by replication."""
    total = runs.pivot_table(index="replication", columns="scheme", values="total_s")
    return 100 * (1 - total["joint"] / total[baseline])


def compare(runs: pd.DataFrame, comparisons: Comparisons) -> pd.DataFrame:
    """Return the rows of pipeline.csv: first the paper's statements, then all total latencies of the sweeps."""
    rows = [row for item in comparisons.items for row in _compared(runs, item)]
    for (figure, x, pair, scheme), group in runs.groupby(["figure", "x", "pair", "scheme"], sort=False):
        name = f"total latency of {scheme} ({pair}), s"
        rows.append((str(figure), str(x), name, math.nan, *interval(group["total_s"])))
    return pd.DataFrame(rows, columns=["figure", "x", "quantity", "paper", "ours", "ci_low", "ci_high"])


def _compared(runs: pd.DataFrame, item: Comparison) -> Iterable[tuple[str, str, str, float, float, float, float]]:
    chosen = runs[(runs["figure"] == item.figure) & (runs["pair"] == item.setting.pair) & (runs["x"] == item.x)]
    for baseline in (item.baseline, f"same_batches_{item.baseline}"):  # the other reading, where there is one
        if baseline in set(chosen["scheme"]):
            name = f"below {baseline} ({item.setting.pair}), %"
            yield item.figure, item.x, name, item.paper_percent, *interval(below_percent(chosen, baseline))


def main(arguments: list[str] | None = None) -> None:
    """Run everything and write the report."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two replications")
    parser.add_argument("--fit", type=Path, default=OUT / "pipeline_fit.json")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    fit = json.loads(options.fit.read_text())
    constants, comparisons = Constants(**fit["constants"]), Comparisons(pair=fit["reading"]["pair"])
    replications = 2 if options.quick else 8
    every = sweeps(comparisons.pair, comparisons.alphas)
    known: Known = {}
    runs = pd.concat([run(sweep, constants, replications, known) for sweep in every], ignore_index=True)
    table = compare(runs, comparisons)
    options.out.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.out / "pipeline.csv", index=False, float_format="%.4f")
    names = figures(runs, {sweep.figure: sweep.unit for sweep in every}, options.out)
    (options.out / "pipeline.md").write_text(report(table, runs, fit, names))
    stated = table[table["paper"].notna()]
    log.info("%s", stated.to_string(index=False, float_format=lambda value: f"{value:.1f}"))
    points = residual_points(table, fit["reading"]["without_pipeline"])
    log.info("root mean square residual, the fit's reading of 'without pipeline': %.1f points", points)


if __name__ == "__main__":
    main()
