"""Figures of ``docs/validation.md``: each is a function from results to a matplotlib figure."""

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.validation.argonne import Row
from analysis.validation.specbench import Eagle, Pair
from analysis.validation.vllm_run import Requests

_STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "0.9"}
_BLUE, _ORANGE, _GREEN, _RED = sns.color_palette("colorblind", 4)
_BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


def _panels(columns: int, width: float, height: float, *, share_y: bool = False) -> tuple[Figure, Sequence[Axes]]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, list(figure.subplots(1, columns, sharey=share_y, squeeze=False)[0])


def _diagonal(axes: Axes, low: float, high: float) -> None:
    axes.plot([low, high], [low, high], color="0.4", linewidth=1)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")


def argonne_parity(rows: Sequence[Row]) -> Figure:
    """Return ours against measured seconds of whole requests, a panel a GPU, profiled law beside roofline."""
    gpus = list(dict.fromkeys(row.gpu for row in rows))
    figure, panels = _panels(len(gpus), 4.4 * len(gpus), 4.9)
    low, high = 0.7, 450.0
    for axes, gpu in zip(panels, gpus, strict=True):
        measured = [row.measured_s for row in rows if row.gpu == gpu]
        for label, marker, colour, ours in (
            ("roofline", "x", _ORANGE, [row.roofline.seconds for row in rows if row.gpu == gpu]),
            ("profiled", "o", _BLUE, [row.ours_s for row in rows if row.gpu == gpu]),
        ):
            axes.scatter(measured, ours, s=22, marker=marker, color=[colour], label=label, linewidths=1, zorder=3)
        axes.set_xscale("log")
        axes.set_yscale("log")
        _diagonal(axes, low, high)
        axes.fill_between([low, high], [0.9 * low, 0.9 * high], [1.1 * low, 1.1 * high], color="0.85", zorder=0)
        axes.set_title(f"{gpu} (band: ±10 %)", fontsize=10)
        axes.set_xlabel("measured, s")
        axes.set_ylabel("simulated, s")
        axes.legend(frameon=False, loc="upper left")
    return figure


