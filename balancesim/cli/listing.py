"""``balancesim list`` and ``balancesim schema``: what a scenario can name."""

import json
from collections.abc import Callable, Iterable

from balancesim.cli.output import say
from balancesim.registry import help_line, kind_of, unknown_name
from balancesim.scenario.families import FAMILIES, classes_of

Lines = Iterable[tuple[str, str]]


def list_family(family: str) -> None:
    """Write the members of a family, or the families when none is named."""
    tables: dict[str, Callable[[], Lines]] = {"scenarios": _scenarios, "models": _models, "gpus": _gpus}
    known = [*FAMILIES, *tables]
    if not family:
        for name in known:
            say(name)
        return
    if family not in known:
        raise ValueError(unknown_name("family", family, known))
    lines = list(tables[family]() if family in tables else _plug_ins(family))
    width = max((len(name) for name, _ in lines), default=0)
    for name, text in lines:
        say(f"{name:<{width}}  {text}".rstrip())


def _plug_ins(family: str) -> Lines:
    yield from ((kind_of(cls), help_line(cls)) for cls in classes_of(family))
    if family == "policies":
        from balancesim.external import entry_point_class, entry_point_names

        for name in entry_point_names():
            cls = entry_point_class(name)
            if cls is not None:
                yield name, help_line(cls)


def _scenarios() -> Lines:
    from balancesim.scenario.document import ScenarioError, find, read, scenario_names

    for name in scenario_names():
        try:
            yield name, str(read(find(name)).table.get("description", "")).partition("\n")[0]
        except ScenarioError as error:
            yield name, f"cannot be read: {error.lines[0]}"


def _models() -> Lines:
    from balancesim import catalog

    for name in catalog.llm_names():
        llm = catalog.llm(name)
        yield (
            name,
            f"{llm.parameters / 1e9:.2f} B parameters, {llm.kv_bytes_per_token / 1024:g} KiB of KV a token (fp16)",
        )


def _gpus() -> Lines:
    from balancesim import catalog

    for name in catalog.gpu_names():
        gpu = catalog.gpu(name)
        speed = f"{gpu.peak_flops / 1e12:g} TFLOPS fp16, {gpu.bandwidth_bytes_s / 1e9:g} GB/s"
        yield name, f"{gpu.memory_bytes / 2**30:.1f} GiB, {speed}"


def write_schema() -> None:
    """Write the JSON Schema of scenario files."""
    from balancesim.scenario.json_schema import scenario_schema

    say(json.dumps(scenario_schema(), indent=2))
