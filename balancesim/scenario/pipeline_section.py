"""[sbs] and [fronthaul]: the small base stations that draft for the server under the discipline ``pipeline``."""

from typing import Any

from balancesim import catalog, units
from balancesim.core.pipeline_nodes import Fronthaul, PipelineNode, Sbs
from balancesim.scenario.schema import FronthaulTable, SbsTable, ScenarioTable
from balancesim.scenario.settings import ServerSettings
from balancesim.scenario.validation import Faults
from balancesim.units import GIB

#: A round's times are computed at so many contexts and interpolated between them (`core.pipeline_nodes`).
_CONTEXT_POINTS = 5


def sbs_settings(
    tables: ScenarioTable, server: ServerSettings | None, faults: Faults, built: dict[str, Any]
) -> Sbs | None:
    """Return the SBS of every cell, or None when there is none or it has faults."""
    sbs, fronthaul = tables.sbs, tables.fronthaul
    for key, given, other in (("fronthaul", fronthaul, sbs), ("sbs", sbs, fronthaul)):
        if given is None and other is not None and not faults.any_under(key):
            faults.add(key, "is missing: an SBS and its fronthaul come together")
    if sbs is None or fronthaul is None or server is None or "sbs.law" not in built:
        return None
    if server.spec.draft is None:
        faults.add("server.draft", "is missing: the SBS of [sbs] runs it")
        return None
    node = _node(sbs, server, built)
    if node.kv_room_tokens() <= 0:
        excess = f"{(node.llm.weight_bytes - node.memory_bytes) / GIB:.2f} GiB"
        faults.add("sbs.gpu", f"weights of {node.llm.name} exceed the usable memory of {sbs.gpu} by {excess}")
        return None
    return Sbs(node, _fronthaul(fronthaul))


def _node(table: SbsTable, server: ServerSettings, built: dict[str, Any]) -> PipelineNode:
    gpu, draft = catalog.gpu(table.gpu), server.spec.draft
    assert draft is not None
    usable_bytes = gpu.memory_bytes * table.utilisation - table.reserve_gib * GIB
    return PipelineNode(draft, gpu, built["sbs.law"], usable_bytes, _CONTEXT_POINTS)


def _fronthaul(table: FronthaulTable) -> Fronthaul:
    return Fronthaul(
        rate_bps=table.rate_gbps * 1e9,
        delay_s=table.delay_ms * units.MS,
        draft_token_bits=table.token_bits + table.distribution_bits,
        verified_token_bits=table.token_bits,
        queueing=table.queueing,
    )
