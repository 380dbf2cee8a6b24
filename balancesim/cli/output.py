"""What commands write: results on stdout, everything else on stderr; progress only where somebody looks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from balancesim.runner import Board, Job


def say(text: str = "") -> None:
    """Write a line of a result."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Write a line that is not a result."""
    sys.stderr.write(f"{text}\n")


class JobProgress:
    """A bar for each job under way, from the board that all jobs write to."""

    def __init__(self, progress: "Progress", jobs: "list[Job]", horizon_s: float) -> None:
        self._progress = progress
        self._horizon_s = horizon_s
        self._names = [f"{job.policy} #{job.replication}" for job in jobs]
        self._bars: dict[int, TaskID] = {}
        self._board: Board | None = None
        self._all = progress.add_task("runs", total=len(jobs), detail="")

    def watch(self, board: "Board") -> None:
        """Take the board of the jobs."""
        self._board = board

    def update(self) -> None:
        """Bring the bars up to date."""
        if self._board is None:
            return
        for index, (time_s, requests) in enumerate(self._board.read()):
            if requests == 0 or (index in self._bars and self._progress.tasks[self._bars[index]].finished):
                continue
            if index not in self._bars:
                self._bars[index] = self._progress.add_task(self._names[index], total=self._horizon_s, detail="")
            detail = f"{time_s:,.0f} s, {requests:,} requests"
            self._progress.update(self._bars[index], completed=min(time_s, self._horizon_s), detail=detail)

    def ended(self, index: int) -> None:
        """Count a job that is over and take its bar away."""
        self._progress.advance(self._all)
        bar = self._bars.get(index)
        if bar is not None:
            self._progress.update(bar, completed=self._horizon_s, visible=False)


@contextmanager
def job_progress(jobs: "list[Job]", horizon_s: float) -> Iterator[JobProgress | None]:
    """Show progress on a terminal; None when stderr is a pipe or a file."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bars = JobProgress(progress, jobs, horizon_s)
        with _ticking(bars.update):
            yield bars


@contextmanager
def _ticking(action: Callable[[], None], period_s: float = 0.2) -> Iterator[None]:
    """Call ``action`` now and then from a thread."""
    import threading

    over = threading.Event()

    def loop() -> None:
        while not over.wait(period_s):
            action()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
