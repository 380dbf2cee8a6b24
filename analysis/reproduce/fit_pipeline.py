"""Search for the constants that Zhu et al. (arXiv 2510.11331 v1) do not declare, inside declared ranges.

    python -m analysis.reproduce.fit_pipeline             about ten minutes; writes docs/reproduction/pipeline_fit.json

A Sobol sequence (fixed seed) over the five constants of the two nodes, then a Nelder-Mead descent from the best point.
For every point the rest is searched on a grid, which is cheap because it only scales uploads or picks a reading of the
paper: bits per token, path loss, fading, and whether "without pipeline" re-optimises its batches. The score is the root
mean square of the residuals in percentage points; "below AD" counts by how much it is violated at α = 0.6 and 0.8.
Only constants and readings are searched: the proposal and the baselines are those of `balancesim.core.pipeline_plans`.
"""

import argparse
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.stats import qmc

from analysis.reproduce.pipeline_study import PAIRS, PATH_LOSSES, Constants, Setting, instance
from balancesim.core.pipeline import PipelinePlan
from balancesim.core.pipeline_instance import PipelineInstance
from balancesim.core.pipeline_plans import BASELINES, joint, same_batches_without_pipeline
from balancesim.core.pipeline_times import batch_times
from balancesim.units import FloatArray

log = logging.getLogger(__name__)

RESULT = Path("docs/reproduction/pipeline_fit.json")
#: range of every searched constant, ends included; all on a logarithmic scale
RANGES = {
    "sbs_efficiency": (0.1, 1.0),  # share of the tensor peak that a large batch reaches
    "sbs_weight_factor": (0.5, 3.0),  # time of a pass over the weights against the data sheet's bandwidth
    "mbs_efficiency": (0.1, 1.0),
    "mbs_weight_factor": (0.5, 3.0),
    "layer_s": (1e-6, 2e-4),  # kernel launches of one layer
}
BITS_PER_TOKEN = np.geomspace(16, 1e6, 97)  # a token id up to sixty embeddings of 4,096 fp16 values a token
LOW_ALPHA = 0.6
PAIR = "1.1B/7B"  # of statements that name none: the middle one [A]


@dataclass(frozen=True)
class Reading:
    """How statements of the paper that leave something open are read."""

    pair: str  #: `PAIR`, fixed
    without_pipeline: str  #: a key of `BASELINES`


@dataclass(frozen=True)
class Fit:
    """The best constants found."""

    constants: Constants
    reading: Reading
    score_points: float  #: root mean square residual, percentage points
    evaluations: int


def _times(constants: Constants, setting: Setting, baselines: tuple[str, ...]) -> dict[str, float]:
    """Return T_inf of the proposal and of some baselines at one setting, in replication 0."""
    case = instance(constants, setting, 0)
    plan = joint(case)
    times = {name: BASELINES[name](case).inference_s for name in baselines}
    return times | {"joint": plan.inference_s, "same_batches_without_pipeline": _in_turn(case, plan)}


def _in_turn(case: PipelineInstance, plan: PipelinePlan) -> float:
    sizes = np.array([len(batch) for batch in plan.batches])
    inputs = np.array([case.tasks.prompt_tokens[list(batch)].max() for batch in plan.batches])
    return float(batch_times(case, sizes, inputs, plan.draft_length).loop_sum_s.sum())


def _uploads(constants: Constants, setting: Setting) -> tuple[float, float]:
    """Return T_up of the optimal and of the uniform split per bit of a token, mean over ten replications."""
    pairs = []
    for replication in range(10):
        case = instance(replace(constants, bits_per_token=1.0), setting, replication)
        loads = case.tasks.upload_bits / case.tasks.spectral_efficiency_bps_hz
        pairs.append((loads.sum() / case.bandwidth_hz, loads.max() * len(loads) / case.bandwidth_hz))
    best, uniform = np.mean(pairs, axis=0)
    return float(best), float(uniform)


