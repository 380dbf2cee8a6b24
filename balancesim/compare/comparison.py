"""The comparison of the policies of one result folder (docs/metrics.md defines every number).

Replications are the unit of statistics: each gives one value of a metric. Policies of one replication met the same
requests, fading and acceptance draws, so their difference is taken replication by replication (common random numbers)
and gets its own, narrower interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balancesim import catalog
from balancesim.compare.statistics import Interval, student_interval
from balancesim.compare.stored import Run, find_runs, world_of
from balancesim.core.power import gpu_power
from balancesim.core.request import RejectReason
from balancesim.manifest import ResultsError
from balancesim.metrics import (
    Energy,
    EnergyPerRequest,
    EnergyPerToken,
    Metric,
    TpotAttainment,
    TtftAttainment,
    Window,
    standard_metrics,
)

if TYPE_CHECKING:
    import pandas as pd

#: Policies that use one mode only; BALANCE has to beat the better of them.
SINGLE_MODES = ("ad_only", "sd_only")

#: Units of the columns that are not metrics of the family.
_FURTHER_UNITS = {
    "offered": "requests",
    **{f"rejected_{reason.value}_share": "1" for reason in RejectReason},
    "decision_wall_mean_s": "s",
    "decision_wall_max_s": "s",
    "wall_s": "s",
}


@dataclass(frozen=True)
class Comparison:
    """Policies of one scenario side by side."""

    name: str
    window: Window
    policies: tuple[str, ...]
    baselines: tuple[str, ...]
    best_baseline: str  #: the baseline with the highest mean share served in time
    runs: "pd.DataFrame"  #: one row a run: policy, replication and one column a metric
    units: Mapping[str, str]  #: of the metrics
    notes: tuple[str, ...]

    def of(self, policy: str, metric: str) -> Interval:
        """Return the mean of a metric over the replications of a policy, with its interval."""
        return student_interval(self._values(policy, metric).tolist())

    def difference(self, policy: str, metric: str, baseline: str | None = None) -> Interval:
        """Return policy − baseline (by default the best one) over the replications that both have."""
        other = self._values(baseline or self.best_baseline, metric)
        return student_interval((self._values(policy, metric) - other).dropna().tolist())

    def replications(self, policy: str) -> tuple[int, ...]:
        """Return the replications of a policy."""
        return tuple(self.runs.loc[self.runs["policy"] == policy, "replication"].tolist())

    def _values(self, policy: str, metric: str) -> "pd.Series[float]":
        rows = self.runs[self.runs["policy"] == policy]
        return rows.set_index("replication")[metric].astype(float)


def compare(results_dir: Path | str, baselines: Sequence[str] = SINGLE_MODES) -> Comparison:
    """Return the comparison of all finished runs in a result folder.

    ``baselines`` are the policies to beat; those without runs are passed over, and when none is left every policy is
    one. Raises `ResultsError` for a folder without finished runs, or with one that differs from its manifest.
    """
    import pandas as pd

    folder = Path(results_dir)
    found, notes = find_runs(folder)
    window = window_of(found[0])
    units = _FURTHER_UNITS | {metric.label: metric.unit for metric in _metrics(found[0], window)}
    measured = [_measure(run, window) for run in found]
    runs = pd.DataFrame([row for row, _ in measured])
    policies = policy_order(found)
    beaten = tuple(policy for policy in policies if policy in baselines) or policies
    notes += _notes(runs, policies, [world for _, world in measured])
    return Comparison(folder.name, window, policies, beaten, _best(runs, beaten, policies), runs, units, notes)


def window_of(run: Run) -> Window:
    """Return the observed window of a run."""
    try:
        section = run.manifest["scenario"]["run"]
        return Window(float(section.get("warmup_s", 0.0)), float(section["horizon_s"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{run.folder}: the manifest's scenario has no run.horizon_s; run it again") from error


def _metrics(run: Run, window: Window) -> tuple[Metric, ...]:
    wanted = run.manifest["scenario"].get("requests", {})
    metrics = standard_metrics(window, int(run.manifest["servers"]))
    if run.manifest.get("gpus"):  # results of older versions do not name them
        powers = tuple(gpu_power(catalog.gpu(name)) for name in run.manifest["gpus"])
        metrics += tuple(kind(window, powers) for kind in (Energy, EnergyPerRequest, EnergyPerToken))
    if wanted.get("ttft_target_s") is not None:
        metrics += (TtftAttainment(window, float(wanted["ttft_target_s"])),)
    if wanted.get("tpot_target_s") is not None:
        metrics += (TpotAttainment(window, float(wanted["tpot_target_s"])),)
    return metrics


def _measure(run: Run, window: Window) -> tuple[dict[str, Any], tuple[int, str]]:
    """Return the row of a run, and what tells whether other policies met the same requests."""
    frames = run.tables()
    requests, epochs, gpu = frames["requests"], frames["epochs"], frames["gpu"]
    offered = window.offered(requests)
    row: dict[str, Any] = {"policy": run.policy, "replication": run.replication, "offered": len(offered)}
    row |= {metric.label: metric.compute(requests, epochs, gpu) for metric in _metrics(run, window)}
    for reason in RejectReason:
        row[f"rejected_{reason.value}_share"] = float((offered["reject_reason"] == reason).mean())
    decisions = int(run.manifest["decisions"])
    row["decision_wall_mean_s"] = run.manifest["decision_wall_s"] / decisions if decisions else math.nan
    row["decision_wall_max_s"] = run.manifest["decision_wall_max_s"] if decisions else math.nan
    row["wall_s"] = run.manifest["wall_s"]
    return row, (run.replication, world_of(requests))


def policy_order(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the policies in the order of the scenario, others after them by name."""
    found = list(dict.fromkeys(run.policy for run in runs))
    listed = [_label(entry) for entry in runs[0].manifest["scenario"]["run"].get("policies", [])]
    first = [policy for policy in listed if policy in found]
    return tuple(dict.fromkeys([*first, *found]))


def _label(entry: Any) -> str:
    """Return the name under which an entry of ``run.policies`` has its results: label, name, or a reference's class."""
    name = entry.get("label", entry.get("kind")) if isinstance(entry, Mapping) else entry
    return str(name).rpartition(":")[2]


def _best(runs: "pd.DataFrame", baselines: Sequence[str], policies: Sequence[str]) -> str:
    """Return the baseline that serves most, over the replications that all policies have if there are any."""
    common = _common(runs, policies)
    rows = runs[runs["replication"].isin(common)] if common else runs
    means = rows[rows["policy"].isin(baselines)].groupby("policy")["served_in_time"].mean()
    return max(baselines, key=lambda policy: (means.get(policy, -1.0), -baselines.index(policy)))


def _common(runs: "pd.DataFrame", policies: Sequence[str]) -> set[int]:
    have = [set(runs.loc[runs["policy"] == policy, "replication"].tolist()) for policy in policies]
    return set.intersection(*have)


def _notes(runs: "pd.DataFrame", policies: Sequence[str], worlds: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    notes: list[str] = []
    if runs.groupby("policy")["replication"].nunique().min() < 2:
        notes.append("one replication gives no interval; use at least 5")
    common, every = _common(runs, policies), set(runs["replication"].tolist())
    if common != every:
        notes.append(
            f"not all policies have the same replications: {len(common)} of {len(every)} are common to all; "
            f"differences use those that both policies have"
        )
    if len(set(worlds)) > len({replication for replication, _ in worlds}):
        notes.append("policies of one replication met different requests, so their differences are not paired")
    if (runs["offered"] == 0).any():
        notes.append("a run offered no request in the observed window")
    return tuple(notes)
