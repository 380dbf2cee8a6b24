"""JSON Schema of scenario files, for editors that complete and check TOML."""

import dataclasses
import enum
import types
import typing
from typing import Any

from balancesim.registry import help_line, kind_of
from balancesim.scenario.families import classes_of


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, plug-in options included."""
    from balancesim.scenario.schema import ScenarioTable

    schema = ScenarioTable.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "balancesim scenario"
    schema["properties"]["extends"] = {"type": "string", "description": "scenario in the same folder to start from"}
    del schema["required"]  # what a file leaves out can come from the one it extends
    return schema


def family_schema(family: str) -> dict[str, Any]:
    """Return the choices of a family: the name of one, or a table of its kind and options."""
    classes = classes_of(family)
    return {"anyOf": [{"enum": sorted(map(kind_of, classes))}, *map(_class_schema, classes)]}


def _class_schema(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    needed = [
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    options = {field.name: {} if "family" in field.metadata else _type_schema(hints[field.name]) for field in fields}
    return {
        "type": "object",
        "description": help_line(cls),
        "properties": {"kind": {"const": kind_of(cls)}, **options},
        "required": ["kind", *needed],
        "additionalProperties": False,
    }


def _type_schema(hint: Any) -> dict[str, Any]:
    """Return the schema of an option's type; {} (anything) for a type that TOML has no word for."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type_schema(argument) for argument in arguments if argument is not types.NoneType]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _type_schema(arguments[0])}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": names[hint]} if hint in names else {}
