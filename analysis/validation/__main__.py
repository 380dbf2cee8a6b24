"""Run all checks: print the tables, write ``docs/validation.csv``, ``docs/validation.md`` and its figures."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.validation import argonne, specbench, vllm_run
from analysis.validation.checks import COLUMNS, markdown, write_csv
from analysis.validation.document import Results, write

OUT = Path(__file__).parents[2] / "docs" / "validation.csv"


def run() -> tuple[Results, str]:
    """Return all checks with what they were made from, and the report."""
    rows = argonne.rows()
    measured, simulated = vllm_run.measured(), vllm_run.simulated()
    checks = [*argonne.checks(rows), *specbench.checks(), *vllm_run.checks(measured, simulated)]
    sections = (
        ("Whole requests (Argonne LLM-Inference-Bench, vLLM, in = out)", argonne.report(rows)),
        ("Speculative decoding (Spec-Bench; arXiv 2601.11580)", specbench.report()),
        ("A run of vLLM (RTX 4090, Llama-3.1-8B, 300 requests)", vllm_run.report(measured, simulated)),
        ("Checks", markdown(COLUMNS, (check.row() for check in checks))),
    )
    return Results(checks, rows, measured, simulated), "\n\n".join(
        f"## {title}\n\n{text}" for title, text in sections
    ) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print and write; with ``--strict`` return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m analysis.validation", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=OUT, help="CSV file to write; .md and a folder of figures go beside"
    )
    parser.add_argument("--strict", action="store_true", help="fail when a limit is missed")
    options = parser.parse_args(argv)
    results, text = run()
    checks = results.checks
    write_csv(checks, options.out)
    write(results, options.out.with_suffix(".md"))
    missed = [check.name for check in checks if not check.ok]
    sys.stdout.write(text)
    sys.stdout.write(
        f"\n{len(checks) - len(missed)} of {len(checks)} checks within their limit; table: {options.out}\n"
    )
    for name in missed:
        sys.stdout.write(f"missed: {name}\n")
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    raise SystemExit(main())
