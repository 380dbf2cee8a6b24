"""Figures of a result folder: who is served, how fast, where the time goes, and what the GPU and its memory do.

    python -m analysis.figures results/dense_urban            writes results/dense_urban/figures/*.png

Every figure is a function from tables to a matplotlib figure, so that a notebook can change it.
"""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from analysis import load
from balancesim.compare import Comparison, compare
from balancesim.metrics import Phase
from balancesim.metrics.server import WORK
from balancesim.units import FloatArray

log = logging.getLogger(__name__)

_STYLE: Any = {  # matplotlib's key type is one long Literal
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "font.size": 10,
}
#: One colour a policy in every figure of a folder, apart for colour-blind readers too.
_PALETTE = "colorblind"


def _figure(width: float, height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, 1, sharex=rows > 1, squeeze=False)[:, 0]
    return figure, list(axes)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, fontweight="bold")


def _colours(policies: Sequence[str]) -> dict[str, Any]:
    return dict(zip(policies, sns.color_palette(_PALETTE, len(policies)), strict=True))


def served_in_time(comparison: Comparison) -> Figure:
    """Return the share served in time by policy: mean, 95 % interval and the value of every replication."""
    policies = list(comparison.policies)
    figure, (axes,) = _figure(6.0, 0.9 + 0.55 * len(policies))
    colours = _colours(policies)
    for place, policy in enumerate(policies):
        served = comparison.of(policy, "served_in_time")
        values = comparison.runs.loc[comparison.runs["policy"] == policy, "served_in_time"]
        axes.plot(values, np.full(len(values), place + 0.22), "|", color="0.55", markersize=7)
        if not np.isnan(served.low):
            axes.plot([served.low, served.high], [place, place], color=colours[policy], linewidth=3, alpha=0.45)
        axes.plot([served.mean], [place], "o", color=colours[policy], markersize=8)
        axes.annotate(f"{100 * served.mean:.1f} %", (served.mean, place - 0.2), ha="center", va="bottom")
    axes.set_yticks(range(len(policies)), policies)
    axes.set_ylim(len(policies) - 0.5, -0.6)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("share of the offered requests: mean, 95 % interval, every replication")
    _title(axes, f"{comparison.name}: served in time")
    return figure


def latency_ecdf(requests: pd.DataFrame) -> Figure:
    """Return the share of the *offered* requests answered within a time, by policy.

    A curve ends at the share that was answered at all, so that turning requests away cannot look fast.
    ``requests`` as `analysis.load.requests` returns them, cut to the window by the caller.
    """
    policies = list(requests["policy"].cat.categories)
    figure, (axes,) = _figure(6.4, 4.0)
    colours = _colours(policies)
    for policy in policies:
        of_policy = requests[requests["policy"] == policy]
        answered = np.sort(of_policy["e2e_s"].dropna().to_numpy())
        share = np.arange(1, len(answered) + 1) / max(1, len(of_policy))
        axes.step(np.r_[0.0, answered], np.r_[0.0, share], where="post", color=colours[policy], label=policy)
        if len(answered):
            axes.plot(answered[-1], share[-1], "o", color=colours[policy], markersize=4)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("end-to-end latency t in s")
    axes.set_ylabel("answered within t, of the offered")
    axes.legend(loc="lower right", frameon=False)
    _title(axes, "Offered requests answered within a time, all replications")
    return figure


def time_breakdown(comparison: Comparison) -> Figure:
    """Return stacked bars of the mean time that an answered request spends in each phase, by policy."""
    policies = list(comparison.policies)
    figure, (axes,) = _figure(7.2, 1.3 + 0.5 * len(policies))
    left = np.zeros(len(policies))
    for phase, colour in zip(Phase, sns.color_palette("deep", len(Phase)), strict=True):
        means = np.nan_to_num([comparison.of(policy, f"mean_{phase.value}_s").mean for policy in policies])
        axes.barh(policies, means, left=left, color=colour, height=0.62, label=phase.value)
        left += means
    for place, total in enumerate(left):
        axes.annotate(f" {total:.2f} s", (total, place), va="center")
    axes.set_xlim(0, 1.12 * max(left.max(), 1e-9))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("mean time of an answered request in s")
    figure.legend(ncols=len(Phase), loc="outside lower center", frameon=False)
    _title(axes, f"{comparison.name}: where the time went")
    return figure


