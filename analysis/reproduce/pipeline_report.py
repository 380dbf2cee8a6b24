"""Figures and text of the reproduction of Zhu et al. (arXiv 2510.11331 v1)."""

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

_STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "0.9"}
LABELS = {
    "joint": "proposal (dynamic programming)",
    "joint_exact": "proposal, exact batches",
    "autoregressive": "AD on the MBS",
    "same_batches_autoregressive": "AD, the proposal's batches in turn",
    "without_pipeline": "SD without pipeline, re-optimised",
    "same_batches_without_pipeline": "SD without pipeline, same batches",
    "maximum_batching": "maximum batching",
    "heuristic_batching": "heuristic batching",
    "static_batching": "static batching",
    "no_batching": "no batching",
    "fixed_draft_length": "draft length fixed at 7",
    "uniform_bandwidth": "uniform bandwidth",
}


def figures(runs: pd.DataFrame, units: dict[str, str], folder: Path) -> list[str]:
    """Draw one figure a sweep (mean total latency, 95 % interval over replications); return the file names."""
    names = []
    for figure, group in runs.groupby("figure", sort=False):
        name = f"pipeline_{str(figure).replace(' ', '_')}.png"
        _draw(group, units[str(figure)]).savefig(folder / name, dpi=110)
        names.append(name)
    return names


def _draw(group: pd.DataFrame, unit: str) -> Figure:
    group = group.assign(x=group["x"].astype(float), scheme=group["scheme"].map(LABELS))
    pairs = list(dict.fromkeys(group["pair"]))
    with mpl.rc_context(_STYLE):
        drawing = Figure(figsize=(3.6 * len(pairs) + 2.6, 3.8), layout="constrained")
        panels = drawing.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
        for axes, pair in zip(panels, pairs, strict=True):
            sns.lineplot(
                group[group["pair"] == pair], x="x", y="total_s", hue="scheme", style="scheme", markers=True,
                dashes=False, palette="colorblind", errorbar=("ci", 95), n_boot=200, seed=0, ax=axes,
            )  # fmt: skip
            axes.set_title(pair, fontsize=10)
            axes.set_xlabel(_axis(str(group["figure"].iloc[0]), unit))
            axes.set_ylabel("total latency, s")
            handles, labels = axes.get_legend_handles_labels()
            axes.get_legend().remove()
        most, at_one_x = group["total_s"].max(), group.groupby(["pair", "x"])["total_s"]
        if (at_one_x.max() / at_one_x.min()).max() > 6:  # no batching is far above the rest
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.05 * most)
        drawing.legend(handles, labels, loc="outside right center", frameon=False)
    return drawing


def _axis(figure: str, unit: str) -> str:
    longest = {"input length": "longest input, tokens", "output length": "longest output, tokens"}
    plain = {"bandwidth": f"uplink bandwidth, {unit}", "tasks": "tasks", "acceptance": unit}
    return {**longest, **plain}[figure]


def comparison_table(table: pd.DataFrame) -> str:
    """Return the paper's statements as a Markdown table; "> 0" where only the sign is stated."""
    head = ["figure", "x", "proposal …", "paper", "ours", "95 % interval", "residual", "verdict"]
    lines = [" | ".join(["", *head, ""]).strip(), "|---" * len(head) + "|"]
    for row in statements(table).to_dict("records"):
        paper, ours, low, high = (float(row[key]) for key in ("paper", "ours", "ci_low", "ci_high"))
        cells = [
            *(str(row[key]) for key in ("figure", "x", "quantity")),
            "> 0" if math.isnan(paper) else f"{paper:.1f}",
            f"{ours:.1f}",
            f"{low:.1f} … {high:.1f}",
            "" if math.isnan(paper) else f"{ours - paper:+.1f}",
            verdict(paper, ours, low, high),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def statements(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that stand beside a statement of the paper."""
    return table[~table["quantity"].str.startswith("total latency")]


def verdict(paper: float, ours: float, low: float, high: float) -> str:
    """Say what became of a statement: its value within the interval or 3 points, its sign alone, or neither."""
    if math.isnan(paper):
        return "holds" if low > 0 else "not clear" if high > 0 else "does not hold"
    if abs(ours - paper) <= 3 or low <= paper <= high:
        return "met"
    return "sign only" if low > 0 else "not met"


def residual_points(table: pd.DataFrame, without_pipeline: str) -> float:
    """Return the root mean square residual of the paper's eight numbers, "without pipeline" read as in the fit."""
    rows = table[table["paper"].notna()]
    other = rows["quantity"].str.contains("without_pipeline") & ~rows["quantity"].str.startswith(
        f"below {without_pipeline} "
    )
    squares = (rows["ours"] - rows["paper"])[~other] ** 2
    return math.sqrt(float(squares.mean()))


def plan_table(runs: pd.DataFrame) -> str:
    """Return what the proposal decides: draft length, batches and the two parts of the latency, by pair and α."""
    chosen = runs[(runs["figure"] == "acceptance") & (runs["scheme"] == "joint")]
    lines = ["| pair | α | draft length | batches | upload, s | inference, s |", "|---|---|---|---|---|---|"]
    for (pair, x), group in chosen.groupby(["pair", "x"], sort=False):
        mean = group[["draft_length", "batches", "upload_s", "inference_s"]].mean()
        cells = " | ".join(f"{value:.1f}" for value in mean)
        lines.append(f"| {pair} | {x} | {cells} |")
    return "\n".join(lines)


def constants_table(fit: dict[str, Any]) -> str:
    """Return the fitted constants and their ranges."""
    lines = ["| constant | found | range |", "|---|---|---|"]
    for name, value in fit["constants"].items():
        span = fit["ranges"].get(name)
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        edge = span and (value < span[0] * 1.001 or value > span[1] * 0.999)
        limits = f"{span[0]:g} … {span[1]:g}{' (on the edge)' if edge else ''}" if span else "see pipeline_study.py"
        lines.append(f"| {name} | {shown} | {limits} |")
    return "\n".join(lines)


def report(table: pd.DataFrame, runs: pd.DataFrame, fit: dict[str, Any], names: list[str]) -> str:
    """Return docs/reproduction/pipeline.md."""
    exact = runs[runs["figure"] == "tasks"].pivot_table(index=["x", "replication"], columns="scheme", values="total_s")
    gap = 100 * (exact["joint"] / exact["joint_exact"] - 1)
    exact_gain = 100 * (1 - exact["joint_exact"] / exact["maximum_batching"]).loc["90"].mean()
    bits = float(fit["constants"]["bits_per_token"])
    template = (Path(__file__).parent / "pipeline_text.txt").read_text()
    return template.format(
        comparisons=comparison_table(table),
        constants=constants_table(fit),
        reading=f"pair {fit['reading']['pair']}, `{fit['reading']['without_pipeline']}`",
        score=f"{fit['score_points']:.1f}",
        evaluations=fit["evaluations"],
        plans=plan_table(runs),
        exact_gain=f"{exact_gain:.1f}",
        residual=f"{residual_points(table, fit['reading']['without_pipeline']):.1f}",
        bits=bits,
        embeddings=bits / (16 * 4096),
        gap_mean=f"{gap.mean():.1f}",
        gap_worst=f"{gap.max():.1f}",
        replications=runs["replication"].nunique(),
        figures="\n".join(f"![{name.removesuffix('.png').replace('_', ' ')}]({name})\n" for name in names),
    )
