"""Figures hold the data that they show."""

import numpy as np
import pytest
from matplotlib.axes import Axes

from analysis import figures, load
from balancesim.compare import compare
from balancesim.core.request import Mode
from balancesim.metrics import Phase
from balancesim.recorder import MemoryRecorder
from tests.result_folders import epoch_row, gpu_row, three_policies


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with three policies and two replications each."""
    return three_policies(tmp_path_factory.mktemp("results") / "two_servers", replications=2)


@pytest.fixture(scope="module")
def comparison(folder):
    """Return its comparison."""
    return compare(folder)


def legend_of(axes: Axes) -> list[str]:
    """Return the labels of the legend's entries."""
    return axes.get_legend_handles_labels()[1]


def test_served_in_time_shows_means_intervals_and_replications(comparison):
    """Each policy has a dot at its mean, a bar over its interval and a tick for each replication."""
    (axes,) = figures.served_in_time(comparison).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(comparison.policies)
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    bars = [list(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 3]
    ticks = [sorted(line.get_xdata()) for line in axes.lines if line.get_marker() == "|"]
    served = [comparison.of(policy, "served_in_time") for policy in comparison.policies]
    assert dots == [interval.mean for interval in served]
    assert bars == [[interval.low, interval.high] for interval in served]
    for policy, shown in zip(comparison.policies, ticks, strict=True):
        values = comparison.runs.loc[comparison.runs["policy"] == policy, "served_in_time"]
        assert sorted(values) == shown


def test_one_replication_has_no_bar(tmp_path):
    """Without an interval no bar is drawn."""
    comparison = compare(three_policies(tmp_path / "x", replications=1))
    (axes,) = figures.served_in_time(comparison).axes
    assert [line for line in axes.lines if line.get_linewidth() == 3] == []


def test_latency_curves_end_at_the_share_answered(folder, comparison):
    """Each curve rises over the offered requests and ends at the share that was answered."""
    requests = comparison.window.offered(load.requests(folder))
    (axes,) = figures.latency_ecdf(requests).axes
    assert legend_of(axes) == list(comparison.policies)
    curves = [line for line in axes.lines if line.get_label() in comparison.policies]
    for policy, curve in zip(comparison.policies, curves, strict=True):
        of_policy = requests[requests["policy"] == policy]
        times, share = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
        assert pytest.approx(of_policy["e2e_s"].notna().mean()) == share[-1]
        half = int(np.searchsorted(times, 3.0, side="right")) - 1
        assert pytest.approx((of_policy["e2e_s"] <= 3.0).mean()) == share[half]


def test_latency_of_nobody(folder):
    """Policies that answered nobody have a flat curve at 0."""
    requests = load.requests(folder).assign(e2e_s=np.nan)
    (axes,) = figures.latency_ecdf(requests).axes
    assert {tuple(line.get_ydata()) for line in axes.lines} == {(0.0,)}


def test_time_breakdown_stacks_the_phases(comparison):
    """The bars of each policy are its mean phases, one after the other."""
    figure = figures.time_breakdown(comparison)
    (axes,) = figure.axes
    assert legend_of(axes) == [phase.value for phase in Phase]
    for phase, bars in zip(Phase, axes.containers, strict=True):
        shown = [bar.get_width() for bar in bars]
        expected = [comparison.of(policy, f"mean_{phase.value}_s").mean for policy in comparison.policies]
        assert pytest.approx(expected) == shown
    ends = [bar.get_x() + bar.get_width() for bar in axes.containers[-1]]
    totals = [sum(comparison.of(p, f"mean_{phase.value}_s").mean for phase in Phase) for p in comparison.policies]
    assert pytest.approx(totals) == ends


def test_gpu_over_time_bins_the_work():
    """Work is spread over its span and cut into bins, as a mean over the servers; KV memory follows the epochs.

    A span [0.5, 2.5) with 1 s of decoding puts 0.25, 0.5, 0.25 s into bins of 1 s; a second server's [2, 3) with
    0.4 s of drafting and 0.6 s of verification fills its bin; of two servers this is half.
    """
    memory = MemoryRecorder()
    memory.gpu(gpu_row(0.5, 2.5, decode_s=1.0))
    memory.gpu(gpu_row(2.0, 3.0, server_id=1, mode=Mode.SD, lane_id=1, draft_s=0.4, verify_s=0.6))
    memory.epoch(epoch_row(0.0, kv_used_bytes=1e9, kv_peak_bytes=2e9))
    memory.epoch(epoch_row(0.5, kv_used_bytes=2e9, kv_peak_bytes=3e9))
    memory.epoch(epoch_row(2.0, kv_used_bytes=4e9, kv_peak_bytes=4e9))
    epochs, gpu = memory.frame("epochs"), memory.frame("gpu")
    edges = np.array([0.0, 1.0, 2.0, 3.0])
    assert pytest.approx([0.25, 0.5, 0.25]) == figures._binned(gpu, "decode_s", edges)
    assert pytest.approx([0.0, 0.0, 0.6], abs=1e-9) == figures._binned(gpu, "verify_s", edges)
    top, bottom = figures.gpu_over_time(epochs, gpu, bin_s=1.0).axes
    assert legend_of(top) == ["prefill", "decode", "draft", "verify", "switch"]
    heights = [poly.get_paths()[0].get_extents().ymax for poly in top.collections]
    # stacked: decode peaks at 0.5/2; in the last bin 0.25 + 0.4 + 0.6 of 2 servers
    assert pytest.approx([0.0, 0.25, 0.325, 0.625, 0.625], abs=1e-9) == heights
    mean, peak = bottom.lines
    assert pytest.approx([0.375, 1.0]) == list(mean.get_ydata())
    assert pytest.approx([0.75, 1.0]) == list(peak.get_ydata())


def test_nothing_ran():
    """A run without spans and epochs has an empty figure."""
    memory = MemoryRecorder()
    top, _ = figures.gpu_over_time(memory.frame("epochs"), memory.frame("gpu"), bin_s=1.0).axes
    assert max(poly.get_paths()[0].get_extents().ymax for poly in top.collections) == 0.0


def test_all_figures_are_written(folder):
    """Every figure of a folder becomes a picture, one GPU figure a policy."""
    paths = figures.draw_all(folder)
    names = ["served_in_time", "latency_ecdf", "time_breakdown"]
    names += [f"gpu_over_time_{policy}" for policy in ("balance", "ad_only", "sd_only")]
    assert [path.name for path in paths] == [f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
