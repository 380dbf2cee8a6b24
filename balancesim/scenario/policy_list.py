"""The policies of a scenario: names, a user's own classes, and one policy several times with different options."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balancesim.external import entry_point_class, entry_point_names, is_reference, load_external, source_sha256
from balancesim.registry import build, build_class, kind_of, nearest, unknown_name
from balancesim.scenario.families import classes_of
from balancesim.scenario.validation import Faults

if TYPE_CHECKING:
    from balancesim.core.problem import LaneModel
    from balancesim.policies import Policy

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class PolicyEntry:
    """A policy of the comparison: the name of its results, and how to make an instance (one for each server)."""

    label: str
    make: "Callable[[], Policy]"
    options: Mapping[str, Any] = field(default_factory=dict)  #: as given; what is left out has its default
    source_sha256: str | None = None  #: of the file of a user's own class; None for the package's policies
    lane_model: "LaneModel | None" = None  #: its own discipline; None = the scenario's
    sees_truth: bool = False  #: it is told the truth where others are told predictions


@dataclass(frozen=True)
class PolicyFactory:
    """Makes instances of a policy with the same options."""

    cls: type[Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        """Return a new instance."""
        return build_class(self.cls, self.options)


@dataclass(frozen=True)
class _Asked:
    """One entry of the list as it was written."""

    path: str
    kind: str
    label: str | None
    options: Mapping[str, Any]
    discipline: Any = None  #: as written; None = the scenario's


def policy_class(name: str, folders: Sequence[Path] = ()) -> type[Any]:
    """Return the class of a policy by name, entry point or reference; raises ValueError in one line."""
    if is_reference(name):
        return load_external(name, folders)
    listed = {kind_of(cls): cls for cls in classes_of("policies")}
    cls = listed.get(name) or entry_point_class(name)
    if cls is None:
        raise ValueError(
            unknown_name("policy", name, [*listed, *entry_point_names()]) + "; or your own as file.py:Class"
        )
    return cls


def policy_entries(table: Mapping[str, Any], folders: Sequence[Path], faults: Faults) -> tuple[PolicyEntry, ...]:
    """Return the policies of ``run.policies`` with the options of ``[policy.KIND]``, ``[policy.LABEL]`` and their own.

    Each instance is made once here, so that wrong options are found before anything runs.
    """
    options, run = table.get("policy", {}), table.get("run", {})
    entries: dict[str, PolicyEntry] = {}
    kinds: set[str] = set()
    for asked in _asked(run.get("policies", []) if isinstance(run, Mapping) else [], faults):
        try:
            cls = policy_class(asked.kind, folders)
        except ValueError as error:
            faults.note(asked.path, error)
            continue
        label = asked.label or kind_of(cls)
        kinds |= {kind_of(cls), asked.kind, label}
        if label in entries or not _LABEL.fullmatch(label):
            rule = "must differ from the other labels" if label in entries else "must be letters, digits and _ . + -"
            faults.add(asked.path, f"label {rule}, got {label!r}")
            continue
        factory = PolicyFactory(cls, {**_of(options, kind_of(cls)), **_of(options, label), **asked.options})
        try:
            factory()
        except ValueError as error:
            faults.note(f"policy.{label}" if not asked.options else asked.path, error)
        lane_model = _lane_model(asked, faults)
        options_kept = factory.options if lane_model is None else {**factory.options, "discipline": asked.discipline}
        sees_truth = bool(getattr(cls, "sees_truth", False))
        entries[label] = PolicyEntry(label, factory, options_kept, source_sha256(cls), lane_model, sees_truth)
    _check_tables(options, kinds, faults)
    return tuple(entries.values())


def chosen(policies: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Return the entries of the list with these labels or names, in the order asked; others are new names."""
    by_label: dict[str, Any] = {}
    for entry in policies:
        label = entry.get("label", entry.get("kind")) if isinstance(entry, Mapping) else entry
        by_label[str(label)] = entry
        by_label.setdefault(str(label).rpartition(":")[2], entry)  # a reference's label is its class
    return [by_label.get(name, name) for name in dict.fromkeys(names)]


def _asked(policies: Any, faults: Faults) -> list[_Asked]:
    result = []
    for place, entry in enumerate(policies if isinstance(policies, list) else []):
        path = f"run.policies.{place}"
        if isinstance(entry, str):
            result.append(_Asked(path, entry, None, {}))
            continue
        if not isinstance(entry, Mapping):
            continue  # the schema reports it
        options = {key: value for key, value in entry.items() if key not in ("kind", "label", "discipline")}
        kind, label = entry.get("kind"), entry.get("label")
        if not isinstance(kind, str) or not (label is None or isinstance(label, str)):
            faults.add(path, f'must be a name or {{kind = "…", label = "…", options}}, got {dict(entry)!r}')
            continue
        result.append(_Asked(path, kind, label, options, entry.get("discipline")))
    return result


def _lane_model(asked: _Asked, faults: Faults) -> Any:
    """Return the discipline that an entry names for its policy alone, or None."""
    if asked.discipline is None:
        return None
    try:
        return build("discipline", classes_of("disciplines"), asked.discipline)
    except ValueError as error:
        faults.note(f"{asked.path}.discipline", error)
        return None


def _of(options: Any, name: str) -> Mapping[str, Any]:
    table = options.get(name, {}) if isinstance(options, Mapping) else {}
    return table if isinstance(table, Mapping) else {}


def _check_tables(options: Any, kinds: set[str], faults: Faults) -> None:
    """Report a [policy.NAME] that no policy has; check the options of listed ones that are not run as well."""
    listed = {kind_of(cls): cls for cls in classes_of("policies")}
    for name in options if isinstance(options, Mapping) else ():
        if name in kinds:
            continue
        if name not in listed:
            known = sorted({*kinds, *listed})
            faults.add(f"policy.{name}", f"no policy of this name or label{nearest(name, known)}")
            continue
        try:
            build_class(listed[name], _of(options, name))
        except ValueError as error:
            faults.note(f"policy.{name}", error)
