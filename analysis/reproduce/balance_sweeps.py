"""The sweeps of [P1] (arXiv 2608.05926 v2): points, schemes, and how many users a decision serves in time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from analysis.reproduce.balance_study import COST_FORMS, PAIR, PAIRS, Round, Setting, one_round, weight_bytes
from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import is_feasible
from balancesim.core.members import members_of
from balancesim.core.memory import speculates
from balancesim.core.padded import Members
from balancesim.core.problem import tolerance
from balancesim.core.speculation import planned_rounds
from balancesim.policies import (
    AdOnly,
    AdTwoBatches,
    Balance,
    BestSingleMode,
    Edf,
    MultiBatch,
    Optimal,
    Policy,
    RandomSplit,
    SdOnly,
    SdTwoBatches,
    StaticSplit,
)
from balancesim.predictors import Exact, Noisy, NoisyTruth, Predictor
from balancesim.units import GB


@dataclass(frozen=True)
class Scheme:
    """A policy and what it is told."""

    policy: Policy
    predictor: Predictor = field(default_factory=Exact)
    told: bool = False  #: decides on the truth, although the world is that of the predictor


#: every sweep shows these; the ablations fix z (ECRA), λ (EMA) or both (ECRMA) at 0.5, single modes left out
POLICIES: dict[str, Scheme] = {
    "balance": Scheme(Balance()),
    "balance_as_published": Scheme(Balance(both_orders=False, single_modes=False, refine=False)),
    "ad_only": Scheme(AdOnly()),
    "sd_only": Scheme(SdOnly()),
    "best_single_mode": Scheme(BestSingleMode()),
    "ad_two_batches": Scheme(AdTwoBatches()),
    "sd_two_batches": Scheme(SdTwoBatches()),
    "edf": Scheme(Edf()),
    "static_split": Scheme(StaticSplit()),
    "random_split": Scheme(RandomSplit()),
}
ABLATIONS = {
    "ecra": Scheme(Balance(gpu_share=0.5, single_modes=False)),
    "ema": Scheme(Balance(memory_share=0.5, single_modes=False)),
    "ecrma": Scheme(Balance(gpu_share=0.5, memory_share=0.5, single_modes=False)),
}
#: bounds and rivals that take their time: in some sweeps only
SLOW = {"optimal": Scheme(Optimal()), "multi_batch": Scheme(MultiBatch())}
#: prediction errors: noise on what the policy is told, and noise on the truth (the paper's words)
PREDICTIONS = {
    f"{what}, {where}": law(*values)
    for where, law in (("noisy prediction", Noisy), ("noisy truth", NoisyTruth))
    for what, values in (("α CV 0.3", (0.0, 0.3)), ("n CV 0.3", (0.3, 0.0)), ("n log-t", (0.3, 0.0, 3.0)))
}
_PREDICTED = {name: Scheme(Balance(), law) for name, law in PREDICTIONS.items()} | {
    f"{name}, told": Scheme(Balance(), law, told=True) for name, law in PREDICTIONS.items()
}
SCHEMES = POLICIES | SLOW | ABLATIONS | _PREDICTED


@dataclass(frozen=True)
class Sweep:
    """One figure: settings by x value, and the schemes run."""

    figure: str
    axis: str
    points: tuple[tuple[float, Setting], ...]
    schemes: tuple[str, ...]


def served_in_time(chance: Round, decision: Decision) -> int:
    """Return how many admitted users are answered in time; every prediction of the decision must hold.

    A lane ends at its true cost, with the true answers up to the padded bound and the rounds planned at the true
    acceptance. Answers cut at the bound are late (docs/model.md §10).

    Raises:
        ValueError: the decision breaks a rule of the problem it was taken on; a defect of the policy.
    """
    verdict = is_feasible(chance.predicted, decision)
    if not verdict:
        raise ValueError(f"decision is not feasible: {'; '.join(verdict.reasons)}")
    return sum(_in_time(chance, lane) for lane in decision.lanes if lane.members)


def _in_time(chance: Round, lane: Lane) -> int:
    told, true = members_of(chance.predicted, lane), members_of(chance.true, lane)
    bound = told.output_tokens.max()
    output = np.minimum(true.output_tokens, bound)
    gamma = lane.draft_length if speculates(lane.mode, lane.draft_length) else 0
    rounds = np.asarray(planned_rounds(output, true.acceptance_rate, gamma), dtype=np.int64)
    batch_cost = COST_FORMS[chance.setting.cost_form][1]
    members = Members(true.prompt_tokens, output, rounds)
    cost_s = float(batch_cost(chance.true.server, lane.mode, lane.draft_length, members).total_s)
    finish_s = float(true.upload_s.max()) + cost_s / lane.gpu_share
    in_time = (finish_s <= true.slack_s + tolerance(true.slack_s)) & (true.output_tokens <= bound)
    return int(in_time.sum())


def serve(setting: Setting, scheme: Scheme, replication: int) -> float:
    """Return the share of the K users that a scheme serves in time in one replication."""
    chance = one_round(replace(setting, predictor=scheme.predictor), replication)
    if scheme.told:
        chance = replace(chance, predicted=chance.true)
    return served_in_time(chance, scheme.policy.decide(chance.predicted)) / setting.users


def run_point(sweep: Sweep, place: int, replications: Iterable[int]) -> list[tuple[str, float, str, int, float]]:
    """Return rows (figure, x, scheme, replication, share served in time) of one point."""
    x, setting = sweep.points[place]
    return [
        (sweep.figure, x, name, replication, serve(setting, SCHEMES[name], replication))
        for replication in replications
        for name in sweep.schemes
    ]


def run(sweeps: Iterable[Sweep], seeds: int, jobs: int, report: Callable[[str], None]) -> pd.DataFrame:
    """Return one row a figure, x, scheme and replication."""
    rows = []
    with Parallel(n_jobs=jobs) as parallel:
        for sweep in sweeps:
            parts = [range(start, min(start + 10, seeds)) for start in range(0, seeds, 10)]
            tasks = [delayed(run_point)(sweep, place, part) for place in range(len(sweep.points)) for part in parts]
            rows += [row for found in parallel(tasks) for row in found]
            report(f"{sweep.figure}: {len(sweep.points)} points, {len(sweep.schemes)} schemes, {seeds} seeds")
    return pd.DataFrame(rows, columns=["figure", "x", "scheme", "replication", "served"])


#: x axes: field of `Setting`, label, values [A: the paper gives ranges only]
AXES: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "users": ("users", "users K", (20, 30, 40, 50, 60, 70)),
    "deadline": ("t_max_s", "longest deadline T_max, s", (1, 3, 5, 7, 9, 11, 13)),
    "input length": ("max_input", "longest input, tokens", (200, 400, 600, 800, 1000)),
    "output length": ("max_output", "longest output, tokens", (200, 400, 600, 800, 1000)),
    "memory": ("memory_gb", "GPU memory Q, GB", (18, 19.5, 21, 22.5, 24)),
    "acceptance": ("max_acceptance", "largest acceptance rate", (0.65, 0.75, 0.85, 0.95)),
    "draft length": ("draft_length", "draft length γ", (1, 2, 3, 4, 6, 8)),
}
ABLATED = ("users", "deadline", "memory")
OTHER_PAIRS = tuple(pair for pair in PAIRS if pair != PAIR)


def along(base: Setting, axis: str, values: Iterable[float] = ()) -> tuple[tuple[float, Setting], ...]:
    """Return the points of one axis, at the paper's range unless other values are given.

    Other pairs have as much memory beside their weights as the first pair has at x GB [A].
    """
    name, _, whole_range = AXES[axis]
    shift_gb = 0.0 if name != "memory_gb" else (weight_bytes(base.pair) - weight_bytes(PAIR)) / GB
    kind = type(getattr(base, name))
    points = []
    for x in values or whole_range:
        changed: dict[str, Any] = {name: kind(x + shift_gb)}
        points.append((float(x), replace(base, **changed)))
    return tuple(points)


def sweep(base: Setting, axis: str, schemes: Iterable[str], suffix: str = "") -> Sweep:
    """Return one axis as a figure."""
    return Sweep(axis + suffix, AXES[axis][1], along(base, axis), tuple(schemes))


def extra_schemes(axis: str, law: str) -> tuple[str, ...]:
    """Return what a sweep shows beside the policies: ablations and the optimum where the paper has them, M batches."""
    more = (*ABLATIONS,) if law == "flops" and axis in ABLATED else ()
    if law == "flops" and axis in ("users", "deadline"):
        more = (*more, "optimal")
    return (*more, "multi_batch") if axis == "users" else more


def law_sweeps(base: Setting, law: str) -> tuple[Sweep, ...]:
    """Return the seven axes under one cost law."""
    varied = replace(base, law=law)
    return tuple(sweep(varied, axis, (*POLICIES, *extra_schemes(axis, law)), law_suffix(law)) for axis in AXES)


def law_suffix(law: str) -> str:
    """Return what the figures of a cost law have behind their axis."""
    return "" if law == "flops" else f", {law}"


def paper_sweeps(base: Setting) -> tuple[Sweep, ...]:
    """Return all sweeps of the paper under the law `flops`, at the defaults ``base``."""
    pairs = [
        sweep(replace(base, pair=pair), axis, POLICIES, f" ({pair})")
        for pair in OTHER_PAIRS
        for axis in ("users", "memory")
    ]
    predictions = [sweep(base, axis, _PREDICTED, ", prediction errors") for axis in ("users", "deadline")]
    return (*law_sweeps(base, "flops"), *pairs, *predictions, exhaustive_sweep(base))


def exhaustive_sweep(base: Setting) -> Sweep:
    """Return K = 10–16 against the optimum, at T_max = 1 s [A]: at the defaults so few users are all served."""
    points = tuple((float(users), replace(base, users=users, t_max_s=1.0)) for users in (10, 12, 14, 16))
    return Sweep("exhaustive", "users K", points, ("balance", "balance_as_published", "ad_only", "sd_only", "optimal"))
