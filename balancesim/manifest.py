"""The manifest of a run, ``run.json``: what was run, with what, and the checksums of its tables.

A result exists only with its manifest, which is written last (model.md §10, style.md habit 11). Layout of a folder:

    results/<name>/{requests,epochs,gpu}/policy=…/replication=…/part-0.parquet
    results/<name>/manifests/policy=…/replication=…/run.json

**Rule for what is already there.** All finished runs of a folder share one *world* (scenario without its description,
the list of policies, the policies' options and the number of replications; and the seed), and all replications of a
policy share its options. A run of the same policy and replication is replaced. A run of another world is *stale*:
`Recorder` refuses to write beside it, and `remove_runs` removes what `stale_runs` finds.
"""

import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from balancesim.columns import TABLES

SCHEMA_VERSION = 1  #: raised whenever a column or a key of the manifest changes its meaning
COMPLETE, PARTIAL = "complete", "partial"


class ResultsError(ValueError):
    """A result folder that cannot be used as it is; the message is one line for the user."""


@dataclass(frozen=True)
class RunInfo:
    """What a run is, known before it starts."""

    policy: str
    replication: int
    seed: int
    scenario: Mapping[str, object]  #: the resolved scenario as a document: strings, numbers, lists and tables
    policy_options: Mapping[str, object] = field(default_factory=dict)
    policy_source_sha256: str | None = None  #: of the file of a user's own policy

    @property
    def world_sha256(self) -> str:
        """Digest of everything that all runs of a result folder share."""
        document = {key: value for key, value in self.scenario.items() if key not in ("description", "policy")}
        run = document.get("run")
        if isinstance(run, Mapping):
            document["run"] = {k: v for k, v in run.items() if k not in ("policies", "replications", "seed")}
        return _digest([SCHEMA_VERSION, self.seed, document])

    @property
    def policy_sha256(self) -> str:
        """Digest of the policy and its options."""
        return _digest([self.policy, self.policy_options, self.policy_source_sha256])


@dataclass(frozen=True)
class RunSummary:
    """What a run tells about itself when it is over, beside its tables."""

    wall_s: float  #: wall-clock time of the simulation
    events: int  #: events processed by the simulation's kernel
    offered: int  #: requests that the source made, counted by the source itself
    end_s: float  #: simulated time at the end
    servers: int  #: GPUs of the world, idle ones included: edge servers, and the MBS behind those that draft
    decisions: int = 0  #: calls of the policy
    decision_wall_s: float = 0.0  #: wall-clock time inside the policy, all calls
    decision_wall_max_s: float = 0.0  #: wall-clock time of the slowest call
    gpus: tuple[str, ...] = ()  #: name of each server's GPU, by server_id


def plain(value: object) -> object:
    """Return a value as JSON knows it: enums by value, tuples as lists, numbers that are not finite as words."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"a manifest holds strings, numbers, lists and tables only, got {value!r}")


def _digest(value: object) -> str:
    return sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


def _partition(policy: str, replication: int) -> Path:
    # percent-encoded as pyarrow decodes it, so a policy may be named "mine.py:Mine"
    return Path(f"policy={quote(policy, safe='')}") / f"replication={replication}"


def table_path(folder: Path, table: str, policy: str, replication: int) -> Path:
    """Return where a table of a run is kept."""
    return folder / table / _partition(policy, replication) / "part-0.parquet"


def manifest_path(folder: Path, policy: str, replication: int) -> Path:
    """Return where the manifest of a run is kept."""
    return folder / "manifests" / _partition(policy, replication) / "run.json"


def write_text(path: Path, text: str) -> None:
    """Write text to a temporary name beside ``path`` and rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """Write a document as JSON, whole or not at all."""
    write_text(path, json.dumps(plain(document), indent=1, sort_keys=True) + "\n")


def read_manifest(path: Path) -> dict[str, object]:
    """Return a manifest; raise `ResultsError` where it is not one of this version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultsError(f"{path} is not a manifest ({error}); run the scenario again") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise ResultsError(f"{path}: schema_version must be {SCHEMA_VERSION}, got {version}; run the scenario again")
    return dict(document)


@dataclass(frozen=True)
class StoredRun:
    """A finished run found in a folder."""

    policy: str
    replication: int


def stale_runs(folder: Path, info: RunInfo) -> tuple[StoredRun, ...]:
    """Return the finished runs of a folder that may not stand beside ``info``: another world, or other options."""
    stale: list[StoredRun] = []
    for path in sorted((folder / "manifests").glob("policy=*/replication=*/run.json")):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue  # not a manifest, so not a finished run
        if stored.get("status") != COMPLETE:
            continue
        run = StoredRun(str(stored["policy"]), int(stored["replication"]))
        same_options = run.policy != info.policy or stored["policy_sha256"] == info.policy_sha256
        if stored["world_sha256"] != info.world_sha256 or not same_options:
            stale.append(run)
    return tuple(stale)


def remove_runs(folder: Path, runs: Iterable[StoredRun]) -> None:
    """Remove runs, manifest first, so that a cut removal leaves nothing that looks whole."""
    for run in runs:
        shutil.rmtree(manifest_path(folder, run.policy, run.replication).parent, ignore_errors=True)
        for table in TABLES:
            shutil.rmtree(table_path(folder, table, run.policy, run.replication).parent, ignore_errors=True)


def remove_tables(folder: Path, policy: str, replication: int) -> None:
    """Remove the tables of a run that has no finished manifest."""
    for table in TABLES:
        table_path(folder, table, policy, replication).unlink(missing_ok=True)


def is_complete(path: Path) -> bool:
    """Return whether a manifest says that its run finished."""
    try:
        return bool(read_manifest(path)["status"] == COMPLETE)
    except ResultsError:
        return False
