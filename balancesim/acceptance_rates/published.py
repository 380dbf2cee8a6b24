"""Published acceptance of draft, target and task (``balancesim/data/acceptance.csv``), and the rates that follow."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class AcceptanceRecord:
    """A published acceptance of one draft, target and task; NaN or None = not published."""

    draft: str  #: draft model, or the drafting method when it is not a model of its own
    target: str  #: "" = not published
    task: str
    method: str  #: "chain", "tree" or "n-gram": the i.i.d. formulas hold for a chain only
    temperature: float
    draft_length: int | None  #: γ
    acceptance_rate: float  #: α per drafted token, its predecessors kept
    tokens_per_round: float  #: mean, the target's own token included
    source: str

    @property
    def rate(self) -> float:
        """α as published, else the α at which i.i.d. drafts give the published tokens a round; NaN for a tree.

        E = (1 − α^(γ+1))/(1 − α), arXiv 2211.17192; without a published γ the bound γ → ∞, α = 1 − 1/E.
        """
        if not math.isnan(self.acceptance_rate):
            return self.acceptance_rate
        if self.method == "tree":
            return math.nan
        return rate_of_tokens(self.tokens_per_round, self.draft_length)


def rate_of_tokens(tokens_per_round: float, draft_length: int | None) -> float:
    """Return the α in [0, 1] with Σ_{j=0..γ} α^j = tokens a round (rising in α; by bisection), γ = None: 1 − 1/E.

    Raises:
        ValueError: below 1 or above γ + 1 tokens a round.
    """
    most = math.inf if draft_length is None else draft_length + 1
    if not 1 <= tokens_per_round <= most:
        raise ValueError(f"tokens_per_round must be at least 1 and at most {most}, got {tokens_per_round}")
    if draft_length is None:
        return 1.0 - 1.0 / tokens_per_round
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if sum(middle**j for j in range(draft_length + 1)) < tokens_per_round:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@cache
def acceptance_records() -> tuple[AcceptanceRecord, ...]:
    """Return all published acceptance values, in the order of the table."""
    text = (files("balancesim") / "data" / "acceptance.csv").read_text(encoding="utf-8")
    return tuple(
        AcceptanceRecord(
            draft=row["draft"],
            target=row["target"],
            task=row["task"],
            method=row["method"],
            temperature=float(row["temperature"] or "nan"),
            draft_length=int(row["draft_length"]) if row["draft_length"] else None,
            acceptance_rate=float(row["acceptance_rate"] or "nan"),
            tokens_per_round=float(row["tokens_per_round"] or "nan"),
            source=row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    )


def published_rate(draft: str, target: str, task: str, draft_length: int, temperature: float | None = None) -> float:
    """Return α of a pair on a task, from the record measured with the draft length nearest to ``draft_length``.

    Records of trees have no α. Of records equally near the shorter draft length counts, then the first in the table.

    Raises:
        ValueError: no record; the message lists what there is one step up (tasks of the pair, or pairs).
    """
    usable = [record for record in acceptance_records() if not math.isnan(record.rate)]
    pair = [record for record in usable if (record.draft, record.target) == (draft, target)]
    if not pair:
        raise ValueError(_unknown("draft/target", f"{draft}/{target}", (f"{r.draft}/{r.target}" for r in usable)))
    if temperature is not None:
        pair = [record for record in pair if record.temperature == temperature]
    of_task = [record for record in pair if record.task == task]
    if not of_task:
        at = "" if temperature is None else f" at temperature {temperature:g}"
        raise ValueError(_unknown(f"task of {draft}/{target}{at}", task, (record.task for record in pair)))
    lengths = [draft_length if record.draft_length is None else record.draft_length for record in of_task]
    best = min(range(len(of_task)), key=lambda i: (abs(lengths[i] - draft_length), lengths[i]))
    return of_task[best].rate


def _unknown(what: str, name: str, choices: Iterable[str]) -> str:
    return f"no published acceptance for {what} {name!r} (there are: {', '.join(sorted(set(choices))) or 'none'})"
