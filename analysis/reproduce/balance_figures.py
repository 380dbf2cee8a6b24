"""Figures of the reproduction of Qu et al. (arXiv 2608.05926 v2): one picture a sweep, a panel for each cost law."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from analysis.reproduce.balance_study import LAWS
from analysis.reproduce.balance_sweeps import (
    ABLATED,
    ABLATIONS,
    AXES,
    OTHER_PAIRS,
    POLICIES,
    PREDICTIONS,
    SLOW,
    extra_schemes,
    law_suffix,
)

_STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "0.9"}
LABELS = {
    "balance": "BALANCE",
    "balance_as_published": "BALANCE as published",
    "ad_only": "AD only",
    "sd_only": "SD only",
    "best_single_mode": "best single mode",
    "ad_two_batches": "two AD batches",
    "sd_two_batches": "two SD batches",
    "multi_batch": "up to four batches",
    "edf": "earliest deadline first",
    "random_split": "random split",
    "static_split": "static split",
    "optimal": "optimum",
    "ecra": "ECRA: z = 0.5",
    "ema": "EMA: λ = 0.5",
    "ecrma": "ECRMA: both 0.5",
}
_COLOURS = {
    "balance": "black",
    "balance_as_published": "0.6",
    "ad_only": "tab:blue",
    "sd_only": "tab:red",
    "best_single_mode": "tab:purple",
    "ad_two_batches": "deepskyblue",
    "sd_two_batches": "tab:orange",
    "multi_batch": "limegreen",
    "edf": "tab:brown",
    "random_split": "hotpink",
    "static_split": "tab:olive",
    "optimal": "darkgreen",
    "ecra": "deepskyblue",
    "ema": "tab:orange",
    "ecrma": "tab:olive",
}
#: two batches of one mode dashed, rules of thumb dotted
_DASHES = {"ad_two_batches": (4, 2), "sd_two_batches": (4, 2), "multi_batch": (4, 2)} | dict.fromkeys(
    ("edf", "static_split", "random_split"), (1, 1)
)


def draw_all(runs: pd.DataFrame, folder: Path) -> list[str]:
    """Draw every figure (mean share served, 95 % interval over replications); return the file names."""
    names = []
    for name, figures, schemes, titles in _pictures():
        drawing = _draw(runs, figures, schemes, titles)
        file = f"balance_{name.replace(' ', '_')}.png"
        drawing.savefig(folder / file, dpi=100)
        names.append(file)
    return names


def _pictures() -> Iterable[tuple[str, list[str], list[str], list[str]]]:
    """Yield (name, figures as panels, schemes, titles of the panels)."""
    policies = list(POLICIES)
    for axis in AXES:
        slow = [name for name in SLOW if any(name in extra_schemes(axis, law) for law in LAWS)]
        yield axis, [axis + law_suffix(law) for law in LAWS], [*policies, *slow], list(LAWS)
    yield "ablations", list(ABLATED), ["balance", *ABLATIONS, "ad_only", "sd_only"], [""] * len(ABLATED)
    pairs = [(f"{axis} ({pair})", pair) for pair in OTHER_PAIRS for axis in ("users", "memory")]
    yield "other pairs", [figure for figure, _ in pairs], policies, [pair for _, pair in pairs]
    for where in ("noisy prediction", "noisy truth"):
        schemes = [f"{name}{told}" for name in PREDICTIONS if name.endswith(where) for told in ("", ", told")]
        figures = [f"{axis}, prediction errors" for axis in ("users", "deadline")]
        yield f"prediction errors {where}", figures, schemes, [where] * len(figures)
    small = ["optimal", "balance", "balance_as_published", "ad_only", "sd_only"]
    yield "exhaustive", ["exhaustive"], small, ["T_max = 1 s"]


def _draw(runs: pd.DataFrame, figures: list[str], schemes: list[str], titles: list[str]) -> Figure:
    with mpl.rc_context(_STYLE):
        drawing = Figure(figsize=(3.4 * len(figures) + 2.4, 3.9), layout="constrained")
        panels = drawing.subplots(1, len(figures), sharey=True, squeeze=False)[0]
        handles: dict[str, Any] = {}
        for axes, figure, title in zip(panels, figures, titles, strict=True):
            chosen = runs[(runs["figure"] == figure) & runs["scheme"].isin(schemes)]
            _panel(axes, chosen, schemes)
            axes.set_title(title, fontsize=10)
            axes.set_xlabel(_axis(figure))
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
            axes.get_legend().remove()
        panels[0].set_ylabel("served in time, of K users")
        panels[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        panels[0].set_ylim(bottom=0)
        drawing.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize=9)
    return drawing


def _panel(axes: Axes, chosen: pd.DataFrame, schemes: list[str]) -> None:
    names = [LABELS.get(name, name) for name in schemes]
    others = iter(sns.color_palette("colorblind", len(names)))
    palette = {label: _COLOURS.get(name) or next(others) for name, label in zip(schemes, names, strict=True)}
    crowded = len(names) > 6  # intervals of many curves hide each other; they are in balance.csv
    sns.lineplot(
        chosen.assign(scheme=chosen["scheme"].map(lambda name: LABELS.get(name, name))),
        x="x", y="served", hue="scheme", style="scheme", hue_order=names, style_order=names, markers=True,
        dashes={label: _DASHES.get(name, "") for name, label in zip(schemes, names, strict=True)}, palette=palette,
        errorbar=None if crowded else ("ci", 95), n_boot=100, seed=0, ax=axes, markersize=5, linewidth=1.3,
        err_kws={} if crowded else {"alpha": 0.12},
    )  # fmt: skip


def _axis(figure: str) -> str:
    axis, *pair = figure.split(",", maxsplit=1)[0].split(" (", maxsplit=1)
    label = AXES[axis][1] if axis in AXES else "users K"
    return f"{label}, less the\ndifference in weights" if pair and axis == "memory" else label
