"""Where a result comes from: versions of Python and of the packages, and the commit of the checkout."""

import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

#: Packages whose version can change a number or a table.
_PACKAGES = ("balancesim", "numpy", "scipy", "simpy", "networkx", "pandas", "pyarrow", "pydantic")


@cache
def versions() -> dict[str, str | None]:
    """Return the version of Python and of each package; None for a package that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


@cache
def commit(package_dir: Path) -> dict[str, str | bool | None]:
    """Return the git commit that holds a package and whether the package differs from it (``dirty``).

    Both are None outside a checkout. A package that merely lies inside someone else's checkout (a virtual
    environment in it) is not tracked there and counts as outside.
    """
    head = _git(package_dir, "rev-parse", "HEAD")
    if head is None or _git(package_dir, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {"git_commit": None, "git_dirty": None}
    changes = _git(package_dir, "status", "--porcelain", "--", ".")
    return {"git_commit": head, "git_dirty": None if changes is None else changes != ""}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ("git", "-C", str(folder), *arguments), capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
