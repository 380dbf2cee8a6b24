"""The statements of [P1] (arXiv 2608.05926 v2, docs/model.md §8) and the arithmetic that sets ours beside them.

"x % over a baseline" is read both ways, since the paper does not say: relative (ratio of the shares served, averaged
over the points of the sweep first) and in points (difference of the shares). Intervals are 95 % Student intervals over
replications; for a ratio R = b/a they are those of its linearisation, (b_i − R·a_i)/a in replication i.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from analysis.reproduce.balance_study import PAIR, PAIRS
from analysis.reproduce.pipeline import interval

RELATIVE, POINTS, VALUE = "relative, %", "points", "%"
COLUMNS = ["figure", "x", "quantity", "paper", "ours", "ci_low", "ci_high"]


@dataclass(frozen=True)
class Claim:
    """One number of the paper: what a scheme gains over a baseline, or (no baseline) the share that it serves."""

    figure: str
    baseline: str | None
    paper_percent: float
    x: float | None = None  #: None: over the whole sweep
    scheme: str = "balance"


def _over_sweeps() -> Iterable[Claim]:
    stated = {
        "users": (37.9, 33.4),
        "deadline": (31.5, 27.3),
        "input length": (38.8, 23.9),
        "output length": (30.4, 27.3),
        "memory": (17.4, 35.4),
        "acceptance": (23.9, 41.3),
        "draft length": (24.4, 39.3),
    }
    for figure, papers in stated.items():
        for baseline, paper in zip(("ad_only", "sd_only"), papers, strict=True):
            yield Claim(figure, baseline, paper)


def _at_points() -> Iterable[Claim]:
    for figure, x, share, over_ad, over_sd in (
        ("users", 70.0, 70.4, 30.4, 30.2),
        ("deadline", 1.0, 62.9, 22.9, 22.5),
    ):
        yield Claim(figure, None, share, x)
        yield Claim(figure, "ad_only", over_ad, x)
        yield Claim(figure, "sd_only", over_sd, x)


def _ablations() -> Iterable[Claim]:
    stated = {"users": (5.6, 18.7, 23.7), "deadline": (9.0, 4.9, 18.4), "memory": (4.6, 15.3, 19.9)}
    for figure, papers in stated.items():
        for name, paper in zip(("ecra", "ema", "ecrma"), papers, strict=True):
            yield Claim(figure, name, paper)


def _predictions() -> Iterable[Claim]:
    """Yield the losses by prediction errors. Which two sweeps they belong to is not known: K and T_max [A]."""
    stated = {"α CV 0.3": (-2.8, -4.3), "n CV 0.3": (-3.9, -3.6), "n log-t": (-3.8, -4.7)}
    for where in ("noisy prediction", "noisy truth"):
        for what, papers in stated.items():
            for axis, paper in zip(("users", "deadline"), papers, strict=True):
                name = f"{what}, {where}"
                yield Claim(f"{axis}, prediction errors", f"{name}, told", paper, scheme=name)


def _pairs() -> Iterable[Claim]:
    others = [pair for pair in PAIRS if pair != PAIR]
    stated = ((39.4, 31.6), (16.6, 38.2)), ((37.6, 34.7), (17.0, 38.2))
    for pair, by_axis in zip(others, stated, strict=True):
        for axis, papers in zip(("users", "memory"), by_axis, strict=True):
            for baseline, paper in zip(("ad_only", "sd_only"), papers, strict=True):
                yield Claim(f"{axis} ({pair})", baseline, paper)


#: statements that the fit looks at; all others are checked with the constants so found
FITTED = (*_over_sweeps(), *_at_points())
CLAIMS = (*FITTED, *_ablations(), *_predictions(), *_pairs(), Claim("exhaustive", "optimal", -0.9))
#: one request, 500 input tokens: SD against AD, percent [P1]
SINGLE_LATENCY_PERCENT, SINGLE_MEMORY_PERCENT = -39.1, 18.3


#: not a policy: the better, in each round, of two batches of AD and two of SD
TWO_BATCHES = "better of two batches"


def with_two_batches(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the rival `TWO_BATCHES` wherever both policies were run."""
    both = runs[runs["scheme"].isin(("ad_two_batches", "sd_two_batches"))]
    best = both.groupby(["figure", "x", "replication"], sort=False)["served"].max().reset_index()
    best["scheme"] = TWO_BATCHES
    return pd.concat([runs, best.reindex(columns=runs.columns)], ignore_index=True)


