"""Text of the reproduction of Qu et al. (arXiv 2608.05926 v2): docs/reproduction/balance.md."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.reproduce.balance_claims import (
    CLAIMS,
    FITTED,
    POINTS,
    RELATIVE,
    SINGLE_LATENCY_PERCENT,
    SINGLE_MEMORY_PERCENT,
    TWO_BATCHES,
    Claim,
    compared,
    gain,
    in_reading,
    residuals,
    shares,
)
from analysis.reproduce.balance_single import SingleRequest
from analysis.reproduce.balance_study import LAWS
from analysis.reproduce.balance_sweeps import AXES, POLICIES, law_suffix
from analysis.reproduce.pipeline_report import verdict

#: what BALANCE is set against in every sweep
RIVALS = (*(name for name in POLICIES if name != "balance"), TWO_BATCHES)
Cells = Iterable[Sequence[str]]


def markdown(head: Sequence[str], rows: Cells) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _with_interval(ours: float, low: float, high: float) -> str:
    return f"{ours:.1f}" if math.isnan(low) else f"{ours:.1f} ({low:.1f} … {high:.1f})"


def judged(claim: Claim, numbers: tuple[float, float, float]) -> str:
    """Return the verdict on one statement; a loss is judged as a gain of the other sign, a share is met or not."""
    paper, (ours, low, high) = claim.paper_percent, numbers
    found = verdict(paper, ours, low, high) if paper >= 0 else verdict(-paper, -ours, -high, -low)
    return "not met" if claim.baseline is None and found != "met" else found


def claims_table(runs: pd.DataFrame, claims: Iterable[Claim], reading: str) -> str:
    """Return the paper's statements beside ours, both readings of "%"; the verdict is on the fit's reading."""
    head = ["figure", "x", "BALANCE", "paper, %", "ours, relative %", "ours, points", "difference", "verdict"]
    rows = []
    for claim in claims:
        found = list(compared(runs, claim))
        what = "serves, % of K" if claim.baseline is None else f"over `{claim.baseline}`"
        if claim.scheme != "balance":
            what = f"{claim.scheme}: loss"
        chosen = in_reading(runs, claim, reading)
        numbers = [_with_interval(*row[4:]) for row in found]
        cells = ["", *numbers] if len(found) == 1 else numbers
        difference = f"{chosen[4] - claim.paper_percent:+.1f}"
        name = judged(claim, chosen[4:])
        rows.append([found[0][0], found[0][1], what, f"{claim.paper_percent:.1f}", *cells, difference, name])
    return markdown(head, rows)


def tally(runs: pd.DataFrame, claims: Iterable[Claim], reading: str) -> str:
    """Return how many statements are met, right in sign only, and not met."""
    counts: dict[str, int] = {}
    for claim in claims:
        name = judged(claim, in_reading(runs, claim, reading)[4:])
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def root_mean_square(runs: pd.DataFrame, claims: Iterable[Claim], reading: str) -> float:
    """Return the root mean square residual of the statements in percentage points."""
    return math.sqrt(float((residuals(runs, claims, reading) ** 2).mean()))


def rivals_table(runs: pd.DataFrame, reading: str) -> str:
    """Return BALANCE's gain over every rival for each axis and cost law: what the mix of modes is worth."""
    rows = []
    for law in LAWS:
        for axis in AXES:
            figure = axis + law_suffix(law)
            ours = shares(runs, Claim(figure, None, math.nan), "balance")
            cells = [law, axis, f"{100 * float(ours.mean()):.1f}"]
            for name in RIVALS:
                readings = gain(ours, shares(runs, Claim(figure, None, math.nan), name))
                cells.append(_plus_minus(readings[1] if reading == POINTS else readings[0]))
            rows.append(cells)
    return markdown(["law", "axis", "BALANCE serves, %", *(f"`{name}`" for name in RIVALS)], rows)


def laws_table(runs: pd.DataFrame, reading: str) -> str:
    """Return BALANCE's gain over every rival by cost law, mean of the seven axes: what survives on real cost laws."""
    rows = []
    for law in LAWS:
        means = []
        for name in RIVALS:
            claims = [Claim(axis + law_suffix(law), name, math.nan) for axis in AXES]
            means.append(sum(in_reading(runs, claim, reading)[4] for claim in claims) / len(claims))
        rows.append([law, *(f"{mean:+.1f}" for mean in means)])
    return markdown(["law", *(f"`{name}`" for name in RIVALS)], rows)


def over_optimum(runs: pd.DataFrame, figure: str) -> str:
    """Return BALANCE's distance to the optimum over a sweep, relative, with its interval."""
    return _with_interval(*in_reading(runs, Claim(figure, "optimal", math.nan), RELATIVE)[4:])


def _plus_minus(numbers: tuple[float, float, float]) -> str:
    mean, low, _ = numbers
    return f"{mean:+.1f}" if math.isnan(low) else f"{mean:+.1f} ± {mean - low:.1f}"


def single_table(singles: dict[str, SingleRequest]) -> str:
    """Return the single request under every cost law."""
    rows = [["paper", f"{SINGLE_LATENCY_PERCENT:.1f}", f"{SINGLE_MEMORY_PERCENT:.1f}", "", ""]]
    for law, single in singles.items():
        percents = f"{single.latency_percent:.1f}", f"{single.memory_percent:.1f}"
        rows.append([law, *percents, f"{single.ad_s:.3f}", f"{single.sd_s:.3f}"])
    return markdown(["law", "SD's latency, %", "SD's memory, %", "AD, s", "SD, s"], rows)


