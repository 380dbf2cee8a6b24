"""The runs of a scenario, policy × replication: one after the other, or in several processes.

Each run writes its own files and draws from its own streams, so results do not depend on the number of workers. A run
that fails loses no other; Ctrl-C keeps finished runs and leaves the cut ones marked as partial.
"""

import json
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from balancesim import scenario as scenarios
from balancesim.scenario.settings import Scenario


@dataclass(frozen=True, slots=True)
class Job:
    """One run to do."""

    policy: str
    replication: int


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of a job: its requests by outcome, an error, or neither when it was interrupted."""

    job: Job
    outcomes: dict[str, int] | None = None
    error: str | None = None  #: in one line
    trace: str = ""  #: the traceback of the error

    @property
    def interrupted(self) -> bool:
        """Whether the run was cut or never began."""
        return self.outcomes is None and self.error is None


@dataclass(frozen=True, slots=True)
class GridOptions:
    """Where results go and how many processes make them."""

    out_dir: Path
    workers: int = 1


class Board:
    """Progress of all jobs, (simulated seconds, requests) each, and a stop flag; a file shared by the processes."""

    def __init__(self, path: Path, jobs: int, *, create: bool = False) -> None:
        self._rows = np.memmap(path, dtype=np.float64, mode="w+" if create else "r+", shape=(jobs + 1, 2))

    def write(self, index: int, time_s: float, requests: int) -> None:
        """Note how far a job is; raise KeyboardInterrupt when all are to stop."""
        self._rows[index] = (time_s, requests)
        if self.stopped:
            raise KeyboardInterrupt

    def read(self) -> list[tuple[float, int]]:
        """Return how far each job is."""
        return [(float(time_s), int(requests)) for time_s, requests in self._rows[:-1]]

    def stop(self) -> None:
        """Ask all jobs to stop."""
        self._rows[-1, 0] = 1.0

    @property
    def stopped(self) -> bool:
        """Whether the jobs are to stop."""
        return bool(self._rows[-1, 0])


@dataclass(frozen=True)
class _Order:
    """A job for another process: everything it needs, as plain data."""

    document: dict[str, Any]
    name: str
    folder: Path
    job: Job
    place: tuple[Path, int, int]  #: file of the board, number of jobs, index of this one
    out_dir: Path
    working_dir: Path  #: where relative names start; a worker process may have been made elsewhere


def jobs_of(scenario: Scenario) -> list[Job]:
    """Return all runs of a scenario; the policies of a replication follow each other."""
    return [
        Job(entry.label, replication) for replication in range(scenario.run.replications) for entry in scenario.policies
    ]


def run_jobs(
    scenario: Scenario,
    jobs: Sequence[Job],
    options: GridOptions,
    watch: Callable[[Board], None] | None = None,
) -> Iterator[JobOutcome]:
    """Run the jobs and yield what became of each as it ends, interrupted ones included.

    ``watch`` is given the board before anything runs. After Ctrl-C (SIGINT in the main thread) jobs not yet begun are
    skipped, and those under way end at their next report of progress; a second one stops everything at once.
    """
    if not jobs:
        return
    with tempfile.TemporaryDirectory(prefix="balancesim-") as folder:
        path = Path(folder) / "board"
        board = Board(path, len(jobs), create=True)
        if watch is not None:
            watch(board)
        common = dict(scenario.document), scenario.name, scenario.folder
        orders = [
            _Order(*common, job, (path, len(jobs), index), options.out_dir, Path.cwd())
            for index, job in enumerate(jobs)
        ]
        if min(options.workers, len(jobs)) > 1:
            yield from _parallel(orders, board, options.workers)
        else:
            for order in orders:
                yield _run(scenario, order, board)


def _parallel(orders: Sequence[_Order], board: Board, workers: int) -> Iterator[JobOutcome]:
    from joblib import Parallel, delayed

    left = {order.job for order in orders}
    with _stopping(board):
        pool = Parallel(n_jobs=min(workers, len(orders)), return_as="generator_unordered", batch_size=1)
        try:
            for outcome in pool(delayed(_run_order)(order) for order in orders):
                left.discard(outcome.job)
                yield outcome
        except Exception as error:  # a worker died: its job and those not begun are lost, finished runs are not
            message = None if board.stopped else f"a worker process died: {one_line(error)}"
            for order in orders:
                if order.job in left:
                    yield JobOutcome(order.job, error=message, trace=traceback.format_exc())


@contextmanager
def _stopping(board: Board) -> Iterator[None]:
    """Turn the first SIGINT into a request to stop; the next one has its usual effect."""

    def on_interrupt(_signal: int, _frame: object) -> None:
        board.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        before = signal.signal(signal.SIGINT, on_interrupt)
    except ValueError:  # not in the main thread, where signals never arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_order(order: _Order) -> JobOutcome:
    """Run a job in a worker process."""
    path, jobs, _ = order.place
    os.chdir(order.working_dir)
    document = json.dumps(order.document)
    try:
        return _run(_scenario_of(document, order.name, order.folder), order, Board(path, jobs))
    except KeyboardInterrupt:
        return JobOutcome(order.job)


@lru_cache(maxsize=1)
def _scenario_of(document: str, name: str, folder: Path) -> Scenario:
    """Return the scenario of a document; a worker does several jobs of the same one."""
    return scenarios.from_document(json.loads(document), name, folder)


def _run(scenario: Scenario, order: _Order, board: Board) -> JobOutcome:
    from balancesim.simulate import simulate

    job, index = order.job, order.place[2]
    if board.stopped:
        return JobOutcome(job)
    try:
        result = simulate(
            scenario,
            job.policy,
            job.replication,
            out_dir=order.out_dir,
            progress=lambda time_s, requests: board.write(index, time_s, requests),
        )
    except KeyboardInterrupt:
        board.stop()
        return JobOutcome(job)
    except Exception as error:  # whatever a policy or a disk does to one run, the others go on
        return JobOutcome(job, error=one_line(error), trace=traceback.format_exc())
    return JobOutcome(job, result.outcomes)


def one_line(error: BaseException) -> str:
    """Return an error in one line; the type is shown unless the message is meant for users."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError | OSError) and text else f"{type(error).__name__}: {text}"


def missing_jobs(scenario: Scenario, complete: Iterable[tuple[str, int]]) -> list[Job]:
    """Return the jobs of a scenario whose runs are not among the complete ones."""
    done = set(complete)
    return [job for job in jobs_of(scenario) if (job.policy, job.replication) not in done]
