"""Recorders, manifests and the declared columns."""

import json
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from balancesim import provenance
from balancesim.columns import TABLES, Kind, markdown_table, table_columns
from balancesim.core.request import Mode, Outcome, RejectReason
from balancesim.manifest import (
    ResultsError,
    RunInfo,
    manifest_path,
    plain,
    read_manifest,
    remove_runs,
    stale_runs,
    table_path,
    write_text,
)
from balancesim.recorder import MemoryRecorder, Recorder
from balancesim.table_writer import ROWS_PER_GROUP, WriteError
from balancesim.tables import arrow_table
from tests.result_folders import NEVER_IN, SCENARIO, epoch_row, gpu_row, request_row, run_info, summary

ROOT = Path(__file__).parents[1]


def record(folder: Path, info: RunInfo, requests: int = 3) -> Path:
    """Write a small run and return its manifest's path."""
    with Recorder(folder.parent, folder.name, info) as recorder:
        for i in range(requests):
            recorder.request(request_row(i, float(i), Outcome.COMPLETED))
        recorder.epoch(epoch_row(0.0))
        recorder.gpu(gpu_row(0.0, 1.0, decode_s=0.5))
        return recorder.close(summary(requests))


def files(folder: Path) -> list[str]:
    """Return every file under a folder, temporary ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("table", TABLES)
def test_document_has_the_declared_columns(table):
    """docs/results.md shows each table exactly as its columns are declared."""
    assert markdown_table(table) in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", TABLES)
def test_names_carry_their_units(table):
    """A column in seconds, bytes or bits ends with _s, _bytes or _bits, and no other column does."""
    suffixes = {"s": "_s", "byte": "_bytes", "bit": "_bits"}
    for column in table_columns(table):
        ends = [unit for unit, suffix in suffixes.items() if column.name.endswith(suffix)]
        assert ([column.unit] if column.unit in suffixes else []) == ends, column.name
        assert column.meaning
        assert " " not in column.name


def test_folder_reads_as_one_table(tmp_path):
    """pandas reads all runs of a folder as one table with policy and replication as columns."""
    record(tmp_path / "x", run_info("ad_only", 0))
    record(tmp_path / "x", run_info("mine.py:Mine", 1), requests=2)
    frame = pd.read_parquet(tmp_path / "x" / "requests")
    counts = frame.groupby(["policy", "replication"], observed=True).size().to_dict()
    assert counts == {("ad_only", 0): 3, ("mine.py:Mine", 1): 2}
    assert set(frame.columns) == {*(column.name for column in table_columns("requests")), "policy", "replication"}


@pytest.mark.parametrize("all_null", [False, True])
def test_types_do_not_depend_on_the_values(tmp_path, all_null):
    """pandas gives each kind of column one type, whether or not a null is among its values."""
    changes = NEVER_IN if all_null else {}
    with Recorder(tmp_path, "x", run_info()) as recorder:
        recorder.request(request_row(0, 0.0, Outcome.EXPIRED, **changes))
        recorder.close(summary(1))
    types = {name: str(kind) for name, kind in pd.read_parquet(tmp_path / "x" / "requests").dtypes.items()}
    expected = {Kind.INT64: "int64", Kind.INT32: "int32", Kind.FLOAT64: "float64", Kind.BOOL: "bool"}
    for column in table_columns("requests"):
        nullable_count = column.nullable and column.kind is Kind.INT32
        assert ("Int32" if nullable_count else expected.get(column.kind, "category")) == types[column.name], column


def test_values_come_back(tmp_path):
    """Every value of a row is read back as it was written, nulls and infinities included."""
    row = request_row(3, 0.1, Outcome.REJECTED, reject_reason=RejectReason.MEMORY, deadline_s=math.inf, lane_id=None)
    epoch = epoch_row(0.5, gpu_share_ad=None)
    empty = epoch_row(1.0, lane_id=(), lane_mode=(), lane_gpu_share=(), lane_memory_share=(), lane_admitted=())
    span = gpu_row(0.25, 0.75, mode=Mode.SD, verify_s=0.125)
    with Recorder(tmp_path, "x", run_info()) as recorder:
        recorder.request(row)
        recorder.epoch(epoch)
        recorder.epoch(empty)
        recorder.gpu(span)
        recorder.close(summary(1))
    stored = {
        table: pq.read_table(table_path(tmp_path / "x", table, "ad_only", 0), partitioning=None) for table in TABLES
    }
    assert stored["requests"].to_pylist() == [row._asdict()]
    assert [
        {k: tuple(v) if isinstance(v, list) else v for k, v in r.items()} for r in stored["epochs"].to_pylist()
    ] == [
        epoch._asdict(),
        empty._asdict(),
    ]
    assert stored["gpu"].to_pylist() == [span._asdict()]


def test_open_categories_are_kept():
    """Tasks named by a trace are categories in order of appearance."""
    rows = [request_row(i, 0.0, Outcome.LATE, task=task) for i, task in enumerate(["chat", "", "code", "chat"])]
    column = arrow_table("requests", rows).column("task").combine_chunks()
    assert column.to_pylist() == ["chat", "", "code", "chat"]
    assert column.dictionary.to_pylist() == ["chat", "", "code"]


@pytest.mark.parametrize(("field", "value"), [("arrival_s", None), ("arrival_s", math.nan), ("deadline_s", math.nan)])
def test_null_where_none_may_be_is_an_error(field, value):
    """A missing or undefined number in a column that is never null names the column and the row."""
    rows = [request_row(0, 0.0, Outcome.LATE), request_row(1, 0.0, Outcome.LATE)._replace(**{field: value})]
    with pytest.raises(ValueError, match=f"column {field} must never be null, got none or NaN in row 1"):
        arrow_table("requests", rows)


@pytest.mark.parametrize(("field", "error"), [("outcome", KeyError), ("tokens_out", TypeError)])
def test_missing_category_or_count_is_an_error(field, error):
    """A missing category or count in a column that is never null is an error."""
    with pytest.raises(error):
        arrow_table("requests", [request_row(0, 0.0, Outcome.LATE)._replace(**{field: None})])


def test_rows_are_written_in_groups(tmp_path):
    """Rows leave memory in groups of fixed size, and all of them arrive in order."""
    count = ROWS_PER_GROUP + 5
    with Recorder(tmp_path, "x", run_info()) as recorder:
        for i in range(count):
            recorder.gpu(gpu_row(float(i), i + 1.0))
        recorder.close(summary(0))
    stored = pq.ParquetFile(table_path(tmp_path / "x", "gpu", "ad_only", 0))
    assert [stored.metadata.row_group(i).num_rows for i in range(stored.num_row_groups)] == [ROWS_PER_GROUP, 5]
    assert stored.read(["start_s"]).column("start_s").to_pylist() == [float(i) for i in range(count)]


def test_manifest_tells_what_was_run(tmp_path):
    """run.json holds scenario, policy, seed, versions, summary, and rows and checksums of the tables."""
    path = record(tmp_path / "x", run_info("balance", 2, policy_options={"share_step": 0.1, "limit": math.inf}))
    manifest = read_manifest(path)
    assert manifest["status"] == "complete"
    assert (manifest["policy"], manifest["replication"], manifest["seed"]) == ("balance", 2, 7)
    assert manifest["policy_options"] == {"share_step": 0.1, "limit": "inf"}
    assert manifest["scenario"] == SCENARIO
    assert (manifest["offered"], manifest["servers"], manifest["events"]) == (3, 2, 1000)
    assert {table: said["rows"] for table, said in manifest["tables"].items()} == {"requests": 3, "epochs": 1, "gpu": 1}
    for table, said in manifest["tables"].items():
        stored = table_path(tmp_path / "x", table, "balance", 2)
        sums = subprocess.run(["sha256sum", stored], capture_output=True, text=True, check=True)
        assert sums.stdout.split()[0] == said["sha256"]
    assert manifest["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))


WRITE_ONE = """
import sys
from pathlib import Path
from tests.test_recorder import record
from tests.result_folders import run_info
record(Path(sys.argv[1]) / "x", run_info(), requests=500)
"""


def test_tables_are_the_same_bytes_in_two_processes(tmp_path):
    """Two processes with different hash seeds write the same bytes."""
    contents = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", WRITE_ONE, str(out)], check=True, cwd=ROOT, env=environment)
        contents.append({table: table_path(out / "x", table, "ad_only", 0).read_bytes() for table in TABLES})
    assert contents[0] == contents[1]


KILLED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background may have it ignored
from pathlib import Path
from balancesim import table_writer
from balancesim.core.request import Outcome
from balancesim.recorder import Recorder
from tests.result_folders import request_row, run_info
table_writer.ROWS_PER_GROUP = 10
with Recorder(Path(sys.argv[1]), "x", run_info()) as recorder:
    for i in range(25):
        recorder.request(request_row(i, 0.0, Outcome.LATE))
    print("running", flush=True)
    time.sleep(60)
"""


