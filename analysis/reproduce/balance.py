"""Reproduce the evaluation of Qu et al. (BALANCE, arXiv 2608.05926 v2): the paper's values beside ours, with intervals.

    python -m analysis.reproduce.balance [--seeds 24] [--jobs 2]

Reads the constants that `fit_balance` found (docs/reproduction/balance_fit.json), runs every sweep over replications
and writes docs/reproduction/balance.md, balance.csv and balance_*.png.
"""

import argparse
import json
import logging
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.reproduce.balance_claims import CLAIMS, table, with_two_batches
from analysis.reproduce.balance_figures import draw_all
from analysis.reproduce.balance_report import report, root_mean_square, tally
from analysis.reproduce.balance_single import single_request
from analysis.reproduce.balance_study import LAWS
from analysis.reproduce.balance_sweeps import law_sweeps, paper_sweeps, run
from analysis.reproduce.fit_balance import RESULT, setting

log = logging.getLogger(__name__)

OUT = Path("docs/reproduction")


def main(arguments: list[str] | None = None) -> None:
    """Run everything and write the report."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24, help="replications of every point, at least 2")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fit", type=Path, default=RESULT)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error(f"--seeds must be at least 2 for an interval, got {options.seeds}")
    stored = json.loads(options.fit.read_text())
    fit = stored["fits"][0]
    base = setting(fit["values"], fit["cost_form"])
    start = time.perf_counter()

    def progress(line: str) -> None:
        log.info("%5.0f s  %s", time.perf_counter() - start, line)

    others = [sweep for law in LAWS if law != "flops" for sweep in law_sweeps(base, law)]
    runs = with_two_batches(run([*paper_sweeps(base), *others], options.seeds, options.jobs, progress))
    options.out.mkdir(parents=True, exist_ok=True)
    rows = table(runs)
    rows.to_csv(options.out / "balance.csv", index=False, float_format="%.4f")
    singles = {law: single_request(replace(base, law=law)) for law in LAWS}
    names = draw_all(runs, options.out)
    (options.out / "balance.md").write_text(report(runs, stored, singles, names))
    stated = rows[np.isfinite(rows["paper"])]
    log.info("%s", stated.to_string(index=False, float_format=lambda value: f"{value:.1f}"))
    reading = fit["reading"]
    points = root_mean_square(runs, CLAIMS, reading)
    log.info("%s; root mean square residual %.1f points", tally(runs, CLAIMS, reading), points)


if __name__ == "__main__":
    main()
