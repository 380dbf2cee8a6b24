"""[server]: the GPU, its models and their cost laws."""

import math
from typing import Any

from balancesim import catalog
from balancesim.core.server import ServerSpec
from balancesim.scenario.schema import ServerTable
from balancesim.scenario.settings import ServerSettings
from balancesim.scenario.validation import Faults
from balancesim.units import GB, GIB


def server_settings(table: ServerTable, faults: Faults, built: dict[str, Any]) -> ServerSettings | None:
    """Return the settings of a server, or None when they have faults (weights that do not fit are one)."""
    _check_draft_keys(table, faults)
    if faults.any_under("server"):
        return None
    gpu, draft = catalog.gpu(table.gpu), None
    if table.draft is not None:
        draft = catalog.llm(table.draft, table.draft_weights or table.weights, table.kv)
    try:
        spec = ServerSpec(
            gpu=gpu,
            target=catalog.llm(table.target, table.weights, table.kv),
            target_law=built["server.law"],
            usable_memory_bytes=_usable_bytes(table, gpu.memory_bytes),
            draft=draft,
            draft_law=built.get("server.draft_law"),
            draft_length=table.draft_length or 0,
            draft_load_bytes_s=math.inf if table.draft_load_gb_s is None else table.draft_load_gb_s * GB,
        )
    except ValueError as error:
        faults.add("server.target", str(error).removeprefix("server.memory: "))
        return None
    _check_draft_fits(spec, faults)
    return ServerSettings(spec, built["server.acceptance"])


def _usable_bytes(table: ServerTable, memory_bytes: float) -> float:
    """Return Q·utilisation − reserve, or no limit where it is switched off, as [P2] does for its MBS."""
    return math.inf if table.unlimited_memory else memory_bytes * table.utilisation - table.reserve_gib * GIB


def _check_draft_keys(table: ServerTable, faults: Faults) -> None:
    """A draft model needs its law and length; without a draft they mean nothing."""
    for key in ("draft_law", "draft_length"):
        given = getattr(table, key) is not None
        if table.draft is not None and not given:
            faults.add(f"server.{key}", "is missing: a draft model needs it")
    for key in ("draft_law", "draft_length", "draft_weights", "draft_load_gb_s"):
        if table.draft is None and getattr(table, key) is not None:
            faults.add(f"server.{key}", "must be left out when there is no draft")


def _check_draft_fits(spec: ServerSpec, faults: Faults) -> None:
    free_bytes = spec.free_bytes(uses_sd=True)
    if spec.draft is not None and free_bytes <= 0:
        message = (
            f"weights of {spec.draft.name} ({spec.draft.weight_bytes / GIB:.2f} GiB) do not fit beside those of "
            f"{spec.target.name}: the usable memory of {spec.gpu.name} is exceeded by {-free_bytes / GIB:.2f} GiB"
        )
        faults.add("server.draft", message)
