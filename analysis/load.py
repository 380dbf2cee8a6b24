"""Result tables for pandas users.

``pandas.read_parquet("results/<name>/requests")`` works as it is; these helpers add what is tedious by hand: finished
runs only, policies in the scenario's order, plain types, and the durations of docs/metrics.md as columns.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from balancesim import catalog
from balancesim.columns import table_columns
from balancesim.compare.comparison import policy_order, window_of
from balancesim.compare.stored import find_runs
from balancesim.core.power import gpu_power
from balancesim.metrics import Phase, Window
from balancesim.metrics.durations import e2e_s, phase_s, server_ttft_s, tpot_s, user_ttft_s
from balancesim.metrics.energy import request_energy_j


def table(results_dir: Path | str, name: str) -> pd.DataFrame:
    """Return one table of all finished runs, checked against their manifests.

    ``policy`` is categorical in the scenario's order, ``replication`` an integer; categories with fixed choices have
    all of them, present or not. Requests are sorted by number, epochs and spans by time.
    """
    runs, _ = find_runs(Path(results_dir))
    frames = [run.read(name).assign(policy=run.policy, replication=run.replication) for run in runs]
    frame = pd.concat([f.astype(_plain_categories(name)) for f in frames], ignore_index=True)
    frame = frame.astype({"policy": pd.CategoricalDtype(list(policy_order(runs))), "replication": "int64"})
    order = {"requests": ["request_id"], "epochs": ["epoch_s", "server_id"], "gpu": ["start_s", "server_id", "lane_id"]}
    by = ["policy", "replication", *order[name]]
    return frame.sort_values(by, ignore_index=True)


def _plain_categories(name: str) -> dict[str, Any]:
    columns = table_columns(name)
    fixed = {column.name: pd.CategoricalDtype(list(column.choices)) for column in columns if column.choices}
    return fixed | ({"task": "str"} if name == "requests" else {})


def requests(results_dir: Path | str) -> pd.DataFrame:
    """Return the table ``requests`` with ``energy_j``, ``server_ttft_s, user_ttft_s, tpot_s, e2e_s``, the phases."""
    frame = table(results_dir, "requests")
    frame = frame.assign(energy_j=_energy_j(results_dir, frame))
    durations = {
        "server_ttft_s": server_ttft_s(frame),
        "user_ttft_s": user_ttft_s(frame),
        "tpot_s": tpot_s(frame),
        "e2e_s": e2e_s(frame),
    }
    return frame.assign(**durations, **{f"{phase.value}_s": phase_s(frame, phase) for phase in Phase})


def _energy_j(results_dir: Path | str, frame: pd.DataFrame) -> "pd.Series[float]":
    """Return the joules of each request, NaN where a manifest does not name the GPUs."""
    spans = dict(iter(table(results_dir, "gpu").groupby(["policy", "replication"], observed=True)))
    energy_j = pd.Series(float("nan"), index=frame.index)
    for run in find_runs(Path(results_dir))[0]:
        powers = [gpu_power(catalog.gpu(name)) for name in run.manifest.get("gpus", ())]
        key = (run.policy, run.replication)
        if powers and key in spans:
            rows = frame[(frame["policy"] == run.policy) & (frame["replication"] == run.replication)]
            energy_j[rows.index] = request_energy_j(rows, spans[key], powers, float(run.manifest["end_s"]))
    return energy_j


def window(results_dir: Path | str) -> Window:
    """Return the observed window of a result folder."""
    return window_of(find_runs(Path(results_dir))[0][0])


def manifests(results_dir: Path | str) -> pd.DataFrame:
    """Return one row a finished run: seed, versions' commit, wall time, events, decisions and row counts."""
    runs, _ = find_runs(Path(results_dir))
    keys = ("policy", "replication", "seed", "git_commit", "git_dirty", "wall_s", "events", "offered", "end_s")
    further = ("servers", "decisions", "decision_wall_s", "decision_wall_max_s")
    rows = [{key: run.manifest[key] for key in keys + further} for run in runs]
    return pd.DataFrame(rows)
