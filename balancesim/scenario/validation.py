"""From a merged table to typed tables and built plug-ins; every fault of the file is collected, in file order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from balancesim.registry import Fault, OptionError, build, nearest
from balancesim.scenario.families import FAMILIES, classes_of
from balancesim.scenario.schema import PlugIn, ScenarioTable


@dataclass
class Faults:
    """What is wrong so far."""

    found: list[Fault] = field(default_factory=list)

    def add(self, key: str, message: str) -> None:
        """Note one fault."""
        self.found.append(Fault(key, message))

    def note(self, key: str, error: ValueError) -> None:
        """Note what an error says, at a key or, if it knows better, below it."""
        if isinstance(error, OptionError):
            self.found.extend(fault.under(key) for fault in error.faults)
        else:
            self.add(key, str(error))

    def any_under(self, *prefixes: str) -> bool:
        """Return whether one of these tables or keys, or the table above it, has a fault already."""
        return any(
            fault.key == prefix or fault.key.startswith(f"{prefix}.") or prefix.startswith(f"{fault.key}.")
            for fault in self.found
            for prefix in prefixes
        )


def typed(table: Mapping[str, Any], faults: Faults) -> ScenarioTable:
    """Return the typed tables. A section with a fault is None, so that the others can be looked at all the same."""
    try:
        return ScenarioTable.model_validate(dict(table))
    except ValidationError as error:
        faults.found.extend(_merged(_fault(details) for details in error.errors()))
    sections = {key: _section(info, table.get(key)) for key, info in ScenarioTable.model_fields.items()}
    return ScenarioTable.model_construct(None, **sections)


def _section(info: FieldInfo, value: Any) -> Any:
    """Return one section on its own, or None where it has a fault."""
    model = _table_model(info)
    if model is None:
        return None
    try:
        return model.model_validate(value)
    except ValidationError:
        return None


def _fault(details: ErrorDetails) -> Fault:
    place = [str(part) for part in details["loc"] if not _names_a_branch(part)]
    return Fault(".".join(place), _message(details))


def _merged(faults: Iterable[Fault]) -> list[Fault]:
    """Return the faults with the alternatives of one key in one line: must be a string or must be a table, got 3."""
    messages: dict[str, list[str]] = {}
    for fault in faults:
        messages.setdefault(fault.key, []).append(fault.message)
    return [
        Fault(key, " or ".join([*(text.partition(", got ")[0] for text in texts[:-1]), texts[-1]]))
        for key, texts in messages.items()
    ]


def _names_a_branch(part: int | str) -> bool:
    """Return whether a step of an error's path is pydantic's name for a member of a union, not a key of the file."""
    return isinstance(part, str) and (part in ("str", "float", "int") or "[" in part)


def _message(details: ErrorDetails) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        known = list(_model_at(details["loc"][:-1]).model_fields)
        return "unknown key" + (nearest(str(details["loc"][-1]), known) or f" (keys: {', '.join(known)})")
    if kind == "missing":
        info = _model_at(details["loc"][:-1]).model_fields[str(details["loc"][-1])]
        return "is missing" + (f": {info.description}" if info.description else "")
    rules = {
        "greater_than": "must be greater than {gt:g}",
        "greater_than_equal": "must be at least {ge:g}",
        "less_than_equal": "must be at most {le:g}",
        "float_type": "must be a number",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "finite_number": "must be a finite number",
        "bool_type": "must be true or false",
        "string_type": "must be a string",
        "list_type": "must be a list",
        "dict_type": "must be a table",
        "model_type": "must be a table",
        "literal_error": "must be one of {choices}",
        "enum": "must be one of {choices}",
        "too_short": "must have at least {min_length} entry",
    }
    if kind not in rules:
        return details["msg"].removeprefix("Value error, ")
    choices = str(context.get("expected", "")).replace(" or ", ", ").replace("'", "")
    hint = nearest(value, choices.split(", ")) if isinstance(value, str) and choices else ""
    return f"{rules[kind].format(choices=choices, **context)}, got {value!r}{hint}"


def _model_at(loc: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the model of the table at a path of keys."""
    model: type[BaseModel] = ScenarioTable
    for key in loc:
        model = _table_model(model.model_fields[str(key)]) or model
    return model


def _table_model(info: FieldInfo) -> type[BaseModel] | None:
    choices = (info.annotation, *get_args(info.annotation))
    return next((one for one in choices if isinstance(one, type) and issubclass(one, BaseModel)), None)


@dataclass
class PlugIns:
    """Builds every plug-in that a table names; ``built`` has them by path, a key left out its default's."""

    folder: Path  #: of the scenario file, where the files it names are looked up first
    faults: Faults
    built: dict[str, Any] = field(default_factory=dict)

    def build_below(self, table: Mapping[str, Any], model: type[BaseModel] = ScenarioTable, prefix: str = "") -> None:
        """Build what the table and the tables in it name."""
        for key, info in model.model_fields.items():
            path = f"{prefix}.{key}" if prefix else key
            below = _table_model(info)
            if below is not None and isinstance(table.get(key), Mapping):
                self.build_below(table[key], below, path)
            marker = next((mark for mark in info.metadata if isinstance(mark, PlugIn)), None)
            options = table.get(key, None if info.is_required() else info.default)
            if marker is not None and options is not None:
                self._build(path, marker.family, options)

    def _build(self, path: str, family: str, options: Any) -> None:
        try:
            self.built[path] = build(FAMILIES[family].what, classes_of(family), self._located(options))
        except ValueError as error:
            self.faults.note(path, error)

    def _located(self, options: Any) -> Any:
        """Return the options with a ``file`` that lies beside the scenario as its full path."""
        file = options.get("file") if isinstance(options, Mapping) else None
        if isinstance(file, str) and (self.folder / file).is_file():
            return {**options, "file": str((self.folder / file).resolve())}
        return options
