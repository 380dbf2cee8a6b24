"""Jobs run in any number of processes; one that fails, dies or is interrupted takes no other with it."""

import io
import signal
from pathlib import Path

import pytest

from balancesim import runner
from balancesim.cli.output import JobProgress, job_progress
from balancesim.runner import Board, GridOptions, Job, JobOutcome, jobs_of, missing_jobs, one_line, run_jobs
from balancesim.scenario import load
from tests.scenario_files import write

POLICIES = """
import os
from balancesim.policies import AdOnly

class Dies(AdOnly):
    name = "dies"
    def decide(self, problem):
        if problem.epoch > 0:
            os._exit(1)
        return AdOnly().decide(problem)
"""


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    """The tiny scenario under one policy, in a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    return load(write(tmp_path), ["requests.arrivals.rate_hz=50"], ["fcfs"])


def test_jobs_are_policies_by_replication(tmp_path) -> None:
    """All policies of a replication first, so that an interrupted comparison is still paired."""
    jobs = jobs_of(load(write(tmp_path)))
    expected = [Job(policy, r) for r in (0, 1) for policy in ("balance", "ad_only", "sd_only")]
    assert jobs == expected
    assert missing_jobs(load(write(tmp_path)), [("balance", 0), ("sd_only", 1)]) == [
        job for job in expected if job not in (Job("balance", 0), Job("sd_only", 1))
    ]


def test_the_board_shows_how_far_each_job_is(tmp_path, scenario) -> None:
    """Simulated seconds and requests; several processes may hold the same board."""
    boards: list[Board] = []
    outcomes = list(run_jobs(scenario, jobs_of(scenario), GridOptions(tmp_path / "out"), boards.append))
    assert [sum(outcome.outcomes.values()) for outcome in outcomes] == [_requests(tmp_path, r) for r in (0, 1)]
    assert all(0 < time_s <= 10 and requests == 400 for time_s, requests in boards[0].read())


def _requests(folder: Path, replication: int) -> int:
    import pandas as pd

    return len(pd.read_parquet(folder / f"out/tiny/requests/policy=fcfs/replication={replication}/part-0.parquet"))


def test_no_jobs_need_no_board(scenario, tmp_path) -> None:
    """Nothing to do is done at once."""
    assert list(run_jobs(scenario, [], GridOptions(tmp_path))) == []


def test_a_stopped_board_skips_jobs_and_cuts_running_ones(tmp_path, scenario) -> None:
    """Whoever reports progress after the stop is interrupted; jobs after it do not begin."""
    outcomes = list(run_jobs(scenario, jobs_of(scenario), GridOptions(tmp_path / "out"), Board.stop))
    assert all(outcome.interrupted for outcome in outcomes)
    board = Board(tmp_path / "board", 1, create=True)
    board.write(0, 1.0, 2)
    assert Board(tmp_path / "board", 1).read() == [(1.0, 2)]
    board.stop()
    with pytest.raises(KeyboardInterrupt):
        board.write(0, 2.0, 3)


def test_a_worker_does_its_job_from_plain_data(tmp_path, scenario) -> None:
    """What another process gets is enough to run the job, here in this one."""
    Board(tmp_path / "board", 1, create=True)
    common = dict(scenario.document), "tiny", tmp_path
    order = runner._Order(*common, Job("fcfs", 0), (tmp_path / "board", 1, 0), tmp_path / "out", tmp_path)
    outcome = runner._run_order(order)
    assert sum(outcome.outcomes.values()) == _requests(tmp_path, 0)
    Board(tmp_path / "board", 1).stop()
    assert runner._run_order(order) == JobOutcome(Job("fcfs", 0))


def test_a_worker_that_is_interrupted_while_it_loads_says_so(tmp_path, scenario, monkeypatch) -> None:
    """Ctrl-C reaches all processes of a terminal, whatever they are doing."""

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    Board(tmp_path / "board", 1, create=True)
    monkeypatch.setattr(runner, "_scenario_of", interrupted)
    order = runner._Order({}, "tiny", tmp_path, Job("fcfs", 0), (tmp_path / "board", 1, 0), tmp_path, tmp_path)
    assert runner._run_order(order).interrupted


def test_the_first_interrupt_asks_to_stop_and_the_second_interrupts(tmp_path) -> None:
    """SIGINT while workers run; afterwards the handler is the one from before."""
    board = Board(tmp_path / "board", 1, create=True)
    before = signal.getsignal(signal.SIGINT)
    with runner._stopping(board):
        signal.raise_signal(signal.SIGINT)
        assert board.stopped
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_worker_that_dies_is_an_error_of_its_jobs_alone(tmp_path, monkeypatch) -> None:
    """A crash is reported for every job that did not finish, in one line."""
    (tmp_path / "mine.py").write_text(POLICIES)
    monkeypatch.chdir(tmp_path)
    dying = load(write(tmp_path), ["requests.arrivals.rate_hz=50"], ["mine.py:Dies"])
    outcomes = list(run_jobs(dying, jobs_of(dying), GridOptions(tmp_path / "out", workers=2)))
    assert [outcome.job for outcome in outcomes] == jobs_of(dying)
    assert all(outcome.error.startswith("a worker process died") for outcome in outcomes)
    assert all("\n" not in outcome.error for outcome in outcomes)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("two\nlines"), "two lines"),
        (OSError("disk full"), "disk full"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(), "ValueError: "),
    ],
)
def test_errors_become_one_line(error, expected) -> None:
    """Messages for users stand alone, others with their type."""
    assert one_line(error) == expected


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_progress_shows_runs_time_and_requests_on_a_terminal(tmp_path, monkeypatch) -> None:
    """One bar for all runs and one for each under way, which goes when the run is over."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    board = Board(tmp_path / "board", 2, create=True)
    with job_progress([Job("fcfs", 0), Job("fcfs", 1)], 10.0) as bars:
        assert isinstance(bars, JobProgress)
        bars.update()
        bars.watch(board)
        board.write(1, 5.0, 1234)
        bars.update()
        bars._progress.refresh()
        bars.ended(1)
        bars.ended(0)
        board.write(1, 6.0, 2000)
        bars.update()
        assert bars._progress.tasks[0].completed == 2
    text = terminal.getvalue()
    assert "fcfs #1" in text
    assert "5 s, 1,234 requests" in text
    assert "2,000" not in text


def test_progress_is_quiet_when_piped(monkeypatch) -> None:
    """A log file gets no bars."""
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with job_progress([Job("fcfs", 0)], 10.0) as bars:
        assert bars is None
