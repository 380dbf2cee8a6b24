"""Print the comparison of one or more result folders and write it beside them.

python -m analysis.compare_policies results/dense_urban [results/suburban ...]
"""

import sys
from pathlib import Path

from rich.console import Console

from balancesim.compare import compare, render, write_comparison
from balancesim.manifest import ResultsError


def main(folders: list[str], console: Console | None = None) -> int:
    """Compare each folder; return 0, or 2 after a one-line error."""
    console = console or Console()
    if not folders:
        console.print("usage: python -m analysis.compare_policies RESULTS_FOLDER ...", markup=False)
        return 2
    for folder in folders:
        try:
            comparison = compare(folder)
        except ResultsError as error:
            console.print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
            return 2
        render(comparison, console)
        write_comparison(comparison, Path(folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
