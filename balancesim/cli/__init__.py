"""The command line: one function a command; what it needs is imported when it runs, so that ``--help`` is quick."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

#: Exit statuses beside 0: wrong input or a run that failed; a defect of the program; Ctrl-C.
BAD_INPUT, DEFECT, INTERRUPTED = 2, 1, 130

app = typer.Typer(
    name="balancesim",
    help="Simulate LLM serving at the wireless edge: users, radio, an edge GPU, and the policy that admits.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ScenarioName = Annotated[str, typer.Argument(help="name in scenarios/, or path of a .toml", show_default=False)]
Policies = Annotated[
    list[str] | None, typer.Option("--policy", help="run this policy only; repeatable; also my_policy.py:MyPolicy")
]
Settings = Annotated[list[str] | None, typer.Option("--set", help="override a key: run.horizon_s=60; repeatable")]
Out = Annotated[Path, typer.Option("--out", help="folder of results, one folder in it for each scenario")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="processes that run replications and policies")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="seed of all random streams")]
Replications = Annotated[int | None, typer.Option("--replications", min=1, help="independent replications")]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Simulate LLM serving at the wireless edge: users, radio, an edge GPU, and the policy that admits."""


@app.command("run")
def run_command(  # noqa: PLR0913, PLR0917 (one parameter for each option)
    scenario: ScenarioName,
    policy: Policies = None,
    seed: Seed = None,
    replications: Replications = None,
    settings: Settings = None,
    out: Out = Path("results"),
    workers: Workers = 1,
) -> None:
    """Run a scenario under its policies and write the tables."""
    from balancesim.cli.runs import Request, run_scenario

    run_scenario(Request(scenario, policy or [], seed, replications, settings or [], out, workers))


@app.command("compare")
def compare_command(  # noqa: PLR0913, PLR0917 (as above)
    targets: Annotated[list[str], typer.Argument(help="a scenario (runs what is missing), or folders of results")],
    policy: Policies = None,
    seed: Seed = None,
    replications: Replications = None,
    settings: Settings = None,
    out: Out = Path("results"),
    workers: Workers = 1,
) -> None:
    """Run what is missing of a scenario, then compare its policies on the same requests."""
    from balancesim.cli.comparison import compare_folders, compare_scenario
    from balancesim.cli.runs import Request

    if len(targets) == 1 and not Path(targets[0]).is_dir():
        request = Request(targets[0], policy or [], seed, replications, settings or [], out, workers)
        compare_scenario(request)
    else:
        compare_folders([Path(target) for target in targets])


@app.command("check")
def check_command(scenario: ScenarioName, settings: Settings = None) -> None:
    """Validate a scenario; show the world it describes and how much load it can carry."""
    from balancesim.cli.check import check_scenario

    check_scenario(scenario, settings or [])


@app.command("list")
def list_command(
    family: Annotated[str, typer.Argument(help="policies, channels, arrivals, …; scenarios, models, gpus")] = "",
) -> None:
    """List what a scenario can name, one line each."""
    from balancesim.cli.listing import list_family

    list_family(family)


@app.command("schema")
def schema_command() -> None:
    """Write the JSON Schema of scenario files, for editors."""
    from balancesim.cli.listing import write_schema

    write_schema()


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status; an error is one line on stderr."""
    words = list(arguments)
    debug = "--debug" in words
    words = [*(["--debug"] if debug else []), *(word for word in words if word != "--debug")]
    try:
        status = app(words, prog_name="balancesim", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has enough
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (the interpreter closes it)
        return DEFECT
    except Exception as error:  # the one place where errors become a message
        if debug:
            raise
        return _report(error)
    return status if isinstance(status, int) else 0


def _report(error: Any) -> int:
    """Write what went wrong and return the exit status."""
    if hasattr(error, "show") and hasattr(error, "exit_code"):  # wrong use of the command line
        error.show()
        return int(error.exit_code)
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"balancesim: {name}{error.strerror}\n")
        return BAD_INPUT
    if isinstance(error, ValueError | OSError):
        sys.stderr.write("".join(f"balancesim: {line}\n" for line in str(error).splitlines() or [repr(error)]))
        return BAD_INPUT
    text = " ".join(str(error).split())
    sys.stderr.write(f"balancesim: defect: {type(error).__name__}: {text} (--debug shows where)\n")
    return DEFECT
