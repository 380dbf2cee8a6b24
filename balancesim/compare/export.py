"""The comparison as files for other programs: ``comparison.csv`` and ``comparison.json`` beside the results."""

import math
from pathlib import Path
from typing import Any

from balancesim.compare.comparison import Comparison
from balancesim.compare.statistics import LEVEL
from balancesim.manifest import write_json, write_text


def summary_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one row a policy and metric: mean and interval, and the paired difference to the best baseline."""
    rows: list[dict[str, Any]] = []
    for policy in comparison.policies:
        for metric, unit in comparison.units.items():
            value = comparison.of(policy, metric)
            paired = comparison.difference(policy, metric)
            rows.append(
                {
                    "policy": policy,
                    "metric": metric,
                    "unit": unit,
                    "mean": value.mean,
                    "low": value.low,
                    "high": value.high,
                    "replications": value.replications,
                    "baseline": comparison.best_baseline,
                    "difference": paired.mean,
                    "difference_low": paired.low,
                    "difference_high": paired.high,
                    "paired_replications": paired.replications,
                }
            )
    return rows


def write_comparison(comparison: Comparison, folder: Path) -> tuple[Path, Path]:
    """Write ``comparison.csv`` (one row a policy and metric) and ``comparison.json`` (runs too), whole or not at all.

    Undefined values are empty in the CSV and null in the JSON. Bounds are of 95 % intervals.
    """
    import pandas as pd

    rows = summary_rows(comparison)
    csv, json = folder / "comparison.csv", folder / "comparison.json"
    write_text(csv, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
    document = {
        "name": comparison.name,
        "level": LEVEL,
        "warmup_s": comparison.window.warmup_s,
        "horizon_s": comparison.window.horizon_s,
        "policies": comparison.policies,
        "baselines": comparison.baselines,
        "best_baseline": comparison.best_baseline,
        "notes": comparison.notes,
        "summary": [_known(row) for row in rows],
        "runs": [_known(row) for row in comparison.runs.to_dict("records")],
    }
    write_json(json, document)
    return csv, json


def _known(row: Any) -> dict[str, Any]:
    return {str(key): None if isinstance(v, float) and math.isnan(v) else v for key, v in row.items()}
