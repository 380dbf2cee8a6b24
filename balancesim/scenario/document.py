"""A scenario file as one plain table: ``extends`` resolved, ``--set`` applied, and where each key came from."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from balancesim.registry import Fault, nearest

#: Scenarios that a name stands for: those of the working directory, then those beside the package.
FOLDERS = (Path("scenarios"), Path(__file__).resolve().parents[2] / "scenarios")

#: How an override from the command line is named in an error.
OVERRIDE = "--set"


class ScenarioError(ValueError):
    """A scenario cannot be used; ``lines`` has one line for each problem."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True)
class Document:
    """The merged table of a scenario, the file it was asked from, and the origin of each key."""

    name: str
    file: str  #: as shown in errors
    folder: Path  #: where its relative file names start
    table: dict[str, Any]
    origins: Mapping[tuple[str, ...], str]

    def line(self, fault: Fault) -> str:
        """Return the error line of a fault: the file that set the key, the key, the problem."""
        parts = tuple(fault.key.split("."))
        prefixes = (parts[:length] for length in range(len(parts), 0, -1))
        origin = next((self.origins[prefix] for prefix in prefixes if prefix in self.origins), self.file)
        return f"{origin}: {fault}"


def read(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Document:
    """Return the document of a scenario given by name or by path.

    ``extends = "other"`` takes everything from ``other.toml`` in the same folder and lets this file override it, key by
    key; a table is replaced as a whole when it changes its ``kind``. ``overrides`` are ``a.b=value`` with a TOML value;
    what is not one is a string. Raises ScenarioError.
    """
    path = find(name_or_path)
    table, origins = _read_chain(path, ())
    table.pop("extends", None)
    changes = _override_table(overrides)
    _merge(table, changes, origins, OVERRIDE)
    return Document(path.stem, path.name, path.parent, table, origins)


def from_table(table: Mapping[str, Any], name: str, folder: Path) -> Document:
    """Return a document from a resolved table, for example the one that a run's ``run.json`` keeps."""
    return Document(name, f"{name}.toml", folder, dict(table), {})


def find(name_or_path: str | Path) -> Path:
    """Return the file of a scenario: a path as it is, a name in the folders of scenarios."""
    text = str(name_or_path)
    if text.endswith(".toml") or "/" in text or "\\" in text:
        return Path(text)
    for folder in FOLDERS:
        if (folder / f"{text}.toml").is_file():
            return folder / f"{text}.toml"
    names = scenario_names()
    listed = f" (scenarios: {', '.join(names)})" if names else " (there is no folder scenarios here)"
    raise ScenarioError([f"no scenario {text!r}{nearest(text, names)}{listed}"])


def scenario_names() -> list[str]:
    """Return the names of all scenarios that can be found, sorted."""
    return sorted({path.stem for folder in FOLDERS if folder.is_dir() for path in folder.glob("*.toml")})


def _read_chain(path: Path, seen: tuple[str, ...]) -> tuple[dict[str, Any], dict[tuple[str, ...], str]]:
    if path.stem in seen:
        raise ScenarioError([f"{path.name}: extends: forms a cycle: {' -> '.join((*seen, path.stem))}"])
    table = _read_toml(path)
    base_name = table.get("extends")
    origins: dict[tuple[str, ...], str] = {}
    if base_name is None:
        whole: dict[str, Any] = {}
        _merge(whole, table, origins, path.name)
        return whole, origins
    if not isinstance(base_name, str) or Path(base_name).name != base_name:
        raise ScenarioError(
            [f"{path.name}: extends: must be the name of a scenario in the same folder, got {base_name!r}"]
        )
    base_path = path.parent / f"{base_name.removesuffix('.toml')}.toml"
    if not base_path.is_file():
        beside = [other.stem for other in path.parent.glob("*.toml") if other != path]
        raise ScenarioError([f"{path.name}: extends: no file {base_path.name} beside it{nearest(base_name, beside)}"])
    base, origins = _read_chain(base_path, (*seen, path.stem))
    _merge(base, table, origins, path.name)
    return base, origins


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ScenarioError([f"{path}: is not a text file (UTF-8)"]) from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([f"{path.name}: is not valid TOML: {error}"]) from None
    except OSError as error:
        raise ScenarioError([f"{path}: cannot be read: {error.strerror}"]) from None


def _merge(
    base: dict[str, Any],
    changes: Mapping[str, Any],
    origins: dict[tuple[str, ...], str],
    origin: str,
    prefix: tuple[str, ...] = (),
) -> None:
    """Put ``changes`` over ``base`` in place and note the origin of each key that changes."""
    for key, value in changes.items():
        place = (*prefix, key)
        if not isinstance(value, Mapping):
            base[key] = value
            origins[place] = origin
            continue
        old = base.get(key)
        if not isinstance(old, dict) or ("kind" in value and value["kind"] != old.get("kind")):
            base[key] = {}
            origins[place] = origin
        _merge(base[key], value, origins, origin, place)


def _override_table(overrides: Sequence[str]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    problems = []
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            problems.append(f"{OVERRIDE} {override}: must be key.key=value")
            continue
        here = table
        for part in parts[:-1]:
            following = here.setdefault(part, {})
            if not isinstance(following, dict):
                following = here[part] = {}
            here = following
        here[parts[-1]] = _override_value(text.strip())
    if problems:
        raise ScenarioError(problems)
    return table


def _override_value(text: str) -> Any:
    """Return a TOML value; text that is none is a string, so that words need no quotes in a shell."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text
