"""Scenario files: TOML -> frozen `Scenario` in SI units, with every fault of the file reported at once.

`load` reads a file by name or path; `from_document` builds a scenario from the resolved table that ``run.json`` keeps.
The tables are declared in `schema`, the result in `settings`; `resolve` goes from one to the other.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balancesim.scenario.document import ScenarioError

if TYPE_CHECKING:
    from balancesim.scenario.settings import Scenario

__all__ = ["ScenarioError", "from_document", "load"]


def load(name_or_path: str | Path, overrides: Sequence[str] = (), policies: Sequence[str] = ()) -> "Scenario":
    """Return the scenario of a name (``scenarios/NAME.toml``) or a path.

    ``overrides`` are ``key.key=value`` with TOML values (words need no quotes); ``policies`` are labels of the
    scenario's list, names or ``file.py:Class``, to run instead of that list. Raises ScenarioError with a line for each
    fault.
    """
    from balancesim.scenario import document, resolve

    return resolve.resolve(document.read(name_or_path, overrides), policies)


def from_document(table: Mapping[str, Any], name: str, folder: Path | None = None) -> "Scenario":
    """Return the scenario of a resolved table; relative file names in it start at ``folder``, by default here."""
    from balancesim.scenario import document, resolve

    return resolve.resolve(document.from_table(table, name, folder or Path()))
