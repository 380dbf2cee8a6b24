"""The layout of the package: who may import whom, and how large things get."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import balancesim

ROOT = Path(balancesim.__file__).parent
MODULES = {
    ".".join(("balancesim", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}

#: Layers from the bottom up: a module imports from its own layer and from those before it.
LAYERS = (
    ("units", "checks", "registry", "external"),
    ("streams",),
    ("core",),
    ("allocators", "arrivals", "acceptance", "acceptance_rates", "channels", "deadlines", "fading", "latency_laws",
     "lengths", "policies", "predictors", "profiles", "profile_formats", "rate_laws", "trace_formats"),
    ("catalog", "columns", "tables", "table_writer", "provenance", "manifest", "recorder", "workload",
     "workload_summary"),
    ("scenario", "topology"),
    ("processes",),
    ("simulate", "precompile", "metrics", "capacity"),
    ("runner", "compare"),
    ("cli", "__main__"),
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports(tree, *, lazy=True):
    """Return the modules imported; without ``lazy`` only those at the top level, type checking left out."""
    nodes = ast.walk(tree) if lazy else tree.body
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def room(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("module", [m for m in MODULES if m != "balancesim"])
def test_imports_go_one_way(module):
    """Nothing at the top of a module imports from a layer above it."""
    assert room(module) in RANK, f"{module} has no place in the layers"
    for name in imports(TREES[module], lazy=False):
        if name.startswith("balancesim."):
            assert RANK[room(name)] <= RANK[room(module)], f"{module} imports {name}"


@pytest.mark.parametrize(
    ("library", "rooms"),
    [("simpy", {"processes", "simulate"}), ("networkx", {"topology"}), ("scipy", {"core", "compare"})],
)
def test_libraries_have_their_rooms(library, rooms):
    """SimPy stays in the processes, networkx in the topology, scipy in solvers and statistics."""
    users = {room(module) for module, tree in TREES.items() for name in imports(tree) if name.split(".")[0] == library}
    assert users <= rooms


def test_the_core_is_pure():
    """The core reads no files, tells no time, draws no numbers, and knows neither tables nor graphs."""
    forbidden = {"simpy", "pandas", "pyarrow", "networkx", "random", "time", "pathlib", "os", "csv", "json"}
    for module, tree in TREES.items():
        if room(module) == "core":
            assert forbidden.isdisjoint(name.split(".")[0] for name in imports(tree)), module


def test_a_run_starts_light():
    """Importing what runs a simulation loads neither pandas nor scipy, networkx, numba or seaborn."""
    code = "import sys, balancesim.simulate; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    for library in ("pandas", "scipy", "networkx", "numba", "seaborn", "matplotlib"):
        assert f"'{library}'" not in loaded


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


#: Compiled kernels are one long function each on purpose: numba inlines within a module.
KERNELS = {
    "balancesim.core.solver_kernel",
    "balancesim.core.solver_continuous_kernel",
    "balancesim.core.solver_two_colour_kernel",
}


@pytest.mark.parametrize("module", [m for m in MODULES if m not in KERNELS])
def test_modules_and_functions_stay_small(module):
    """No module over 250 lines, no function body over 40 lines beside its docstring."""
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= 250
    for function in functions(TREES[module]):
        body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
        lines = body[-1].end_lineno - body[0].lineno + 1
        assert lines <= 40, f"{module}.{function.name} has {lines} lines"


def test_nothing_is_printed_outside_the_command_line():
    """Only the command line and the converters of profiles write to the terminal."""
    for module, tree in TREES.items():
        if room(module) in ("cli", "__main__", "profile_formats"):
            continue
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert not any(isinstance(c.func, ast.Name) and c.func.id == "print" for c in calls), module
