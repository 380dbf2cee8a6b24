"""One check of ours against a published number, and the file that collects them."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"
COLUMNS = ("check", "reference", "ours", "error_percent", "limit_percent", "ok")


@dataclass(frozen=True, slots=True)
class Check:
    """A published value beside ours. ``error_percent`` is ours over the reference minus one unless given."""

    name: str
    reference: float
    ours: float
    limit_percent: float
    given_error_percent: float | None = None  #: when the check is itself a mean of errors

    @property
    def error_percent(self) -> float:
        """Signed relative error in per cent, or the mean absolute one of a table."""
        if self.given_error_percent is not None:
            return self.given_error_percent
        return 100.0 * (self.ours / self.reference - 1.0)

    @property
    def ok(self) -> bool:
        """Whether the error is within the limit; NaN is not."""
        return abs(self.error_percent) <= self.limit_percent

    def row(self) -> tuple[str, ...]:
        """Return the cells of `COLUMNS`."""
        numbers = (self.reference, self.ours, self.error_percent, self.limit_percent)
        return (self.name, *(f"{number:.4g}" for number in numbers), "yes" if self.ok else "no")


def write_csv(checks: Iterable[Check], path: Path) -> None:
    """Write the checks in their order; a check of a name that is there already is an error."""
    rows = [check.row() for check in checks]
    names = [row[0] for row in rows]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"check names must be unique, got twice: {', '.join(repeated)}")
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def markdown(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
