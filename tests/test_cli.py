"""The command line: exit statuses, one line for an error, and nothing that looks whole when it is not."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from balancesim.cli import run
from balancesim.manifest import is_complete, manifest_path
from balancesim.scenario.families import FAMILIES
from tests.scenario_files import write

#: Policies that fail, or press Ctrl-C, at their third decision; and one that takes its time.
POLICIES = """
import os
import time
from pathlib import Path
from balancesim.policies import AdOnly

class Fails(AdOnly):
    name = "fails"
    def decide(self, problem):
        if problem.epoch == 2:
            raise RuntimeError("at the third\\ndecision")
        return AdOnly().decide(problem)

class Interrupts(AdOnly):
    name = "interrupts"
    def decide(self, problem):
        if problem.epoch == 2:
            raise KeyboardInterrupt
        return AdOnly().decide(problem)

class Slow(AdOnly):
    name = "slow"
    def decide(self, problem):
        if problem.epoch > 0:
            Path(f"started-{os.getpid()}").touch()
            time.sleep(0.05)
        return AdOnly().decide(problem)
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A working directory with the tiny scenario and some policies."""
    (tmp_path / "scenarios").mkdir()
    write(tmp_path / "scenarios")
    (tmp_path / "mine.py").write_text(POLICIES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Path:
    """A working directory in which the tiny scenario was run once, by one process."""
    folder = tmp_path_factory.mktemp("ran")
    write(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert run(["run", "tiny.toml"]) == 0
    finally:
        os.chdir(before)
    return folder


def tables(folder: Path) -> dict[str, bytes]:
    """Return every table of a result folder by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def complete(folder: Path, policy: str, replication: int) -> bool:
    """Return whether a run is there and whole."""
    path = manifest_path(folder, policy, replication)
    return path.is_file() and is_complete(path)


def test_help_needs_no_heavy_import() -> None:
    """Start-up counts: what a command needs is imported when it runs."""
    heavy = "{'numpy', 'pydantic', 'rich', 'networkx', 'pandas'}"
    code = f"import sys, balancesim.cli; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["compare", "--help"], ["check", "--help"]])
