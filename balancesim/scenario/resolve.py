"""From a document to a `Scenario`: unit conversion, plug-ins, and what must hold between keys."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from balancesim import units
from balancesim.core.slicing import Slicing
from balancesim.scenario.checks import (
    check_channel,
    check_policies,
    check_scheduling,
    check_trace,
    check_vocabularies,
)
from balancesim.scenario.document import Document, ScenarioError
from balancesim.scenario.network_section import network_settings
from balancesim.scenario.pipeline_section import sbs_settings
from balancesim.scenario.policy_list import chosen, policy_entries
from balancesim.scenario.radio_section import radio_settings
from balancesim.scenario.schema import RequestsTable, RunTable, ScenarioTable, SchedulingTable, Table
from balancesim.scenario.server_section import server_settings
from balancesim.scenario.settings import RunSettings, Scenario, SchedulingSettings, ServerSettings, Targets
from balancesim.scenario.validation import Faults, PlugIns, typed
from balancesim.workload import Payload, Workload

#: Plug-ins by the path of their key.
Built = dict[str, Any]


@dataclass(frozen=True)
class _Parts:
    """What a scenario is put together from."""

    document: Document
    tables: ScenarioTable
    built: Built
    faults: Faults


def resolve(document: Document, policies: Sequence[str] = ()) -> Scenario:
    """Return the scenario that a document describes; raises ScenarioError with one line for each fault."""
    faults = Faults()
    raw = document.table
    if policies and isinstance(raw.get("run"), dict):
        raw["run"]["policies"] = chosen(raw["run"].get("policies", []), policies)
    tables = typed(raw, faults)
    plug_ins = PlugIns(document.folder, faults)
    plug_ins.build_below(raw)
    entries = policy_entries(_with_default_policies(raw), (document.folder, Path()), faults)
    scenario = _scenario(_Parts(document, tables, plug_ins.built, faults), entries)
    if faults.found or scenario is None:
        raise ScenarioError(dict.fromkeys(document.line(fault) for fault in faults.found))
    return scenario


def _with_default_policies(raw: dict[str, Any]) -> dict[str, Any]:
    run = raw.get("run")
    if not isinstance(run, dict) or "policies" in run:
        return raw
    return {**raw, "run": {**run, "policies": RunTable.model_fields["policies"].default}}


def _scenario(parts: _Parts, entries: tuple[Any, ...]) -> Scenario | None:
    """Build the sections that have no fault of their own, so that each section's faults are found in one go."""
    tables, built, faults = parts.tables, parts.built, parts.faults
    run = _section(tables.run, _run, faults)
    server = _section(tables.server, partial(server_settings, built=built), faults)
    network = _section(tables.network, network_settings, faults)
    sbs = sbs_settings(tables, server, faults, built)
    if server is not None and sbs is not None:
        server = replace(server, sbs=sbs)
    if network is not None and sbs is not None:
        network = replace(network, fronthaul=sbs.fronthaul)
    radio = _section(tables.radio, partial(radio_settings, built=built), faults)
    scheduling = _section(tables.scheduling, partial(_scheduling, built=built), faults)
    workload = _workload(tables, built, server, faults)
    if workload is not None and run is not None:
        check_trace(workload, run, faults)
    warnings: list[str] = []
    if server is not None:
        warnings += check_vocabularies(server.spec)
    if radio is not None and network is not None:
        check_channel(radio, network, faults)
    if scheduling is not None:
        check_scheduling(scheduling, entries, faults)
    if server is not None and scheduling is not None:
        check_policies(entries, server, scheduling.lane_model, faults)
    if faults.found or workload is None:
        return None
    return Scenario(
        name=parts.document.name,
        description=tables.description,
        run=run,
        workload=workload,
        radio=radio,
        network=network,
        servers=(server,) * network.servers,
        scheduling=scheduling,
        policies=entries,
        targets=Targets(tables.requests.ttft_target_s, tables.requests.tpot_target_s),
        document=_with_defaults(parts.document.table, tables),
        folder=parts.document.folder,
        warnings=tuple(f"{parts.document.file}: {warning}" for warning in warnings),
    )


def _with_defaults(raw: Mapping[str, Any], tables: BaseModel) -> dict[str, Any]:
    """Return a table with the defaults of the keys it leaves out, so that it means the same when a default changes."""
    result = dict(raw)
    for key in type(tables).model_fields:
        value = getattr(tables, key)
        if isinstance(value, BaseModel):
            result[key] = _with_defaults(raw[key], value)
        elif key not in raw and value is not None:
            result[key] = str(value) if isinstance(value, StrEnum) else value
    return result


def _section(table: Table | None, make: Callable[..., Any], faults: Faults) -> Any:
    """Return the settings of a section, or None where its table or its settings have a fault."""
    return None if table is None else make(table, faults=faults)


def _run(table: RunTable, faults: Faults) -> RunSettings:
    if table.warmup_s >= table.horizon_s:
        faults.add("run.warmup_s", f"must be below horizon_s = {table.horizon_s:g}, got {table.warmup_s:g}")
    return RunSettings(table.horizon_s, table.warmup_s, table.drain_s, table.replications, table.seed)


def _workload(tables: ScenarioTable, built: Built, server: ServerSettings | None, faults: Faults) -> Workload | None:
    table: RequestsTable | None = tables.requests
    if table is None or tables.run is None:
        return None
    keys = ("arrivals", "lengths", "deadline", "acceptance_rate", "prediction")
    paths = [f"requests.{key}" for key in keys]
    if any(path not in built for path in paths) or (server is None and table.context_overflow == "cut"):
        return None
    cut = server.spec.target.context_tokens if server is not None and table.context_overflow == "cut" else None
    kilobit = 8e3
    try:
        return Workload(
            tables.run.horizon_s,
            **{key: built[path] for key, path in zip(keys, paths, strict=True)},
            payload=Payload(table.payload_kilobytes * kilobit, table.image_kilobytes * kilobit, table.image_share),
            cut_to_tokens=cut,
        )
    except ValueError as error:
        faults.note("requests", error)
        return None


def _scheduling(table: SchedulingTable, faults: Faults, built: Built) -> SchedulingSettings | None:
    periodic = table.epoch_mode == "periodic"
    if periodic and table.epoch_ms is None:
        faults.add("scheduling.epoch_ms", 'is missing: period of decisions in ms; or epoch_mode = "on_event"')
    if not periodic and table.epoch_ms is not None:
        faults.add("scheduling.epoch_ms", 'must be left out with epoch_mode = "on_event"')
    if table.slice_ms == 0 and table.switch_ms > 0:
        rule = "must be 0 with fluid sharing (slice_ms = 0), which switches infinitely often"
        faults.add("scheduling.switch_ms", f"{rule}, got {table.switch_ms:g}")
    if faults.any_under("scheduling") or "scheduling.discipline" not in built:
        return None
    return SchedulingSettings(
        lane_model=built["scheduling.discipline"],
        slicing=Slicing(table.slice_ms * units.MS, table.switch_ms * units.MS, table.work_conserving),
        epoch_s=None if table.epoch_ms is None else table.epoch_ms * units.MS,
        upload_on_admission=table.upload == "on_admission",
        abort_late=table.abort_late,
        kv_growth_tokens=table.kv_growth_tokens,
        max_candidates=table.max_candidates,
    )
