"""The comparison on a terminal or in a pipe: a few tables of at most 100 columns, the answer last."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
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
    """Return a difference with its sign and three digits that count; 0 for what would print as 0.000."""
    if abs(value) < 5e-4:
        return "0"
    return "–" if math.isnan(value) else ("+" if value > 0 else "") + number(value)


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


_DELAYS = (("TTFT", "user_ttft_s", number), ("E2E", "e2e_s", number), ("TPOT ms", "tpot_s", milliseconds))


def render(comparison: Comparison, console: Console) -> None:
    """Print the comparison. Piped output has no frames or colours and fits 100 columns."""
    if not console.is_terminal:
        console.width = 100  # a pipe has no width of its own; rich would take 80
    window = comparison.window
    console.print(
        f"[bold]{escape(comparison.name)}[/]: requests that arrived in [{window.warmup_s:g}, {window.horizon_s:g}] s; "
        f"means over replications, 95 % Student-t intervals",
        highlight=False,
    )
    _served(comparison, console)
    for title, columns in _sections(comparison):
        _table(comparison, console, title, columns)
    if len(comparison.policies) > 1:
        _why(comparison, console)
    console.print()
    for line in [*answers(comparison), *(f"Note: {note}." for note in comparison.notes)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print(console: Console, title: str, table: Table) -> None:
    # not the table's own title, which would wrap at the width of a narrow table
    console.print(f"\n{title}", style="bold", highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def _new_table(headers: Iterable[str], console: Console) -> Table:
    frame = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(box=frame, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold", max_width=24)
    for header in headers:
        table.add_column(header, justify="right")
    return table


def _served(comparison: Comparison, console: Console) -> None:
    best = comparison.best_baseline
    headers = ("runs", "offered", "in time %", "interval", f"− {best}", "interval")
    table = _new_table(headers, console)
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
    _print(console, "Served in time, % of the offered requests", table)


def _outcomes(comparison: Comparison) -> list[_Column]:
    """Return the columns of outcomes, and of the reasons for rejection that occurred."""
    reasons = [f"rejected_{reason.value}_share" for reason in RejectReason]
    seen = [reason for reason in reasons if comparison.runs[reason].max() > 0]
    outcomes = [_Column(outcome.value, f"{outcome.value}_share", percent) for outcome in Outcome]
    return outcomes + [
        _Column("by " + name.removeprefix("rejected_").removesuffix("_share"), name, percent) for name in seen
    ]


def _targets(comparison: Comparison) -> list[_Column]:
    """Return the columns of the service levels that the scenario asks for."""
    return [
        _Column(f"{name} target %", f"{name.lower()}_attainment", percent)
        for name in ("TTFT", "TPOT")
        if f"{name.lower()}_attainment" in comparison.units
    ]


def _sections(comparison: Comparison) -> list[tuple[str, list[_Column]]]:
    delays = [
        _Column(name if name != "p50" else f"{short} p50", f"{metric}_{name}", form)
        for short, metric, form in _DELAYS
        for name in ("p50", "p95", "p99")
    ]
    targets = _targets(comparison)
    return [
        ("What became of them, % of the offered requests; rejections by reason", _outcomes(comparison)),
        (
            "Rates per second in the window" + ("; service levels, % of offered" if targets else ""),
            [
                _Column("answers", "throughput_rps", number),
                _Column("in time", "goodput_rps", number),
                _Column("tokens", "throughput_tps", number),
                *targets,
            ],
        ),
        ("Delays of the answered requests at the user in s; TPOT at the server", delays),
        (
            "Where the time of an answered request went, mean s",
            [_Column(phase.value, f"mean_{phase.value}_s", number) for phase in Phase],
        ),
        (
            "GPU seconds in the window, all servers",
            [_Column(column.removesuffix("_s"), f"gpu_{column}", number) for column in (*WORK, "switch_s")]
            + [_Column("busy %", "gpu_busy_share", percent), _Column("KV peak %", "kv_peak_share", percent)],
        ),
        (
            "Speculation, and wall-clock time of a decision",
            [
                _Column("accepted/round", "accepted_tokens_per_round", number),
                _Column("accepted %", "acceptance_ratio", percent),
                _Column("decision ms mean", "decision_wall_mean_s", milliseconds),
                _Column("max", "decision_wall_max_s", milliseconds),
            ],
        ),
    ]


def _table(comparison: Comparison, console: Console, title: str, columns: list[_Column]) -> None:
    table = _new_table([column.header for column in columns], console)
    for policy in comparison.policies:
        table.add_row(policy, *(c.form(comparison.of(policy, c.metric).mean) for c in columns))
    _print(console, title, table)


def _why(comparison: Comparison, console: Console) -> None:
    best = comparison.best_baseline
    outcomes = [_Column(outcome.value, f"{outcome.value}_share", points) for outcome in Outcome]
    phases = [_Column(phase.value, f"mean_{phase.value}_s", signed) for phase in Phase]
    title = f"Difference to {best}: outcomes in points of offered, phases in mean s per answer"
    table = _new_table([column.header for column in (*outcomes, *phases)], console)
    for policy in comparison.policies:
        if policy != best:
            cells = (c.form(comparison.difference(policy, c.metric).mean) for c in (*outcomes, *phases))
            table.add_row(policy, *cells)
    _print(console, title, table)


def answers(comparison: Comparison) -> list[str]:
    """Return one sentence for each policy that is no baseline: its difference to the best one, whatever its sign."""
    best = comparison.best_baseline
    single = set(comparison.baselines) <= set(SINGLE_MODES)
    lines: list[str] = []
    for policy in comparison.policies:
        if policy == best or (policy in comparison.baselines and len(comparison.baselines) < len(comparison.policies)):
            continue
        paired = comparison.difference(policy, "served_in_time")
        interval = " (no interval)" if math.isnan(paired.low) else f" {bounds(paired, points)}"
        runs = f"{paired.replications} paired run{'' if paired.replications == 1 else 's'}"
        what = "best single mode" if single else "best baseline"
        lines.append(f"{policy} − {best} ({what}): {points(paired.mean)} points served in time{interval}, {runs}.")
    return lines
