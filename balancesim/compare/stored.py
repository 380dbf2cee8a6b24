"""Finished runs of a result folder, checked when they are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balancesim.columns import TABLES
from balancesim.core.request import Outcome
from balancesim.manifest import COMPLETE, ResultsError, read_manifest, table_path

if TYPE_CHECKING:
    import pandas as pd

#: Rounding that sums of many GPU spans and reservations may show.
_TOLERANCE = 1e-9

_GPU_SECONDS = ("prefill_s", "decode_s", "draft_s", "verify_s", "switch_s")


@dataclass(frozen=True)
class Run:
    """One finished run."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return str(self.manifest["policy"])

    @property
    def replication(self) -> int:
        """Number of the replication."""
        return int(self.manifest["replication"])

    def path(self, table: str) -> Path:
        """Return the file of a table."""
        return table_path(self.folder, table, self.policy, self.replication)

    def read(self, table: str) -> "pd.DataFrame":
        """Return a table after checking its checksum and number of rows; raise `ResultsError` where they differ."""
        import pandas as pd

        path, said = self.path(table), self.manifest["tables"][table]
        try:
            with path.open("rb") as file:
                checksum = file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ResultsError(f"{path} is in the manifest but cannot be read ({error.strerror}); run again") from error
        if checksum != said["sha256"]:
            raise ResultsError(f"{path} differs from its manifest (sha256); run again")
        frame = pd.read_parquet(path, partitioning=None)
        if len(frame) != said["rows"]:
            raise ResultsError(f"{path} must have {said['rows']} rows as its manifest says, got {len(frame)}")
        return frame

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Return all tables, checked against the manifest and against what every run must meet."""
        frames = {table: self.read(table) for table in TABLES}
        for fault in self._faults(frames):
            raise ResultsError(f"{self.folder}, policy {self.policy}, replication {self.replication}: {fault}")
        return frames

    def _faults(self, frames: "Mapping[str, pd.DataFrame]") -> list[str]:
        requests, epochs, gpu = frames["requests"], frames["epochs"], frames["gpu"]
        faults: list[str] = []
        counted = int(requests["outcome"].isin([outcome.value for outcome in Outcome]).sum())
        offered = int(self.manifest["offered"])
        if not counted == offered == requests["request_id"].nunique():
            faults.append(f"the source made {offered} requests, but {counted} have an outcome")
        whole = requests[(requests["outcome"] == Outcome.COMPLETED) & ~requests["truncated"]]
        if (whole["tokens_out"] != whole["output_tokens"]).any():
            faults.append("a completed request lacks tokens")
        if (epochs["kv_peak_bytes"] > epochs["kv_capacity_bytes"] * (1 + _TOLERANCE)).any():
            faults.append("KV memory was above its capacity")
        spans = gpu.assign(spent_s=gpu[list(_GPU_SECONDS)].sum(axis=1)).groupby("server_id")
        for spent_s, end_s in zip(spans["spent_s"].sum(), spans["end_s"].max(), strict=True):
            if spent_s > min(end_s, float(self.manifest["end_s"])) * (1 + _TOLERANCE):
                faults.append(f"a GPU worked {spent_s:g} s by {end_s:g} s")
        return faults


def world_of(requests: "pd.DataFrame") -> str:
    """Return a digest of what the source made, to tell whether two policies met the same requests."""
    columns = ["request_id", "user_id", "arrival_s", "prompt_tokens", "output_tokens", "deadline_s", "acceptance_rate"]
    ordered = requests[columns].sort_values("request_id")
    return sha256(ordered.to_numpy(float).tobytes()).hexdigest()


def find_runs(folder: Path) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Return the finished runs of a folder and a note on each thing that was left out.

    Raises `ResultsError` where there is none, or where they belong to different scenarios or seeds.
    """
    runs: list[Run] = []
    notes: list[str] = []
    for path in sorted((folder / "manifests").glob("policy=*/replication=*/run.json")):
        manifest = read_manifest(path)
        if manifest["status"] == COMPLETE:
            runs.append(Run(folder, manifest))
        else:
            notes.append(
                f"left out: policy {manifest['policy']}, replication {manifest['replication']} was cut "
                f"({manifest['reason']})"
            )
    known = {run.path("requests") for run in runs}
    for path in sorted((folder / "requests").glob("policy=*/replication=*/part-0.parquet")):
        if path not in known:
            notes.append(f"left out: {path.parent.relative_to(folder)} has no finished manifest")
    if not runs:
        raise ResultsError(f"{folder} holds no finished run; run the scenario first")
    if len({run.manifest["world_sha256"] for run in runs}) > 1:
        raise ResultsError(f"{folder} mixes runs of different scenarios or seeds; remove it and run again")
    code = {(str(run.manifest["git_commit"]), str(run.manifest["versions"])) for run in runs}
    if len(code) > 1:
        notes.append("the runs come from different commits or package versions; run them all again to be sure")
    runs.sort(key=lambda run: (run.policy, run.replication))
    return tuple(runs), tuple(notes)
