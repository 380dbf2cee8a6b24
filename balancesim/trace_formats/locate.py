"""From the name of a trace to its file."""

from functools import cache
from pathlib import Path

from balancesim.registry import unknown_name
from balancesim.trace_formats.errors import TraceError

#: Traces that come with the repository: a trace's name is its file's name without the endings.
TRACES_DIR = Path(__file__).resolve().parents[2] / "traces"

_ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet")


@cache
def trace_names() -> dict[str, Path]:
    """Return the traces of the repository by name."""
    found = sorted(path for path in TRACES_DIR.glob("*") if path.name.endswith(_ENDINGS))
    return {path.name.split(".")[0]: path for path in found}


def trace_path(file: str, base_dir: Path | None = None) -> Path:
    """Return the file of a trace: one of the repository's by its name, else a path of the user's own.

    A relative path counts from ``base_dir`` (the folder of the scenario file), by default from the working directory.

    Raises:
        TraceError: there is no such file.
    """
    names = trace_names()
    if file in names:
        return names[file]
    path = (base_dir or Path()) / file
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        raise TraceError(f"{path}: a trace must be a file, got a folder")
    if path.name.endswith(_ENDINGS) or (len(path.parts) > 1 and "/" in file):
        raise TraceError(f"{path}: no such file; a trace is a path or one of: {', '.join(names)}")
    raise TraceError(unknown_name("trace", file, names) + "; a path to a file of your own is as good")
