"""When a hybrid of AD and SD pays: one map over deadlines, memory, spread of lengths and cost law.

    python -m analysis.regime_map [--seeds 24] [--jobs 2]      writes docs/regime_map.png and docs/regime_map.csv

Every cell is a set of one-round problems with padded batches (docs/model.md §5). Two questions, two halves of the map:

- does a hybrid pay at all: BALANCE against `best_single_mode`, the better of AD alone and SD alone in each round
- is it the mix of modes or the second batch: BALANCE against the better of two AD batches and two SD batches

Axes, without units so that an operator can find a server of any size in it:

- deadline tightness: mean deadline over the time of one AD batch of all users at the mean lengths, whole GPU
- memory: room for KV caches beside both models over what all users need under AD at the mean lengths
- spread: coefficient of variation of log-normal prompt and answer lengths, means kept
"""

import argparse
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from joblib import Parallel, delayed
from matplotlib.figure import Figure

from analysis.reproduce.balance_claims import gain
from analysis.reproduce.balance_study import LAWS, PAIR, Setting, server, weight_bytes
from analysis.reproduce.fit_balance import RESULT, setting
from balancesim.core.candidates import Candidates
from balancesim.core.lane_models import StaticLanes
from balancesim.core.padded import BatchShape, padded_cost
from balancesim.core.problem import Problem
from balancesim.core.request import Mode
from balancesim.lengths import LognormalLengths
from balancesim.policies import AdOnly, AdTwoBatches, Balance, Policy, SdOnly, SdTwoBatches
from balancesim.streams import Streams
from balancesim.units import GB

log = logging.getLogger(__name__)

OUT = Path("docs")
USERS, DRAFT_LENGTH = 40, 4
PROMPT_MEAN, OUTPUT_MEAN = 300, 100
PROMPT_MOST, OUTPUT_MOST = 3072, 1024  #: longer draws are cut to these: the context of Llama-2-7B
TIGHTNESS = (0.125, 0.25, 0.5, 1.0, 2.0)
MEMORY = (0.25, 0.5, 1.0, 2.0)
SPREAD = (0.3, 1.0, 2.0)
POLICIES: dict[str, Policy] = {
    "balance": Balance(),
    "ad_only": AdOnly(),
    "sd_only": SdOnly(),
    "ad_two_batches": AdTwoBatches(),
    "sd_two_batches": SdTwoBatches(),
}
#: the two rivals: the better of two policies in each round
RIVALS = {"best_single": ("ad_only", "sd_only"), "two_batches": ("ad_two_batches", "sd_two_batches")}
TITLES = {"best_single": "over the best single mode", "two_batches": "over two batches of one mode"}


@dataclass(frozen=True)
class Cell:
    """One regime."""

    law: str
    length_cv: float
    tightness: float
    memory: float


def cells() -> list[Cell]:
    """Return all regimes."""
    return [Cell(*values) for values in product(LAWS, SPREAD, TIGHTNESS, MEMORY)]


def with_memory(base: Setting, cell: Cell) -> Setting:
    """Return the study's setting with the cell's law and memory."""
    changed: dict[str, Any] = vars(base) | {
        "law": cell.law,
        "pair": PAIR,
        "draft_length": DRAFT_LENGTH,
        "utilisation": 1.0,
        "memory_gb": 24.0,
    }
    kv_bytes = server(Setting(**changed)).target.kv_bytes_per_token
    room_bytes = cell.memory * USERS * (PROMPT_MEAN + OUTPUT_MEAN) * kv_bytes
    return Setting(**(changed | {"memory_gb": (weight_bytes(PAIR) + room_bytes) / GB}))


def problem(base: Setting, cell: Cell, replication: int) -> Problem:
    """Return one round: the same users, ranks of deadlines and acceptance rates in every regime."""
    streams = Streams(1, replication)
    law = LognormalLengths(PROMPT_MEAN, cell.length_cv, OUTPUT_MEAN, cell.length_cv)
    sizes = next(law.batches(streams.sequential("lengths"), USERS))
    ranks = streams.sequential("requests").random((USERS, 2))
    spec = server(with_memory(base, cell))
    reference_s = float(padded_cost(spec, Mode.AD, 0, BatchShape(USERS, PROMPT_MEAN, OUTPUT_MEAN)).total_s)
    nothing = np.zeros(USERS)
    candidates = Candidates(
        request_id=np.arange(USERS),
        prompt_tokens=np.minimum(sizes.prompt_tokens, PROMPT_MOST),
        output_tokens=np.minimum(sizes.output_tokens, OUTPUT_MOST),
        acceptance_rate=0.6 + 0.35 * ranks[:, 1],
        slack_s=cell.tightness * reference_s * (0.5 + ranks[:, 0]),
        upload_s=nothing,  # text takes milliseconds
        waited_s=nothing.copy(),
        prompt_bits=nothing.copy(),
        spectral_efficiency_bps_hz=nothing + 1.0,
    )
    return Problem(0.0, 0, spec, StaticLanes(), candidates)