def gpu_over_time(epochs: pd.DataFrame, gpu: pd.DataFrame, bin_s: float) -> Figure:
    """Return one run over time: the share of GPU time by kind of work in bins, and KV memory in use and at its peak.

    All servers are averaged; ``epochs`` and ``gpu`` are the tables of one policy and replication.
    """
    figure, (top, bottom) = _figure(7.2, 5.0, rows=2)
    end_s = max(gpu["end_s"].max() if len(gpu) else 0.0, epochs["epoch_s"].max() if len(epochs) else 0.0, bin_s)
    edges = np.arange(0.0, end_s + bin_s, bin_s)
    servers = max(1, pd.concat([epochs["server_id"], gpu["server_id"]]).nunique())
    kinds = [*WORK, "switch_s"]
    shares = [_binned(gpu, kind, edges) / (servers * bin_s) for kind in kinds]
    labels = [kind.removesuffix("_s") for kind in kinds]
    top.stackplot(edges[:-1], shares, labels=labels, colors=sns.color_palette("deep", len(kinds)), step="post", lw=0)
    top.set_ylim(0, 1)
    top.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    top.set_ylabel("GPU time")
    whose = "of the server" if servers == 1 else f"mean of {servers} servers"
    _title(top, f"GPU time by kind of work, {whose}, in bins of {bin_s:.3g} s")
    figure.legend(*top.get_legend_handles_labels(), ncols=len(kinds), loc="outside upper center", frameon=False)
    used = epochs.assign(
        bin_s=(epochs["epoch_s"] // bin_s) * bin_s,
        used=epochs["kv_used_bytes"] / epochs["kv_capacity_bytes"],
        peak=epochs["kv_peak_bytes"] / epochs["kv_capacity_bytes"],
    ).groupby("bin_s")
    mean, peak = used["used"].mean(), used["peak"].max()
    bottom.step(mean.index, mean, where="post", color="0.2", label="reserved after a decision, mean")
    bottom.step(peak.index, peak, where="post", color="tab:red", lw=1, label="peak of any server")
    bottom.set_ylim(0, 1.02)
    bottom.set_xlim(0, end_s)
    bottom.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    bottom.set_ylabel("KV memory")
    bottom.set_xlabel("time in s")
    bottom.legend(loc="upper right", ncols=2, fontsize=8)
    _title(bottom, "Reserved KV memory, of the room beside the weights")
    return figure


def _binned(gpu: pd.DataFrame, column: str, edges: FloatArray) -> FloatArray:
    """Return the seconds of a kind of work in each bin; a span's work is spread evenly over it.

    Work done by time t is Σ rate·(t − start)⁺ − Σ rate·(t − end)⁺, two sums over sorted times.
    """
    start, end = gpu["start_s"].to_numpy(), gpu["end_s"].to_numpy()
    rate = gpu[column].to_numpy() / np.maximum(end - start, 1e-9)
    done = _ramps(edges, start, rate) - _ramps(edges, np.maximum(end, start + 1e-9), rate)
    return np.diff(done)


def _ramps(at: FloatArray, begin: FloatArray, rate: FloatArray) -> FloatArray:
    order = np.argsort(begin, kind="stable")
    place = np.searchsorted(begin[order], at)
    rates = np.r_[0.0, np.cumsum(rate[order])][place]
    moments = np.r_[0.0, np.cumsum((rate * begin)[order])][place]
    return np.asarray(rates * at - moments)


def draw_all(results_dir: Path | str, bins: int = 120) -> tuple[Path, ...]:
    """Draw every figure of a result folder into its ``figures`` folder and return the files."""
    folder = Path(results_dir)
    comparison = compare(folder)
    window = comparison.window
    figures = {
        "served_in_time": served_in_time(comparison),
        "latency_ecdf": latency_ecdf(window.offered(load.requests(folder))),
        "time_breakdown": time_breakdown(comparison),
    }
    epochs, gpu = load.table(folder, "epochs"), load.table(folder, "gpu")
    for policy in comparison.policies:
        first = comparison.replications(policy)[0]
        one_epochs, one_gpu = (t[(t["policy"] == policy) & (t["replication"] == first)] for t in (epochs, gpu))
        figures[f"gpu_over_time_{policy}"] = gpu_over_time(one_epochs, one_gpu, window.horizon_s / bins)
    (folder / "figures").mkdir(exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / "figures" / f"{name.replace('/', '_')}.png")
        figure.savefig(paths[-1], dpi=150)
    return tuple(paths)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for folder_name in sys.argv[1:]:
        for path in draw_all(folder_name):
            log.info("%s", path)