def forms_table(fits: Sequence[dict[str, Any]]) -> str:
    """Return the scores of every cost form and reading, best first."""
    rows = [[fit["cost_form"], fit["reading"], f"{fit['score_points']:.1f}", str(fit["evaluations"])] for fit in fits]
    return markdown(["cost form", 'reading of "%"', "root mean square residual, points", "points tried"], rows)


def constants_table(stored: dict[str, Any]) -> str:
    """Return the constants of every fit and their ranges."""
    fits, rows = stored["fits"], []
    for name, (low, high) in stored["ranges"].items():
        cells = []
        for fit in fits:
            value = fit["values"][name]
            edge = value < low * 1.01 or value > high * 0.99
            cells.append(f"{value:.3g}{' (edge)' if edge else ''}")
        rows.append([name, f"{low:.3g} … {high:.3g}", *cells])
    return markdown(["constant", "range", *(f"{fit['cost_form']}, {fit['reading']}" for fit in fits)], rows)


def _gains(runs: pd.DataFrame, scheme: str, rivals: Iterable[tuple[str, str]]) -> list[str]:
    """Return the relative gains of a scheme over (figure, rival)."""
    claims = [Claim(figure, rival, math.nan, scheme=scheme) for figure, rival in rivals]
    return [f"{in_reading(runs, claim, RELATIVE)[4]:.1f}" for claim in claims]


def searched_gains(fits: Sequence[dict[str, Any]], cost_form: str) -> str:
    """Return the mean gains over AD and SD in the sweeps of a cost form's search, relative reading."""
    fit = next(fit for fit in fits if (fit["cost_form"], fit["reading"]) == (cost_form, RELATIVE))
    means = []
    for baseline in ("ad_only", "sd_only"):
        claims = [claim for claim in FITTED if claim.x is None and claim.baseline == baseline]
        names = [f"{claim.figure}, all: balance over {baseline}, {RELATIVE}" for claim in claims]
        gains = [c.paper_percent + fit["residual_points"][name] for c, name in zip(claims, names, strict=True)]
        means.append(sum(gains) / len(gains))
    return " and ".join(f"{mean:.1f}" for mean in means)


def numbers_in_text(runs: pd.DataFrame) -> dict[str, str]:
    """Return the numbers that the text quotes."""
    optimum = _gains(runs, "optimal", [("users", "ad_only"), ("users", "sd_only")])
    output = _gains(runs, "balance", [("output length", "ad_only"), ("output length", "sd_only")])
    multi = _gains(runs, "balance", [("users" + law_suffix(law), "multi_batch") for law in LAWS])
    points = (("users", 70.0), ("deadline", 1.0))
    serves = [in_reading(runs, Claim(figure, None, math.nan, x), RELATIVE)[4] for figure, x in points]
    swept = [claim for claim in FITTED if claim.x is None]
    ratios = pd.Series([in_reading(runs, claim, RELATIVE)[4] / claim.paper_percent for claim in swept])
    return {
        "users_gap": over_optimum(runs, "users"),
        "deadline_gap": over_optimum(runs, "deadline"),
        "optimum_over_ad": optimum[0],
        "optimum_over_sd": optimum[1],
        "output_ad": output[0],
        "output_sd": output[1],
        "multi": ", ".join(multi),
        "law_names": ", ".join(f"`{law}`" for law in LAWS),
        "ratio": f"{100 * float(ratios.median()):.0f}",
        "at_70": f"{serves[0]:.1f}",
        "at_1": f"{serves[1]:.1f}",
    }


def report(runs: pd.DataFrame, stored: dict[str, Any], singles: dict[str, SingleRequest], names: list[str]) -> str:
    """Return docs/reproduction/balance.md."""
    fit = stored["fits"][0]
    reading = fit["reading"]
    other = POINTS if reading == RELATIVE else RELATIVE
    fitted = set(FITTED)
    checks = [claim for claim in CLAIMS if claim not in fitted]
    template = (Path(__file__).parent / "balance_text.txt").read_text()
    return template.format(
        seeds=runs["replication"].nunique(),
        reading=reading,
        other=other,
        cost_form=fit["cost_form"],
        fitted=claims_table(runs, FITTED, reading),
        checks=claims_table(runs, checks, reading),
        tally=tally(runs, CLAIMS, reading),
        fitted_rms=f"{root_mean_square(runs, FITTED, reading):.1f}",
        check_median=f"{float(residuals(runs, checks, reading).abs().median()):.1f}",
        other_rms=f"{root_mean_square(runs, FITTED, other):.1f}",
        forms=forms_table(stored["fits"]),
        constants=constants_table(stored),
        single=single_table(singles),
        rivals=rivals_table(runs, reading),
        laws=laws_table(runs, reading),
        count=len(CLAIMS),
        best_score=f"{fit['score_points']:.1f}",
        per_user_gains=searched_gains(stored["fits"], "per_user"),
        padded_gains=searched_gains(stored["fits"], "padded"),
        **numbers_in_text(runs),
        fit_seeds=stored["seeds"],
        figures="\n".join(f"![{name.removesuffix('.png').replace('_', ' ')}]({name})\n" for name in names),
    )