def shares(runs: pd.DataFrame, claim: Claim, scheme: str) -> "pd.Series[float]":
    """Return the share served by a scheme in each replication, averaged over the points that a statement is about."""
    chosen = runs[(runs["figure"] == claim.figure) & (runs["scheme"] == scheme)]
    if claim.x is not None:
        chosen = chosen[chosen["x"] == claim.x]
    if chosen.empty:
        raise ValueError(f"{claim.figure}: {scheme} at x = {claim.x or 'any'} was not run")
    return chosen.groupby("replication")["served"].mean()


def gain(scheme: "pd.Series[float]", baseline: "pd.Series[float]") -> tuple[tuple[float, float, float], ...]:
    """Return the gain in relative percent and in points, each with the ends of its interval."""
    mean = float(baseline.mean())
    points = interval(100 * (scheme - baseline))
    if mean == 0:
        return (math.inf if scheme.mean() > 0 else math.nan, math.nan, math.nan), points
    ratio = float(scheme.mean()) / mean
    return interval(100 * (ratio - 1 + (scheme - ratio * baseline) / mean)), points


def compared(runs: pd.DataFrame, claim: Claim) -> Iterable[tuple[str, str, str, float, float, float, float]]:
    """Yield the rows of one statement, one a reading."""
    x = "all" if claim.x is None else f"{claim.x:g}"
    ours = shares(runs, claim, claim.scheme)
    if claim.baseline is None:
        name = f"served in time by {claim.scheme}, {VALUE}"
        yield claim.figure, x, name, claim.paper_percent, *interval(100 * ours)
        return
    readings = gain(ours, shares(runs, claim, claim.baseline))
    for unit, numbers in zip((RELATIVE, POINTS), readings, strict=True):
        name = f"{claim.scheme} over {claim.baseline}, {unit}"
        yield claim.figure, x, name, claim.paper_percent, *numbers


def gains_over_all(runs: pd.DataFrame) -> Iterable[tuple[str, str, str, float, float, float, float]]:
    """Yield BALANCE's gain over every other scheme in every sweep, both readings, as far as the paper has no number."""
    stated = {(claim.figure, claim.baseline) for claim in CLAIMS if claim.x is None and claim.scheme == "balance"}
    for figure, group in runs.groupby("figure", sort=False):
        names = list(dict.fromkeys(group["scheme"]))
        for name in names if "balance" in names else ():
            if name != "balance" and (figure, name) not in stated:
                yield from compared(group, Claim(str(figure), name, math.nan))


def curves(runs: pd.DataFrame) -> Iterable[tuple[str, str, str, float, float, float, float]]:
    """Yield the mean share served of every scheme at every point."""
    for (figure, x, scheme), group in runs.groupby(["figure", "x", "scheme"], sort=False):
        name = f"served in time by {scheme}, {VALUE}"
        yield str(figure), f"{x:g}", name, math.nan, *interval(100 * group["served"])


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of balance.csv: the paper's statements, the gains it does not state, all curves."""
    rows = [row for claim in CLAIMS for row in compared(runs, claim)]
    return pd.DataFrame([*rows, *gains_over_all(runs), *curves(runs)], columns=COLUMNS)


def in_reading(runs: pd.DataFrame, claim: Claim, reading: str) -> tuple[str, str, str, float, float, float, float]:
    """Return the row of a statement in one reading of "%", `RELATIVE` or `POINTS`."""
    rows = list(compared(runs, claim))
    return rows[-1] if reading == POINTS else rows[0]


def residuals(runs: pd.DataFrame, claims: Iterable[Claim], reading: str) -> "pd.Series[float]":
    """Return ours − paper in percentage points for statements in one reading."""
    rows = (in_reading(runs, claim, reading) for claim in claims)
    return pd.Series({f"{figure}, {x}: {name}": ours - paper for figure, x, name, paper, ours, *_ in rows})
