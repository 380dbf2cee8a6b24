"""``balancesim compare``: run what is missing of a scenario, then show its policies side by side."""

import sys
from pathlib import Path

from balancesim.cli.output import note, say
from balancesim.cli.runs import Request, remove_stale, run
from balancesim.manifest import is_complete, manifest_path
from balancesim.runner import jobs_of, missing_jobs
from balancesim.scenario.settings import Scenario


def compare_scenario(request: Request) -> None:
    """Run the missing runs of a scenario and print its comparison."""
    scenario = request.load()
    folder = request.out / scenario.name
    remove_stale(scenario, request.out)
    missing = missing_jobs(scenario, _complete(scenario, folder))
    if missing:
        note(f"{scenario.name}: {len(missing)} of {len(jobs_of(scenario))} runs to do")
        run(scenario, missing, request)
    compare_folders([folder])


def _complete(scenario: Scenario, folder: Path) -> list[tuple[str, int]]:
    jobs = jobs_of(scenario)
    paths = {job: manifest_path(folder, job.policy, job.replication) for job in jobs}
    return [(job.policy, job.replication) for job, path in paths.items() if path.is_file() and is_complete(path)]


def compare_folders(folders: list[Path]) -> None:
    """Print the comparison of each folder of results and keep it there as ``comparison.csv`` and ``.json``."""
    from rich.console import Console

    from balancesim.compare import compare, render, write_comparison

    for index, folder in enumerate(folders):
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder of results; run a scenario first, or give a scenario's name")
        comparison = compare(folder)
        if index:
            say()
        sys.stdout.flush()
        render(comparison, Console(file=sys.stdout))
        write_comparison(comparison, folder)
