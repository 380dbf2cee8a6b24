"""A user's own classes, from a file, an installed module or an entry point, without touching the package."""

import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from balancesim.registry import nearest

#: Entry-point group under which an installed package offers policies.
POLICY_GROUP = "balancesim.policies"


def is_reference(name: str) -> bool:
    """Return whether a policy's name is a reference to a class, ``file.py:Class`` or ``package.module:Class``."""
    return ":" in name


def load_external(reference: str, folders: Sequence[Path] = ()) -> type[Any]:
    """Return a user's own class from ``file.py:Class`` (looked up in ``folders``, then here) or ``module:Class``.

    The class needs ``decide``; a missing ``name`` is set to the class's name. Raises ValueError in one line.
    """
    source, _, class_name = reference.rpartition(":")
    if not source or not class_name.isidentifier():
        raise ValueError(f"{reference!r} must be file.py:Class or package.module:Class")
    module = _file_module(source, folders) if source.endswith(".py") else _dotted_module(source)
    cls = getattr(module, class_name, None)
    if not inspect.isclass(cls):
        classes = [name for name, value in vars(module).items() if inspect.isclass(value) and hasattr(value, "decide")]
        raise ValueError(f"{source} has no class {class_name!r}{nearest(class_name, classes)}")
    return _checked_policy(cls, reference)


def _checked_policy(cls: type[Any], reference: str) -> type[Any]:
    if not callable(getattr(cls, "decide", None)):
        raise ValueError(f"{reference}: the class must have a method decide(problem)")
    if not isinstance(getattr(cls, "name", None), str):
        cls.name = cls.__name__
    return cls


def _dotted_module(source: str) -> Any:
    try:
        return importlib.import_module(source)
    except Exception as error:  # a user's module may fail in any way; all are one line here
        raise ValueError(f"cannot import {source}: {_one_line(error)}") from error


def _file_module(source: str, folders: Sequence[Path]) -> Any:
    places = [folder / source for folder in (*folders, Path())]
    path = next((place.resolve() for place in places if place.is_file()), None)
    if path is None:
        raise ValueError(f"no file {source} (looked in {', '.join(dict.fromkeys(str(p.parent) for p in places))})")
    # The path is part of the name, so that two files called my_policy.py stay two modules.
    name = f"_balancesim_user_{path.stem}_{sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"cannot load {source}: not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while the class is made
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"cannot load {source}: {_one_line(error)}") from error
    return module


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def entry_point_class(name: str, group: str = POLICY_GROUP) -> type[Any] | None:
    """Return the class that an installed package offers under ``name``, or None when none does."""
    for entry in importlib.metadata.entry_points(group=group, name=name):
        try:
            cls = entry.load()
        except Exception as error:
            raise ValueError(f"cannot load {name} from {entry.value}: {_one_line(error)}") from error
        if not inspect.isclass(cls):
            raise ValueError(f"{entry.value} (entry point {name}) is not a class")
        return _checked_policy(cls, entry.value)
    return None


def entry_point_names(group: str = POLICY_GROUP) -> list[str]:
    """Return the names that installed packages offer in a group, sorted."""
    return sorted(importlib.metadata.entry_points(group=group).names)


def source_sha256(cls: type[Any]) -> str | None:
    """Return the digest of the file that defines a class, or None for a class of this package."""
    if cls.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return None
    file = inspect.getsourcefile(cls)
    return None if file is None else sha256(Path(file).read_bytes()).hexdigest()
