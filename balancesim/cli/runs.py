"""``balancesim run``: the runs of a scenario, with progress, errors in one line, and what was written where."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from balancesim import scenario as scenarios
from balancesim.cli.output import job_progress, note, say
from balancesim.manifest import RunInfo, remove_runs, stale_runs
from balancesim.runner import GridOptions, Job, JobOutcome, jobs_of, run_jobs
from balancesim.scenario.settings import Scenario


@dataclass(frozen=True)
class Request:
    """What a command line asks to run."""

    scenario: str
    policies: Sequence[str]
    seed: int | None
    replications: int | None
    settings: Sequence[str]
    out: Path
    workers: int

    def load(self) -> Scenario:
        """Return the scenario with all overrides; its warnings go to stderr."""
        overrides = [*self.settings]
        if self.seed is not None:
            overrides.append(f"run.seed={self.seed}")
        if self.replications is not None:
            overrides.append(f"run.replications={self.replications}")
        scenario = scenarios.load(self.scenario, overrides, self.policies)
        for warning in scenario.warnings:
            note(warning)
        return scenario


def run_scenario(request: Request) -> None:
    """Run all policies and replications and say where the tables are."""
    scenario = request.load()
    remove_stale(scenario, request.out)
    finished = run(scenario, jobs_of(scenario), request)
    for outcome in finished:
        counts = outcome.outcomes or {}
        parts = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
        say(f"{outcome.job.policy} replication {outcome.job.replication}: {sum(counts.values()):,} requests: {parts}")
    say(f"tables in {request.out / scenario.name}; compare them: balancesim compare {request.out / scenario.name}")


def run(scenario: Scenario, jobs: list[Job], request: Request) -> list[JobOutcome]:
    """Run jobs and return their outcomes in the order of the jobs; leaves with 130 or 2 when some did not finish."""
    outcomes: dict[Job, JobOutcome] = {}
    with job_progress(jobs, scenario.run.horizon_s) as bars:
        watch = None if bars is None else bars.watch
        for outcome in run_jobs(scenario, jobs, GridOptions(request.out, request.workers), watch):
            outcomes[outcome.job] = outcome
            if bars is not None:
                bars.ended(jobs.index(outcome.job))
    finished = [outcomes[job] for job in jobs if outcomes[job].outcomes is not None]
    for job in jobs:
        if outcomes[job].error is not None:
            note(f"balancesim: {job.policy} replication {job.replication}: {outcomes[job].error}")
    if any(outcome.interrupted for outcome in outcomes.values()):
        note(f"interrupted: {len(finished)} of {len(jobs)} runs finished and kept in {request.out / scenario.name}")
        raise typer.Exit(130)
    if len(finished) < len(jobs):
        note(f"balancesim: {len(jobs) - len(finished)} of {len(jobs)} runs failed; the others are complete")
        raise typer.Exit(2)
    return finished


def remove_stale(scenario: Scenario, out: Path) -> None:
    """Remove finished runs of an older content of the scenario, which must not be compared with new ones.

    They can be had again: a run is a function of scenario, seed and replication.
    """
    folder = out / scenario.name
    stale = {run for entry in scenario.policies for run in stale_runs(folder, run_info(scenario, entry.label, 0))}
    if stale:
        remove_runs(folder, sorted(stale, key=lambda run: (run.policy, run.replication)))
        note(f"{folder}: {len(stale)} runs of another content or seed of the scenario removed")


def run_info(scenario: Scenario, policy: str, replication: int) -> RunInfo:
    """Return the identity of a run, as its manifest has it."""
    entry = scenario.policy(policy)
    return RunInfo(policy, replication, scenario.run.seed, scenario.document, entry.options, entry.source_sha256)
