"""Rows of a run to its tables: on disk (`Recorder`) or in memory (`MemoryRecorder`). Nothing is computed here."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from balancesim import manifest, provenance
from balancesim.columns import TABLES, EpochRow, GpuRow, RequestRow, Row
from balancesim.manifest import RunInfo, RunSummary
from balancesim.table_writer import TableWriter, writing
from balancesim.tables import arrow_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

log = logging.getLogger(__name__)


class RowSink(Protocol):
    """Where the simulation puts its rows."""

    def request(self, row: RequestRow) -> None:
        """Take the row of a request whose outcome is known."""
        ...

    def epoch(self, row: EpochRow) -> None:
        """Take the row of a decision."""
        ...

    def gpu(self, row: GpuRow) -> None:
        """Take the row of a GPU span that is over."""
        ...


class Recorder:
    """Writes one run of a scenario to ``out_dir/name`` (layout and rules in `balancesim.manifest`).

    Use it in a ``with`` statement: leaving it without `close` aborts. Raises `manifest.ResultsError` where finished
    runs of another world are in the folder, and `table_writer.WriteError` (an OSError) where the disk refuses.
    """

    def __init__(self, out_dir: Path, name: str, info: RunInfo) -> None:
        self._folder = Path(out_dir) / name
        self._info = info
        self._writers = {
            table: TableWriter(table, manifest.table_path(self._folder, table, info.policy, info.replication))
            for table in TABLES
        }
        #: take the row of a request, a decision or a GPU span (`RowSink`); nothing stands between it and its table
        self.request: Callable[[RequestRow], None] = self._writers["requests"].append
        self.epoch: Callable[[EpochRow], None] = self._writers["epochs"].append
        self.gpu: Callable[[GpuRow], None] = self._writers["gpu"].append
        self._over = False

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over:
            self.abort(kind.__name__ if kind else "not closed")

    def check(self) -> None:
        """Raise `ResultsError` where the folder holds finished runs of another scenario, seed or policy options."""
        stale = manifest.stale_runs(self._folder, self._info)
        if stale:
            raise manifest.ResultsError(
                f"{self._folder} holds {len(stale)} finished run(s) of another scenario content, seed or policy "
                f"options (first: policy {stale[0].policy}, replication {stale[0].replication}); remove them or "
                f"use another folder"
            )

    def close(self, summary: RunSummary) -> Path:
        """Put the tables in their place, the manifest last, and return the manifest's path."""
        path = manifest.manifest_path(self._folder, self._info.policy, self._info.replication)
        try:
            self.check()
            tables = {table: writer.finish() for table, writer in self._writers.items()}
            document = self._document(manifest.COMPLETE) | {"tables": tables} | vars(summary)
            finished = path.with_name(f".{path.name}.finished")
            with writing(path):
                manifest.write_json(finished, document)  # a full disk shows here, before anything is replaced
                path.unlink(missing_ok=True)
            for writer in self._writers.values():
                writer.install()
            with writing(path):
                finished.replace(path)
        except BaseException as error:
            self.abort(type(error).__name__)
            raise
        self._over = True
        return path

    def abort(self, reason: str = "interrupted") -> None:
        """Drop the rows and leave a manifest with status ``partial``, unless a finished run is in the place."""
        self._over = True
        for writer in self._writers.values():
            writer.discard()
        path = manifest.manifest_path(self._folder, self._info.policy, self._info.replication)
        if path.is_file() and manifest.is_complete(path):
            log.info("%s was cut (%s); the finished run already there stays", path.parent, reason)
            return
        try:
            path.with_name(f".{path.name}.finished").unlink(missing_ok=True)
            manifest.remove_tables(self._folder, self._info.policy, self._info.replication)
            manifest.write_json(path, self._document(manifest.PARTIAL) | {"reason": reason, "tables": {}})
        except OSError as error:  # a full disk: without a manifest the run is not finished either
            log.warning("cannot write %s: %s", path, error)

    def _document(self, status: str) -> dict[str, object]:
        info = self._info
        return {
            "schema_version": manifest.SCHEMA_VERSION,
            "status": status,
            "policy": info.policy,
            "policy_options": info.policy_options,
            "policy_source_sha256": info.policy_source_sha256,
            "policy_sha256": info.policy_sha256,
            "replication": info.replication,
            "seed": info.seed,
            "scenario": info.scenario,
            "world_sha256": info.world_sha256,
            "versions": provenance.versions(),
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            **provenance.commit(Path(__file__).parent),
        }


class MemoryRecorder:
    """Keeps the rows of one run in memory: for tests and for use as a library."""

    def __init__(self) -> None:
        self.requests: list[RequestRow] = []
        self.epochs: list[EpochRow] = []
        self.gpu_spans: list[GpuRow] = []
        self.summary: RunSummary | None = None
        self.request = self.requests.append
        self.epoch = self.epochs.append
        self.gpu = self.gpu_spans.append

    def close(self, summary: RunSummary) -> None:
        """Keep the summary."""
        self.summary = summary

    def abort(self, reason: str = "interrupted") -> None:  # noqa: ARG002  # the interface of `Recorder`
        """Drop the rows."""
        self.requests.clear()
        self.epochs.clear()
        self.gpu_spans.clear()

    def table(self, table: str) -> "pa.Table":
        """Return a table of Arrow: ``requests``, ``epochs`` or ``gpu``."""
        rows: Mapping[str, Sequence[Row]] = {
            "requests": self.requests,
            "epochs": self.epochs,
            "gpu": self.gpu_spans,
        }
        return arrow_table(table, rows[table])

    def frame(self, table: str) -> "pd.DataFrame":
        """Return a table of pandas, typed as `pandas.read_parquet` returns it."""
        frame: pd.DataFrame = self.table(table).to_pandas()
        return frame