@dataclass(frozen=True)
class _Residuals:
    """T_inf at every setting of the statements; residuals for any uploads and reading."""

    full: dict[str, dict[str, float]]  #: by pair, at α = 0.8 and at the lowest α
    low_alpha: dict[str, dict[str, float]]
    single: dict[str, float]  #: of the pair that statements without a pair mean, all tasks
    fewer: dict[str, float]
    shorter: dict[str, float]

    @classmethod
    def of(cls, constants: Constants) -> "_Residuals":
        lengths = ("without_pipeline", "heuristic_batching")
        single = Setting(PAIR)
        low = {pair: Setting(pair, acceptance_rate=LOW_ALPHA) for pair in PAIRS}
        full = {pair: _times(constants, Setting(pair), ("autoregressive",)) for pair in PAIRS}
        case = instance(constants, single, 0)
        return cls(
            full=full,
            low_alpha={pair: _times(constants, setting, ("autoregressive",)) for pair, setting in low.items()},
            single=full[PAIR] | {name: BASELINES[name](case).inference_s for name in lengths},
            fewer=_times(constants, replace(single, tasks=90), ("maximum_batching",)),
            shorter=_times(constants, replace(single, max_output=1792), lengths),
        )

    def points(self, reading: Reading, bits: FloatArray, per_bit: dict[str, tuple[float, float]]) -> FloatArray:
        """Return the residuals in percentage points, one row a statement, one column a value of ``bits``."""
        wide, band, fewer = (np.array(per_bit[key])[:, None] * bits for key in ("wide", "band", "fewer"))
        residuals = []
        for name, paper in zip(PAIRS, (44.9, 29.3, 25.2), strict=True):
            ours = self.full[name]["joint"]
            residuals.append(100 * (1 - (wide[0] + ours) / (wide[1] + ours)) - paper)
        for times, upload, baseline, paper in (
            (self.single, band[0], reading.without_pipeline, 31.6),
            (self.shorter, band[0], reading.without_pipeline, 30.7),
            (self.fewer, fewer[0], "maximum_batching", 21.4),
            (self.single, band[0], "heuristic_batching", 19.6),
            (self.shorter, band[0], "heuristic_batching", 20.5),
        ):
            residuals.append(100 * (1 - (upload + times["joint"]) / (upload + times[baseline])) - paper)
        for times in (*self.full.values(), *self.low_alpha.values()):
            below = 100 * (1 - (band[0] + times["joint"]) / (band[0] + times["autoregressive"]))
            residuals.append(np.minimum(below, 0.0))
        return np.array(residuals)


def _per_bit(constants: Constants) -> dict[str, tuple[float, float]]:
    setting = Setting(PAIR)
    return {
        "wide": _uploads(constants, replace(setting, bandwidth_hz=25e6)),
        "band": _uploads(constants, setting),
        "fewer": _uploads(constants, replace(setting, tasks=90)),
    }


def evaluate(values: FloatArray, channels: dict[tuple[str, bool], dict[str, tuple[float, float]]]) -> Fit:
    """Return the best fit for given node constants, over the grid of everything cheap."""
    node = dict(zip(RANGES, values.tolist(), strict=True))
    base = Constants(bits_per_token=1.0, **node)
    residuals = _Residuals.of(base)
    best: Fit | None = None
    readings = [Reading(PAIR, name) for name in ("without_pipeline", same_batches_without_pipeline.__name__)]
    for reading, (channel, per_bit) in product(readings, channels.items()):
        scores = np.sqrt((residuals.points(reading, BITS_PER_TOKEN, per_bit) ** 2).mean(axis=0))
        at = int(np.argmin(scores))
        if best is None or scores[at] < best.score_points:
            found = replace(base, bits_per_token=float(BITS_PER_TOKEN[at]), path_loss=channel[0], rayleigh=channel[1])
            best = Fit(found, reading, float(scores[at]), 1)
    assert best is not None
    return best


def search(points: int, descent: int, report: Callable[[str], None]) -> Fit:
    """Run the whole search."""
    low, high = np.log(np.array(list(RANGES.values()))).T
    dummy = Constants(1.0, 1.0, 1.0, 1.0, 1.0, 1e-6)
    channels = {
        (name, fading): _per_bit(replace(dummy, path_loss=name, rayleigh=fading))
        for name, fading in product(PATH_LOSSES, (False, True))
    }
    sample = qmc.scale(qmc.Sobol(len(low), seed=1).random(points), low, high)
    best: Fit | None = None
    for at, row in enumerate(sample):
        found = evaluate(np.exp(row), channels)
        if best is None or found.score_points < best.score_points:
            best = found
            report(f"{at}: {found.score_points:.2f} points, {found}")
    assert best is not None
    start = np.log([getattr(best.constants, name) for name in RANGES])
    tried = [best]

    def objective(row: FloatArray) -> float:
        tried.append(evaluate(np.exp(np.clip(row, low, high)), channels))
        return tried[-1].score_points

    minimize(objective, start, method="Nelder-Mead", options={"maxfev": descent, "xatol": 1e-3, "fatol": 1e-3})
    winner = min(tried, key=lambda fit: fit.score_points)
    return replace(winner, evaluations=points + len(tried) - 1)


def main() -> None:
    """Search and write the result."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--descent", type=int, default=60)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    fit = search(options.points, options.descent, partial(log.info, "%s"))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    ranges = {name: list(ends) for name, ends in RANGES.items()} | {"bits_per_token": [16.0, 1e6]}
    options.out.write_text(json.dumps(asdict(fit) | {"ranges": ranges}, indent=2) + "\n")
    log.info("%s", fit)


if __name__ == "__main__":
    main()
