"""Plug-ins by name: find a class of a family and build it from a table of options.

A family is a tuple of frozen dataclasses; an instance is described by a table ``{kind = "name", option = value, …}``,
or by the bare name when no option is set. All problems of a table are reported, not only the first.
"""

import dataclasses
import enum
import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: the key inside the table ("" for the table itself) and what is wrong with it."""

    key: str
    message: str

    def under(self, prefix: str) -> "Fault":
        """Return the same fault seen from an enclosing table."""
        return Fault(".".join(part for part in (prefix, self.key) if part), self.message)

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class OptionError(ValueError):
    """One or more options are wrong; ``faults`` has them all, in the order of the table."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(str(fault) for fault in self.faults))


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the choice most like ``name``, or nothing when none is alike."""
    by_lower = {choice.lower(): choice for choice in choices}
    matches = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[matches[0]]}?" if matches else ""


def unknown_name(what: str, name: str, choices: Iterable[str]) -> str:
    """Return the message for an unknown name: nearest match and all choices."""
    listed = sorted(choices)
    return f"unknown {what} {name!r}{nearest(name, listed)} (choices: {', '.join(listed) or 'none'})"


def kind_of(cls: type[Any]) -> str:
    """Return the name under which a class is listed: its ``name``, by default the class's own name."""
    name = getattr(cls, "name", None)
    return name if isinstance(name, str) else cls.__name__


def help_line(cls: type[Any]) -> str:
    """Return the first line of a class's own docstring."""
    return (inspect.cleandoc(cls.__dict__.get("__doc__") or "").splitlines() or [""])[0]


def by_name(family: str, classes: Sequence[type[T]], name: str) -> type[T]:
    """Return the class of a family called ``name``; an unknown name lists the choices and the nearest match."""
    named = {kind_of(cls): cls for cls in classes}
    if name in named:
        return named[name]
    raise OptionError([Fault("kind", unknown_name(family, name, named))])


def build(family: str, classes: Sequence[type[T]], options: object) -> T:
    """Return the plug-in that a table ``{kind = …, options}`` or a bare name describes.

    Raises OptionError with every fault: unknown kind or option (nearest match), wrong type (a string or a bool is not
    a number, an int is a float), NaN or infinity where the field does not allow it, missing options, and what the
    class's own checks say.
    """
    table = {"kind": options} if isinstance(options, str) else options
    if not isinstance(table, Mapping):
        raise OptionError([Fault("", f'must be a name or a table {{kind = "…"}}, got {options!r}')])
    kind = table.get("kind")
    if not isinstance(kind, str):
        choices = ", ".join(sorted(map(kind_of, classes)))
        rule = "is missing" if kind is None else f"must be a name, got {kind!r}"
        raise OptionError([Fault("kind", f"{rule} (choices: {choices})")])
    return build_class(by_name(family, classes, kind), {key: value for key, value in table.items() if key != "kind"})


def build_class(cls: type[T], options: Mapping[str, object]) -> T:
    """Return an instance of ``cls`` with these options; raises OptionError with every fault."""
    if not dataclasses.is_dataclass(cls):
        return _build_plain(cls, options)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    hints = typing.get_type_hints(cls)
    faults: list[Fault] = []
    values: dict[str, object] = {}
    for key, value in options.items():
        if key not in fields:
            faults.append(Fault(key, _unknown_option(key, fields)))
            continue
        try:
            values[key] = _convert_field(fields[key], hints[key], value)
        except OptionError as error:
            faults.extend(fault.under(key) for fault in error.faults)
        except ValueError as error:
            faults.append(Fault(key, str(error)))
    faults.extend(Fault(name, "is missing") for name, field in fields.items() if name not in options and _needed(field))
    if faults:
        raise OptionError(faults)
    return _construct(cls, values, fields)


def _unknown_option(key: str, known: Iterable[str]) -> str:
    listed = list(known)
    return f"unknown option{nearest(key, listed)} (options: {', '.join(listed) or 'none'})"