def served(base: Setting, cell: Cell, seeds: int) -> pd.DataFrame:
    """Return the share of users that every policy and rival serves, one row a replication."""
    rows = []
    for replication in range(seeds):
        case = problem(base, cell, replication)
        rows.append({name: len(policy.decide(case).admitted) / USERS for name, policy in POLICIES.items()})
    frame = pd.DataFrame(rows)
    for rival, names in RIVALS.items():
        frame[rival] = frame[list(names)].max(axis=1)
    return frame


def summary(cell: Cell, frame: pd.DataFrame) -> dict[str, object]:
    """Return the row of a cell: mean shares in percent, gains in relative percent and points with intervals."""
    row: dict[str, object] = vars(cell) | {f"{name}_percent": 100 * frame[name].mean() for name in frame}
    for rival in RIVALS:
        for unit, numbers in zip(("percent", "points"), gain(frame["balance"], frame[rival]), strict=True):
            for end, value in zip(("", "_low", "_high"), numbers, strict=True):
                row[f"gain_over_{rival}_{unit}{end}"] = value
    return row


def table(base: Setting, seeds: int, jobs: int, report: Callable[[str], None]) -> pd.DataFrame:
    """Return one row a regime."""
    rows: list[dict[str, object]] = []
    with Parallel(n_jobs=jobs) as parallel:
        for law in LAWS:
            chosen = [cell for cell in cells() if cell.law == law]
            frames = parallel(delayed(served)(base, cell, seeds) for cell in chosen)
            rows += [summary(cell, frame) for cell, frame in zip(chosen, frames, strict=True)]
            report(f"{law}: {len(chosen)} regimes, {seeds} rounds of {USERS} users each")
    return pd.DataFrame(rows)


def verdicts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return, by law: regimes where BALANCE clearly (95 %) serves more than a rival, or less; mean gains in points."""
    found = []
    for law, group in rows.groupby("law", sort=False):
        row: dict[str, object] = {"law": law, "regimes": len(group)}
        for rival in RIVALS:
            column = f"gain_over_{rival}_points"
            row[f"above {rival}"] = int((group[f"{column}_low"] > 0).sum())
            row[f"below {rival}"] = int((group[f"{column}_high"] < 0).sum())
            row[f"mean over {rival}"] = group[column].mean()
        row["two_batches over best_single"] = (group["two_batches_percent"] - group["best_single_percent"]).mean()
        found.append(row)
    return pd.DataFrame(found).set_index("law")


def draw(rows: pd.DataFrame) -> Figure:
    """Return the map: gain of BALANCE in points of the users, a bar under cells whose interval holds 0."""
    with mpl.rc_context({"font.size": 8}):
        drawing = Figure(figsize=(15.0, 7.2), layout="constrained")
        halves: Any = drawing.subfigures(1, 2, wspace=0.03)
        for half, rival in zip(halves, RIVALS, strict=True):
            half.suptitle(f"BALANCE {TITLES[rival]}: points of the users served", fontsize=10, fontweight="bold")
            panels = half.subplots(len(LAWS), len(SPREAD), sharex=True, sharey=True)
            for place, (law, spread) in enumerate(product(LAWS, SPREAD)):
                axes = panels.flat[place]
                chosen = rows[(rows["law"] == law) & (rows["length_cv"] == spread)]
                _heat(axes, chosen, f"gain_over_{rival}_points")
                axes.set_title(f"{law}, length CV {spread:g}", fontsize=8)
                axes.set_xlabel("deadline tightness" if law == list(LAWS)[-1] else "")
                axes.set_ylabel("memory" if spread == SPREAD[0] else "")
        drawing.supxlabel(
            "deadline tightness: mean deadline / time of one AD batch of all;  memory: KV room / need of all;"
            "  in brackets: the 95 % interval holds 0",
            fontsize=8,
        )
    return drawing


def _heat(axes: Any, chosen: pd.DataFrame, column: str) -> None:
    values = chosen.pivot_table(index="memory", columns="tightness", values=column).iloc[::-1]
    clear = chosen.assign(clear=(chosen[f"{column}_low"] > 0) | (chosen[f"{column}_high"] < 0))
    clear = clear.pivot_table(index="memory", columns="tightness", values="clear", aggfunc="all").iloc[::-1]
    labels = np.array(
        [
            [f"{value:+.0f}" if known else f"({value:+.0f})" for value, known in zip(line, sure, strict=True)]
            for line, sure in zip(values.to_numpy(), clear.to_numpy(), strict=True)
        ]
    )
    sns.heatmap(
        values, ax=axes, cmap="RdBu_r", center=0, vmin=-20, vmax=20, annot=labels, fmt="", cbar=False, linewidths=0.5
    )


def main(arguments: Iterable[str] | None = None) -> None:
    """Compute and draw the map."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24, help="rounds of every regime")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fit", type=Path, default=RESULT, help="coefficients of the law flops")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(None if arguments is None else list(arguments))
    fit = json.loads(options.fit.read_text())["fits"][0]
    rows = table(setting(fit["values"], "padded"), options.seeds, options.jobs, log.info)
    options.out.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.out / "regime_map.csv", index=False, float_format="%.3f")
    draw(rows).savefig(options.out / "regime_map.png", dpi=100)
    log.info("%s", verdicts(rows).round(1).T.to_string())


if __name__ == "__main__":
    main()