def argonne_errors(rows: Sequence[Row]) -> Figure:
    """Return the relative errors by batch, a panel a GPU: each point is one model and length."""
    frame = pd.DataFrame(
        [
            {"gpu": row.gpu, "batch": str(row.batch), "law": law, "error": row.error(seconds)}
            for row in rows
            for law, seconds in (("profiled", row.ours_s), ("roofline", row.roofline.seconds))
        ]
    )
    gpus = list(dict.fromkeys(frame["gpu"]))
    figure, panels = _panels(len(gpus), 4.4 * len(gpus), 3.4, share_y=True)
    order = sorted(frame["batch"].unique(), key=int)
    for axes, gpu in zip(panels, gpus, strict=True):
        sns.swarmplot(
            frame[frame["gpu"] == gpu], x="batch", y="error", hue="law", order=order, dodge=True, size=4,
            palette={"profiled": _BLUE, "roofline": _ORANGE}, ax=axes, legend=axes is panels[-1],
        )  # fmt: skip
        axes.axhline(0, color="0.4", linewidth=1)
        axes.set_title(gpu, fontsize=10)
        axes.set_xlabel("batch")
        axes.set_ylabel("error, %")
    sns.move_legend(panels[-1], "upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, title=None)
    return figure


def spec_bench(pairs: Sequence[Pair], host_s: float) -> Figure:
    """Return measured and simulated speed-ups of the Spec-Bench pairs."""
    labels = [f"{pair.target.removeprefix('Vicuna-')}\n{pair.gpu.split()[0]} {pair.gpu.split()[1]}" for pair in pairs]
    labels[0] += "\n(calibrated)"
    figure, (axes,) = _panels(1, 5.4, 3.4)
    place = np.arange(len(pairs))
    measured, ours = [pair.measured for pair in pairs], [pair.speedup(host_s) for pair in pairs]
    axes.errorbar(place, measured, yerr=0.15 * np.array(measured), fmt="none", ecolor="0.75", elinewidth=8, zorder=1)
    axes.scatter(place, measured, color="black", marker="_", s=250, label="measured (band: ±15 %)", zorder=3)
    axes.scatter(place, ours, color=[_BLUE], s=36, label="simulated", zorder=4)
    axes.axhline(1, color="0.4", linewidth=1)
    axes.set_xticks(place, labels)
    axes.set_xlim(-0.5, len(pairs) - 0.5)
    axes.set_ylabel("speed-up over autoregressive")
    axes.legend(frameon=False, loc="lower left")
    return figure


def eagle(
    kernels: Sequence[Eagle], with_host: Sequence[Eagle], linear: Callable[[float, float], float],
    context: float, published: Sequence[float],
) -> Figure:  # fmt: skip
    """Return the change of EAGLE's speed-up from batch 1 by batch, a panel a target."""
    figure, panels = _panels(len(kernels), 4.6 * len(kernels), 3.6, share_y=True)

    def change(gain: Callable[[float, float], float]) -> list[float]:
        return [100.0 * (gain(batch, context) / gain(1.0, context) - 1.0) for batch in _BATCHES]

    for axes, plain, host, fall in zip(panels, kernels, with_host, published, strict=True):
        axes.plot(_BATCHES, change(plain.gain), color=_BLUE, marker="o", markersize=4, label="kernels (judged)")
        axes.plot(_BATCHES, change(host.gain), color=_GREEN, marker="s", markersize=4, label="with host time a token")
        if plain is kernels[0]:
            axes.plot(_BATCHES, change(linear), color=_ORANGE, linestyle="--", label="authors' linear fit")
        axes.scatter([32.0], [fall], color="black", marker="*", s=90, zorder=5, label="published")
        axes.set_xscale("log", base=2)
        axes.set_xticks(_BATCHES, [f"{batch:g}" for batch in _BATCHES])
        axes.axhline(0, color="0.4", linewidth=1)
        axes.set_title(f"{plain.target}, H100, k = 3, ShareGPT", fontsize=10)
        axes.set_xlabel("batch")
        axes.set_ylabel("change of the speed-up from batch 1, %")
        axes.legend(frameon=False, loc="lower left", fontsize=8)
    return figure


def vllm(reference: Requests, ours: Requests) -> Figure:
    """Return the vLLM run: end-to-end time of each request, and quantiles of TTFT and TPOT."""
    figure, (parity, ttft, tpot) = _panels(3, 12.6, 3.9)
    times = [table.last_token_s - table.arrival_s for table in (reference, ours)]
    parity.scatter(times[0], times[1], s=10, color=[_BLUE], alpha=0.7, linewidths=0)
    _diagonal(parity, 0.0, 1.05 * float(max(column.max() for column in times)))
    parity.set_xlabel("measured E2E, s")
    parity.set_ylabel("simulated E2E, s")
    parity.set_title("each request", fontsize=10)
    shares = np.linspace(0.0, 100.0, 201)
    for table, colour, label, style in ((reference, "black", "measured", "-"), (ours, _BLUE, "simulated", "--")):
        first = table.first_token_s - table.arrival_s
        gap_ms = 1e3 * (table.last_token_s - table.first_token_s) / (table.output_tokens - 1)
        ttft.plot(np.percentile(first, shares), shares, color=colour, linestyle=style, label=label)
        tpot.plot(np.percentile(gap_ms, shares), shares, color=colour, linestyle=style, label=label)
    for axes, name in ((ttft, "TTFT, s"), (tpot, "TPOT, ms")):
        axes.set_xlabel(name)
        axes.set_ylabel("requests, %")
        axes.set_ylim(0, 100)
        axes.legend(frameon=False, loc="lower right")
    return figure
