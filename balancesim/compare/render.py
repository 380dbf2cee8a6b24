"""The comparison on a terminal or in a pipe: a few tables of at most 100 columns, the answer last."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from balancesim.compare.comparison import SINGLE_MODES, Comparison
from balancesim.compare.statistics import Interval
from balancesim.core.request import Outcome, RejectReason
from balancesim.metrics import Phase
from balancesim.metrics.server import WORK

Format = Callable[[float], str]


def percent(value: float) -> str:
    """Return a share in percent."""
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def points(value: float) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    return "–" if math.isnan(value) else f"{100 * value:+.1f}"


def number(value: float) -> str:
    """Return a number with three digits that count."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.{2 if abs(value) >= 0.995 else 3}f}" if abs(value) < 9.995 else f"{value:.1f}"


def signed(value: float) -> str:
    """Return a difference with its sign and three digits that count."""
    return "–" if math.isnan(value) else ("+" if value >= 0 else "") + number(value)


def milliseconds(value: float) -> str:
    """Return seconds as milliseconds."""
    return number(1e3 * value)


def bounds(interval: Interval, form: Format) -> str:
    """Return the bounds of an interval."""
    return "–" if math.isnan(interval.low) else f"[{form(interval.low)}, {form(interval.high)}]"


@dataclass(frozen=True)
class _Column:
    header: str
    metric: str
    form: Format


def render(comparison: Comparison, console: Console) -> None:
    """Print the comparison. Piped output has no frames or colours and fits 100 columns."""
    if not console.is_terminal:
        console.width = 100  # a pipe has no width of its own; rich would take 80
    window = comparison.window
    console.print(
        f"{comparison.name}: requests that arrived in [{window.warmup_s:g}, {window.horizon_s:g}] s; means over "
        f"replications, 95 % Student-t intervals",
        highlight=False,
    )
    console.print(_served(comparison, console))
    for title, columns in _sections(comparison):
        console.print(_table(comparison, console, title, columns))
    if len(comparison.policies) > 1:
        console.print(_why(comparison, console))
    for line in [*answers(comparison), *(f"Note: {note}." for note in comparison.notes)]:
        console.print(line, highlight=False, markup=False)


def _new_table(title: str, headers: Iterable[str], console: Console) -> Table:
    frame = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(
        title=title, title_justify="left", title_style="bold", box=frame, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("policy", overflow="fold", max_width=24)
    for header in headers:
        table.add_column(header, justify="right")
    return table


def _served(comparison: Comparison, console: Console) -> Table:
    best = comparison.best_baseline
    headers = ("runs", "offered", "in time %", "interval", f"− {best}", "interval")
    table = _new_table("\nServed in time, % of the offered requests", headers, console)
    for policy in comparison.policies:
        served = comparison.of(policy, "served_in_time")
        paired = comparison.difference(policy, "served_in_time")
        versus = ("best", "") if policy == best else (points(paired.mean), bounds(paired, points))
        table.add_row(
            policy,
            str(len(comparison.replications(policy))),
            number(comparison.of(policy, "offered").mean),
            percent(served.mean),
            bounds(served, percent),
            *versus,
        )
    return table


def _sections(comparison: Comparison) -> list[tuple[str, list[_Column]]]:
    reasons = [f"rejected_{reason.value}_share" for reason in RejectReason]
    seen = [reason for reason in reasons if comparison.runs[reason].max() > 0]
    quantiles = [
        _Column(f"{short} {name}", f"{metric}_{name}", form)
        for short, metric, form in (("TTFT", "user_ttft_s", number), ("E2E", "e2e_s", number))
        for name in ("p50", "p95", "p99")
    ]
    tpot = [_Column(f"TPOT ms {name}", f"tpot_s_{name}", milliseconds) for name in ("p50", "p95", "p99")]
    targets = [
        _Column(f"{name} target %", f"{name.lower()}_attainment", percent)
        for name in ("TTFT", "TPOT")
        if f"{name.lower()}_attainment" in comparison.units
    ]
    return [
        (
            "\nWhat became of them, % of the offered requests; reasons of rejection",
            [_Column(outcome.value, f"{outcome.value}_share", percent) for outcome in Outcome]
            + [_Column(name.removeprefix("rejected_").removesuffix("_share"), name, percent) for name in seen],
        ),
        (
            "\nRates per second in the window" + ("; service levels, % of offered" if targets else ""),
            [
                _Column("answers", "throughput_rps", number),
                _Column("in time", "goodput_rps", number),
                _Column("tokens", "throughput_tps", number),
                *targets,
            ],
        ),
        ("\nDelays of the answered requests at the user in s; TPOT at the server", [*quantiles, *tpot]),
        (
            "\nWhere the time of an answered request went, mean s",
            [_Column(phase.value, f"mean_{phase.value}_s", number) for phase in Phase],
        ),
        (
            "\nGPU seconds in the window, all servers",
            [_Column(column.removesuffix("_s"), f"gpu_{column}", number) for column in (*WORK, "switch_s")]
            + [_Column("busy %", "gpu_busy_share", percent), _Column("KV peak %", "kv_peak_share", percent)],
        ),
        (
            "\nSpeculation, and wall-clock time of a decision",
            [
                _Column("accepted/round", "accepted_tokens_per_round", number),
                _Column("accepted %", "acceptance_ratio", percent),
                _Column("decision ms mean", "decision_wall_mean_s", milliseconds),
                _Column("max", "decision_wall_max_s", milliseconds),
            ],
        ),
    ]


def _table(comparison: Comparison, console: Console, title: str, columns: list[_Column]) -> Table:
    table = _new_table(title, [column.header for column in columns], console)
    for policy in comparison.policies:
        table.add_row(policy, *(c.form(comparison.of(policy, c.metric).mean) for c in columns))
    return table


def _why(comparison: Comparison, console: Console) -> Table:
    best = comparison.best_baseline
    outcomes = [_Column(outcome.value, f"{outcome.value}_share", points) for outcome in Outcome]
    phases = [_Column(phase.value, f"mean_{phase.value}_s", signed) for phase in Phase]
    title = f"\nDifference to {best}: outcomes in points of offered, phases in mean s per answer"
    table = _new_table(title, [column.header for column in (*outcomes, *phases)], console)
    for policy in comparison.policies:
        if policy != best:
            cells = (c.form(comparison.difference(policy, c.metric).mean) for c in (*outcomes, *phases))
            table.add_row(policy, *cells)
    return table


def answers(comparison: Comparison) -> list[str]:
    """Return one sentence for each policy that is no baseline: its difference to the best one, whatever its sign."""
    best = comparison.best_baseline
    single = set(comparison.baselines) <= set(SINGLE_MODES)
    lines: list[str] = [""]
    for policy in comparison.policies:
        if policy == best or (policy in comparison.baselines and len(comparison.baselines) < len(comparison.policies)):
            continue
        paired = comparison.difference(policy, "served_in_time")
        interval = "no interval" if math.isnan(paired.low) else f"interval {bounds(paired, points)}"
        runs = f"{paired.replications} paired replication{'' if paired.replications == 1 else 's'}"
        what = "the best single mode" if single else "the best baseline"
        lines.append(f"{policy} − {best} ({what}): {points(paired.mean)} points served in time, {interval}, {runs}.")
    return lines