def test_help_is_shown(arguments, capsys) -> None:
    """Every command explains itself with status 0."""
    assert run(arguments) == 0
    assert "Usage: balancesim" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rn"], "No such command 'rn'"),
        (["run"], "Missing argument"),
        (["run", "tiny", "--seed", "x"], "Invalid value for '--seed'"),
        (["run", "tiny", "--seed", "-1"], "Invalid value for '--seed'"),
        (["run", "tiny", "--workers", "0"], "Invalid value for '--workers'"),
        (["run", "tini"], "balancesim: no scenario 'tini'; did you mean tiny?"),
        (["run", "none.toml"], "balancesim: none.toml: cannot be read: No such file or directory"),
        (["run", "tiny", "--policy", "blance"], "unknown policy 'blance'; did you mean balance?"),
        (["run", "tiny", "--set", "a.b"], "--set a.b: must be key.key=value"),
        (["compare", "results", "other"], "results: no such folder of results"),
        (["list", "polices"], "balancesim: unknown family 'polices'; did you mean policies?"),
        (["check", "tini"], "balancesim: no scenario 'tini'"),
    ],
)
def test_wrong_use_is_status_2_with_a_message_on_stderr(here, capsys, arguments, expected) -> None:
    """No traceback, nothing on stdout, no folder of results."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert "Traceback" not in err
    assert out == ""
    assert not (here / "results").exists()


def test_all_faults_of_a_scenario_come_at_once(here, capsys) -> None:
    """One line each, with the program's name, and status 2."""
    assert run(["run", "tiny", "--set", "run.horizon_s=x", "--set", "foo=1", "--set", "radio.fading=ray"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("balancesim: --set: ") for line in lines)


def test_debug_shows_the_traceback(here) -> None:
    """--debug may stand anywhere."""
    with pytest.raises(ValueError, match="no scenario 'tini'"):
        run(["run", "tini", "--debug"])


def test_run_writes_every_policy_and_replication(here, capsys) -> None:
    """Two replications of a policy give 2 runs of 3 tables; each line of stdout counts its requests."""
    assert run(["run", "tiny", "--policy", "fcfs"]) == 0
    out, err = capsys.readouterr()
    assert len(tables(here / "results" / "tiny")) == 6
    assert all(complete(here / "results" / "tiny", "fcfs", r) for r in (0, 1))
    assert [line.split(":")[0] for line in out.splitlines()[:2]] == ["fcfs replication 0", "fcfs replication 1"]
    assert "tables in results/tiny" in out
    assert err == ""


def test_options_override_the_file(here) -> None:
    """--policy, --seed, --replications, --set and --out, kept in run.json."""
    arguments = ["run", "tiny", "--policy", "fcfs", "--seed", "3", "--replications", "1"]
    assert run([*arguments, "--set", "run.horizon_s=5", "--out", "elsewhere"]) == 0
    manifest = json.loads(manifest_path(here / "elsewhere" / "tiny", "fcfs", 0).read_text())
    assert manifest["seed"] == 3
    assert manifest["scenario"]["run"] | {"drain_s": 0} == {
        "horizon_s": 5, "warmup_s": 1, "drain_s": 0, "replications": 1, "seed": 3, "policies": ["fcfs"]
    }  # fmt: skip
    assert len(tables(here / "elsewhere" / "tiny")) == 3


def test_results_do_not_depend_on_the_number_of_workers(ran, here) -> None:
    """Byte-identical tables from one process and from two."""
    assert run(["run", "tiny", "--workers", "2"]) == 0
    assert tables(here / "results" / "tiny") == tables(ran / "results" / "tiny")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_error_in_one_run_loses_no_other(here, capsys, workers) -> None:
    """A policy that raises is one line and status 2; its run is not whole; the other policy's runs are."""
    assert run(["run", "tiny", "--policy", "mine.py:Fails", "--policy", "ad_only", "--workers", workers]) == 2
    err = capsys.readouterr().err
    assert "balancesim: fails replication 0: RuntimeError: at the third decision\n" in err
    assert "2 of 4 runs failed; the others are complete" in err
    folder = here / "results" / "tiny"
    assert [complete(folder, "fails", 0), complete(folder, "ad_only", 0), complete(folder, "ad_only", 1)] == [
        False,
        True,
        True,
    ]


def test_ctrl_c_keeps_finished_runs_and_marks_the_cut_one(here, capsys) -> None:
    """Status 130; the run before is whole, the cut one partial, the ones after never began."""
    assert run(["run", "tiny", "--policy", "ad_only", "--policy", "mine.py:Interrupts"]) == 130
    assert "interrupted: 1 of 4 runs finished and kept" in capsys.readouterr().err
    folder = here / "results" / "tiny"
    assert complete(folder, "ad_only", 0)
    assert json.loads(manifest_path(folder, "interrupts", 0).read_text())["status"] == "partial"
    assert not manifest_path(folder, "ad_only", 1).exists()
    assert not [path for path in tables(folder) if "interrupts" in path]


def test_ctrl_c_stops_workers(here) -> None:
    """SIGINT to the command alone: workers stop at their next report, and the cut runs are partial."""
    slow = ["run", "tiny", "--policy", "mine.py:Slow", "--workers", "2", "--set", "requests.arrivals.rate_hz=400"]
    process = subprocess.Popen([sys.executable, "-m", "balancesim", *slow], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while time.monotonic() < until and len(list(here.glob("started-*"))) < 2:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: 0 of 2 runs finished" in err
    manifests = [manifest_path(here / "results" / "tiny", "slow", replication) for replication in (0, 1)]
    assert [json.loads(path.read_text())["status"] for path in manifests] == ["partial", "partial"]


def test_a_place_that_cannot_be_written_is_one_line(here, capsys) -> None:
    """--out names a file: status 2 and no traceback."""
    (here / "taken").write_text("")
    assert run(["run", "tiny", "--policy", "fcfs", "--out", "taken"]) == 2
    err = capsys.readouterr().err
    assert "taken" in err
    assert "Traceback" not in err


def test_a_reader_that_left_early_is_no_error_of_ours(monkeypatch, capsys) -> None:
    """A pipe that closes while output is flushed: quiet, and a status that is not 0."""

    class Closed(io.StringIO):
        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    assert run(["list"]) == 1
    assert capsys.readouterr().err == ""


def test_interruption_outside_a_run_is_status_130(here, monkeypatch) -> None:
    """Ctrl-C while a scenario is loaded or a comparison made."""

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("balancesim.scenario.load", interrupted)
    assert run(["check", "tiny"]) == 130


def test_an_error_of_the_file_system_names_the_file(monkeypatch, capsys) -> None:
    """ENOSPC and its like: the file, the reason, status 2."""

    def full(_family):
        raise OSError(28, "No space left on device", "results/tiny/part-0.parquet")

    monkeypatch.setattr("balancesim.cli.listing.list_family", full)
    assert run(["list"]) == 2
    assert capsys.readouterr().err == "balancesim: results/tiny/part-0.parquet: No space left on device\n"


def test_list_shows_policies_of_installed_packages(tmp_path, monkeypatch, capsys) -> None:
    """Entry points stand beside the package's own policies."""
    (tmp_path / "offering.py").write_text(
        "class Mine:\n    'Theirs.'\n    def decide(self, problem):\n        return None\n"
    )
    info = tmp_path / "offering-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[balancesim.policies]\ntheirs = offering:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["list", "policies"]) == 0
    assert "theirs" in {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_compare_runs_what_is_missing_and_prints_the_comparison(here, capsys) -> None:
    """A second call runs nothing again."""
    assert run(["run", "tiny", "--policy", "ad_only"]) == 0
    path = manifest_path(here / "results" / "tiny", "ad_only", 0)
    before = path.stat().st_mtime_ns
    capsys.readouterr()
    assert run(["compare", "tiny"]) == 0
    out, err = capsys.readouterr()
    assert "tiny: 4 of 6 runs to do" in err
    assert "Served in time" in out
    assert path.stat().st_mtime_ns == before
    assert run(["compare", "tiny"]) == 0
    assert capsys.readouterr() == (out, "")
    assert (here / "results" / "tiny" / "comparison.csv").is_file()


def test_compare_takes_folders_of_results(ran, monkeypatch, capsys) -> None:
    """One comparison a folder; a folder without runs is an error."""
    monkeypatch.chdir(ran)
    assert run(["compare", "results/tiny", "results/tiny"]) == 0
    assert capsys.readouterr().out.count("Served in time") == 2
    (ran / "empty").mkdir()
    assert run(["compare", "empty"]) == 2
    assert "no finished run" in capsys.readouterr().err


def test_runs_of_an_older_scenario_are_removed(here, capsys) -> None:
    """Another seed is another world, which must not be compared with this one."""
    assert run(["run", "tiny", "--policy", "ad_only"]) == 0
    capsys.readouterr()
    assert run(["run", "tiny", "--policy", "fcfs", "--seed", "2"]) == 0
    assert "2 runs of another content or seed of the scenario removed" in capsys.readouterr().err
    assert not complete(here / "results" / "tiny", "ad_only", 0)
    assert complete(here / "results" / "tiny", "fcfs", 0)


def test_check_shows_world_and_capacity(here, capsys) -> None:
    """Units, KV room by hand: 0.9·24 − 1 − 12.55 = 8.05 GiB, less 2.05 with the draft; 4 requests/s over 2 servers."""
    assert run(["check", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "2 cells of 250 m, 20 users, 2 servers, backhaul 1 ms" in out
    assert "KV room   8.05 GiB without a draft model" in out
    assert "KV room   6.00 GiB with it" in out
    assert "requests/s a server" in out
    assert "upload of the mean prompt (0.4 kB) median user" in out


def test_warnings_go_to_stderr(here, capsys) -> None:
    """A pair of models with different vocabularies is allowed."""
    assert run(["check", "tiny", "--set", "server.target=Llama-3.1-8B"]) == 0
    assert "different vocabularies" in capsys.readouterr().err


@pytest.mark.parametrize("family", [*FAMILIES, "models", "gpus", "scenarios"])
def test_list_shows_one_line_each(here, capsys, family) -> None:
    """Every family has members, each with its help."""
    assert run(["list", family]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all("  " in line for line in lines)


def test_list_without_a_family_names_the_families(capsys) -> None:
    """A first look at what there is."""
    assert run(["list"]) == 0
    assert {"policies", "channels", "gpus"} <= set(capsys.readouterr().out.split())


def test_list_shows_a_broken_scenario_as_such(here, capsys) -> None:
    """One broken file does not hide the others."""
    write(here / "scenarios", "a = ", "broken")
    assert run(["list", "scenarios"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "broken cannot be read: broken.toml: is not valid TOML" in out
    assert "tiny Two cells, a few requests" in out


def test_schema_is_json(capsys) -> None:
    """For editors."""
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "balancesim scenario"


def test_a_closed_pipe_is_no_error() -> None:
    """A reader such as `head -1` may leave early: no traceback."""
    command = f"{sys.executable} -m balancesim list models | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_a_defect_is_one_line_and_status_1(monkeypatch, capsys) -> None:
    """What is nobody's input is said to be ours."""
    monkeypatch.setattr("balancesim.cli.listing.list_family", lambda family: 1 / 0)
    assert run(["list"]) == 1
    assert "balancesim: defect: ZeroDivisionError: division by zero (--debug shows where)" in capsys.readouterr().err