def cut(folder: Path, by: signal.Signals) -> None:
    """Start a run in another process and end it by a signal when two row groups are on disk."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    process.send_signal(by)
    process.wait(timeout=30)
    process.stdout.close()


def test_killed_run_leaves_nothing_that_looks_whole(tmp_path):
    """A run that is killed leaves neither a table nor a manifest, and the next run clears its temporary file."""
    cut(tmp_path, signal.SIGKILL)
    left = files(tmp_path / "x")
    assert len(left) == 1
    assert Path(left[0]).name.startswith(".part-0.parquet.")
    record(tmp_path / "x", run_info())
    tables = [f"{table}/policy=ad_only/replication=0/part-0.parquet" for table in ("epochs", "gpu", "requests")]
    assert files(tmp_path / "x") == sorted([*tables, "manifests/policy=ad_only/replication=0/run.json"])


def test_interrupted_run_is_marked_partial(tmp_path):
    """Ctrl-C keeps finished runs and leaves of the cut one only a manifest that says so."""
    record(tmp_path / "x", run_info("sd_only"))
    cut(tmp_path, signal.SIGINT)
    manifest = read_manifest(manifest_path(tmp_path / "x", "ad_only", 0))
    assert (manifest["status"], manifest["reason"]) == ("partial", "KeyboardInterrupt")
    assert [name for name in files(tmp_path / "x") if "ad_only" in name] == [
        "manifests/policy=ad_only/replication=0/run.json"
    ]
    assert len(pd.read_parquet(tmp_path / "x" / "requests")) == 3


def test_cut_rerun_keeps_the_finished_run(tmp_path, caplog):
    """A rerun that is cut leaves the finished run of the same content as it was."""
    caplog.set_level(logging.INFO)
    path = record(tmp_path / "x", run_info())
    before = path.read_bytes()
    with Recorder(tmp_path, "x", run_info()) as recorder:
        recorder.request(request_row(0, 0.0, Outcome.LATE))
    assert path.read_bytes() == before
    assert len(pd.read_parquet(tmp_path / "x" / "requests")) == 3
    assert "finished run already there stays" in caplog.text


def test_rerun_replaces(tmp_path):
    """A finished rerun takes the place of the run before it, and of a partial one."""
    with Recorder(tmp_path, "x", run_info()) as recorder:
        recorder.request(request_row(0, 0.0, Outcome.LATE))
    assert read_manifest(manifest_path(tmp_path / "x", "ad_only", 0))["reason"] == "not closed"
    record(tmp_path / "x", run_info(), requests=3)
    record(tmp_path / "x", run_info(), requests=5)
    assert len(pd.read_parquet(tmp_path / "x" / "requests")) == 5
    assert len(files(tmp_path / "x")) == 4


def other(section: str, **changes: object) -> dict[str, object]:
    """Return the test scenario with changes in one section."""
    return SCENARIO | {section: dict(SCENARIO[section]) | changes}  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "info",
    [
        run_info("sd_only", seed=8),
        run_info("sd_only", scenario=other("run", horizon_s=50.0)),
        run_info("sd_only", scenario=other("requests", ttft_target_s=1.0)),
        run_info("ad_only", 1, policy_options={"order": "arrival"}),
        run_info("ad_only", 1, policy_source_sha256="0" * 64),
    ],
)
def test_other_content_is_refused(tmp_path, info):
    """A run of another seed, scenario or policy options is not written beside finished ones until they are removed."""
    record(tmp_path / "x", run_info("ad_only", 0))
    with pytest.raises(ResultsError, match=r"1 finished run.*policy ad_only, replication 0"):
        record(tmp_path / "x", info)
    assert len(pd.read_parquet(tmp_path / "x" / "requests")) == 3
    remove_runs(tmp_path / "x", stale_runs(tmp_path / "x", info))
    record(tmp_path / "x", info)
    assert pd.read_parquet(tmp_path / "x" / "requests")["policy"].unique().tolist() == [info.policy]


@pytest.mark.parametrize(
    "info",
    [
        run_info("sd_only", policy_options={"order": "arrival"}),
        run_info("sd_only", scenario=other("run", policies=["sd_only"], replications=9)),
        run_info("sd_only", scenario=SCENARIO | {"description": "reworded"}),
        run_info("sd_only", scenario=SCENARIO | {"policy": {"balance": {"share_step": 0.2}}}),
    ],
)
def test_same_world_is_welcome(tmp_path, info):
    """Further policies and replications, or another description, may be added to a folder."""
    record(tmp_path / "x", run_info("ad_only", 0))
    record(tmp_path / "x", info)
    assert len(pd.read_parquet(tmp_path / "x" / "requests")) == 6


def test_partial_and_broken_manifests_are_not_stale(tmp_path):
    """Only finished runs stand in the way of others."""
    with Recorder(tmp_path, "x", run_info("sd_only", seed=8)):
        pass
    broken = manifest_path(tmp_path / "x", "other", 0)
    broken.parent.mkdir(parents=True)
    broken.write_text("{", encoding="utf-8")
    assert stale_runs(tmp_path / "x", run_info()) == ()


def test_manifest_of_another_version_or_none_is_an_error(tmp_path):
    """A file that is no manifest, or one of another schema version, says what to do."""
    path = tmp_path / "run.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ResultsError, match=r"is not a manifest .*run the scenario again"):
        read_manifest(path)
    path.write_text('{"schema_version": 0}', encoding="utf-8")
    with pytest.raises(ResultsError, match="schema_version must be 1, got 0"):
        read_manifest(path)


FULL = """
import resource, sys
from pathlib import Path
from tests.test_recorder import record
from tests.result_folders import run_info
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    record(Path(sys.argv[1]) / "x", run_info(), requests=5000)
except OSError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("limit_bytes", [1000, 20_000])
def test_full_disk_is_one_line_and_leaves_nothing_whole(tmp_path, limit_bytes):
    """When the disk takes no more, one line names the file and the reason, and no table is left."""
    command = [sys.executable, "-B", "-c", FULL, str(tmp_path), str(limit_bytes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said = done.stdout.strip()
    assert said.startswith("WriteError cannot write ")
    assert said.endswith("part-0.parquet: File too large")
    assert "\n" not in said
    assert not [name for name in files(tmp_path) if "parquet" in name]


def test_folder_that_cannot_be_made_is_one_line(tmp_path):
    """A file where the results folder should be gives one line."""
    (tmp_path / "x").write_text("in the way", encoding="utf-8")
    with pytest.raises(WriteError, match=r"cannot write .*: (Not a directory|File exists)"):
        record(tmp_path / "x", run_info())


def test_failed_write_leaves_no_temporary_file(tmp_path):
    """A text that cannot be written leaves the old file and no temporary one."""
    (tmp_path / "a.json").write_text("old", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.json", "\udcff")
    assert files(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "old"


def test_manifest_takes_plain_values_only():
    """Enums, tuples and infinities become JSON; an object is refused."""
    assert plain({"mode": Mode.AD, "shares": (0.5, math.inf), 3: None}) == {
        "mode": "AD",
        "shares": [0.5, "inf"],
        "3": None,
    }
    with pytest.raises(TypeError, match="strings, numbers, lists and tables only"):
        plain({"scenario": object()})


def test_memory_recorder_gives_the_stored_tables(tmp_path):
    """The recorder in memory returns the tables that the one on disk stores, with the same types."""
    memory = MemoryRecorder()
    with Recorder(tmp_path, "x", run_info()) as disk:
        for recorder in (memory, disk):
            recorder.request(request_row(0, 0.0, Outcome.COMPLETED, lane_id=None))
            recorder.epoch(epoch_row(0.0))
            recorder.gpu(gpu_row(0.0, 1.0))
            recorder.close(summary(1))
    for table in TABLES:
        path = table_path(tmp_path / "x", table, "ad_only", 0)
        assert memory.table(table).equals(pq.read_table(path, partitioning=None))
        pd.testing.assert_frame_equal(memory.frame(table), pd.read_parquet(path, partitioning=None))
    assert memory.summary == summary(1)
    memory.abort()
    assert len(memory.frame("requests")) == 0


def test_recording_needs_no_pandas(tmp_path):
    """Recording a run imports neither pandas nor scipy, which would slow down every start."""
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from balancesim.core.request import Outcome
        from balancesim.recorder import Recorder
        from tests.result_folders import epoch_row, gpu_row, request_row, run_info, summary
        with Recorder(Path(sys.argv[1]), "x", run_info()) as recorder:
            recorder.request(request_row(0, 0.0, Outcome.LATE, lane_id=None))
            recorder.epoch(epoch_row(0.0))
            recorder.gpu(gpu_row(0.0, 1.0))
            recorder.close(summary(1))
        print([name for name in ("pandas", "scipy") if name in sys.modules])
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_commit_is_that_of_the_package(tmp_path):
    """The commit is told where the package is tracked, dirty when it differs, and unknown elsewhere."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    assert provenance.commit.__wrapped__(package) == {"git_commit": None, "git_dirty": None}
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "others")
    assert provenance.commit.__wrapped__(package) == {"git_commit": None, "git_dirty": None}
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-q", "-m", "package")
    head = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "results").write_text("untracked, outside the package", encoding="utf-8")
    assert provenance.commit.__wrapped__(package) == {"git_commit": head, "git_dirty": False}
    (package / "new.py").write_text("", encoding="utf-8")
    assert provenance.commit.__wrapped__(package) == {"git_commit": head, "git_dirty": True}


def test_provenance_without_git(tmp_path, monkeypatch):
    """Without git, or without a package, the manifest says that it does not know."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.commit.__wrapped__(tmp_path) == {"git_commit": None, "git_dirty": None}
    monkeypatch.setattr(provenance, "_PACKAGES", ("numpy", "no-such-package"))
    found = provenance.versions.__wrapped__()
    assert found["no-such-package"] is None
    assert found["numpy"]


def test_manifest_is_json(tmp_path):
    """run.json is plain JSON that any program reads."""
    path = record(tmp_path / "x", run_info(scenario=SCENARIO | {"run": SCENARIO["run"] | {"drain_s": math.inf}}))
    assert (
        json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)["scenario"]["run"]["drain_s"] == "inf"
    )