def _needed(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _convert_field(field: "dataclasses.Field[Any]", hint: object, value: object) -> object:
    """Convert one option; a field with ``metadata={"family": (name, classes)}`` is a plug-in itself."""
    nested = field.metadata.get("family")
    if nested is not None:
        name, classes = nested() if callable(nested) else nested
        return build(name, classes, value)
    infinite_default = isinstance(field.default, float) and not math.isfinite(field.default)
    return convert(hint, value, finite=field.metadata.get("finite", not infinite_default))


def _construct(cls: type[T], values: Mapping[str, object], fields: Iterable[str]) -> T:
    try:
        return cls(**values)
    except (ValueError, OSError) as error:
        # A check that names its field, "rate_hz must be …", is reported at that key.
        first, _, rest = str(error).partition(" ")
        named = first in fields and rest.startswith(("must", "is", "has", "needs"))
        raise OptionError([Fault(first, rest) if named else Fault("", str(error))]) from error


def _build_plain(cls: type[T], options: Mapping[str, object]) -> T:
    """Build a class that is not a dataclass: its constructor's parameters are its options."""
    parameters = inspect.signature(cls).parameters.values()
    keywords = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    faults = [Fault(key, _unknown_option(key, keywords)) for key in options if key not in keywords and not open_ended]
    needed = [p.name for p in parameters if p.name in keywords and p.default is p.empty]
    faults += [Fault(name, "is missing") for name in needed if name not in options]
    if faults:
        raise OptionError(faults)
    return _construct(cls, options, keywords)


def convert(hint: Any, value: object, *, finite: bool = True) -> Any:
    """Return a TOML value as the type that a field declares; raises ValueError with the rule and the value.

    ``float`` takes integers too, but no bool, no string, no NaN, and no infinity when ``finite``; lists become tuples;
    names become members of an Enum; tables become dataclasses.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(arguments, value, finite)
    if origin is typing.Literal:
        return _choice({str(choice): choice for choice in arguments}, value)
    if origin is tuple:
        return _convert_tuple(arguments, value, finite)
    if origin in (dict, Mapping):
        return _convert_mapping(arguments, value, finite)
    if isinstance(hint, type):
        return _convert_class(hint, value, finite)
    return value


def _convert_class(hint: type[Any], value: object, finite: bool) -> Any:
    if issubclass(hint, enum.Enum):
        return _choice({str(member.value): member for member in hint}, value)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, Mapping):
            return build_class(hint, value)
        raise ValueError(f"must be a table, got {value!r}")
    return _convert_scalar(hint, value, finite)


def _convert_scalar(hint: Any, value: object, finite: bool) -> Any:
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"must be a number, got {value!r}")
        if math.isnan(value) or (finite and math.isinf(value)):
            raise ValueError(f"must be a finite number, got {value}")
        return float(value)
    rules = {int: "a whole number", bool: "true or false", str: "a string"}
    if hint in rules and (not isinstance(value, hint) or (hint is int and isinstance(value, bool))):
        raise ValueError(f"must be {rules[hint]}, got {value!r}")
    return value


def _choice(choices: Mapping[str, Any], value: object) -> Any:
    if not isinstance(value, str) or value not in choices:
        hint = nearest(value, choices) if isinstance(value, str) else ""
        raise ValueError(f"must be one of {', '.join(choices)}, got {value!r}{hint}")
    return choices[value]


def _convert_union(arguments: tuple[Any, ...], value: object, finite: bool) -> Any:
    problems = []
    for argument in arguments:
        if argument is types.NoneType:
            continue
        try:
            return convert(argument, value, finite=finite)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError(" or ".join(dict.fromkeys(problems)))


def _convert_tuple(arguments: tuple[Any, ...], value: object, finite: bool) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list, got {value!r}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(arguments) != len(value):
        raise ValueError(f"must have {len(arguments)} entries, got {len(value)}")
    converted = []
    for argument, entry in zip(arguments, value, strict=True):
        try:
            converted.append(convert(argument, entry, finite=finite))
        except ValueError as error:
            raise ValueError(f"entry {len(converted) + 1} {error}") from error
    return tuple(converted)


def _convert_mapping(arguments: tuple[Any, ...], value: object, finite: bool) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a table, got {value!r}")
    converted, faults = {}, []
    for key, entry in value.items():
        try:
            converted[str(key)] = convert(arguments[1], entry, finite=finite)
        except ValueError as error:
            faults.append(Fault(str(key), str(error)))
    if faults:
        raise OptionError(faults)
    return converted
