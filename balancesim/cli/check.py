"""``balancesim check``: validate a scenario, show the world it describes, and estimate what it can carry."""

import math
from collections.abc import Iterator, Sequence

from balancesim import scenario as scenarios
from balancesim.capacity import MeanRequest, ModeCapacity, UploadTime, mode_capacity, modes_of, upload_times
from balancesim.cli.output import note, say
from balancesim.core.pipeline_nodes import Sbs
from balancesim.core.server import ServerSpec
from balancesim.scenario.settings import LinkSettings, Scenario
from balancesim.streams import Streams
from balancesim.units import GIB, w_to_dbm
from balancesim.workload_summary import WorkloadSummary, summarise


def check_scenario(name: str, settings: Sequence[str]) -> None:
    """Write what a scenario means; raises ScenarioError with all its faults."""
    scenario = scenarios.load(name, settings)
    for warning in scenario.warnings:
        note(warning)
    summary = summarise(scenario.workload, Streams(scenario.run.seed, 0))
    for line in [
        *_world(scenario),
        "",
        *_requests(summary),
        "",
        *_radio(scenario, summary),
        "",
        *_server(scenario.servers[0].spec),
        *_sbs(scenario.servers[0].sbs),
        "",
        *_capacity(scenario, summary),
    ]:
        say(line)


def _world(scenario: Scenario) -> Iterator[str]:
    run, network = scenario.run, scenario.network
    yield f"{scenario.name}: {scenario.description.strip().partition(chr(10))[0]}"
    yield (
        f"  run       {run.horizon_s:g} s of arrivals, the first {run.warmup_s:g} s not counted, "
        f"{run.replications} replications, seed {run.seed}"
    )
    yield f"  policies  {', '.join(entry.label for entry in scenario.policies)}"
    yield (
        f"  network   {network.cells} cells of {network.radius_m:g} m, {network.users} users, "
        f"{network.servers} servers, backhaul {1e3 * network.backhaul_s:g} ms"
    )
    scheduling = scenario.scheduling
    when = "at every event" if scheduling.epoch_s is None else f"every {1e3 * scheduling.epoch_s:g} ms"
    slicing = scheduling.slicing
    slices = "fluid sharing" if slicing.slice_s == 0 else f"slices of {1e3 * slicing.slice_s:g} ms"
    yield (
        f"  schedule  {scheduling.lane_model.name}, a decision {when}, {slices}, {1e3 * slicing.switch_s:g} ms a switch"
    )


def _requests(summary: WorkloadSummary) -> Iterator[str]:
    yield f"requests ({summary.requests:,} sampled of replication 0)   mean      p5     p50     p95       max"
    rows = (
        ("prompt tokens", summary.prompt_tokens),
        ("output tokens", summary.output_tokens),
        ("deadline in s", summary.deadline_s),
        ("acceptance rate", summary.acceptance_rate),
    )
    for name, spread in rows:
        low, median, high, _ = spread.quantiles
        yield f"  {name:<30} {spread.mean:>12.4g} {low:>7.4g} {median:>7.4g} {high:>7.4g} {spread.largest:>9.4g}"
    if summary.cut:
        yield f"  {summary.cut:,} of them are cut to the context of the target model"


def _radio(scenario: Scenario, summary: WorkloadSummary) -> Iterator[str]:
    radio = scenario.radio
    yield f"radio: channel {radio.channel.name}, {radio.rate_law.name}"
    yield f"  uplink    {_link(radio.uplink)}"
    yield f"  downlink  {_link(radio.downlink)}{', streamed' if radio.streamed else ', when complete'}"
    bits = summary.prompt_tokens.mean * radio.bits_per_token + summary.payload_bits.mean
    for time in upload_times(scenario, bits):
        yield f"  upload of the mean prompt ({bits / 8e3:,.1f} kB) {time.where}: {_seconds(time)}"


def _seconds(time: UploadTime) -> str:
    return f"{1e3 * time.seconds:,.1f} ms at {time.snr_db:.1f} dB"


def _link(link: LinkSettings) -> str:
    power_w = link.power_w + link.power_density_w_hz * link.bandwidth_hz
    return f"{link.bandwidth_hz / 1e6:g} MHz {link.allocator.name}, {w_to_dbm(power_w):.1f} dBm"


def _server(spec: ServerSpec) -> Iterator[str]:
    yield f"server: {spec.gpu.name}, {spec.usable_memory_bytes / GIB:.2f} GiB usable"
    yield f"  target    {spec.target.name}, {spec.target.weight_bytes / GIB:.2f} GiB, law {spec.target_law.name}"
    yield f"  KV room   {spec.free_bytes(uses_sd=False) / GIB:.2f} GiB without a draft model"
    if spec.draft is not None and spec.draft_law is not None:
        draft = f"{spec.draft.name}, {spec.draft.weight_bytes / GIB:.2f} GiB, law {spec.draft_law.name}"
        yield f"  draft     {draft}, length {spec.draft_length}"
        yield f"  KV room   {spec.free_bytes(uses_sd=True) / GIB:.2f} GiB with it"


def _sbs(sbs: Sbs | None) -> Iterator[str]:
    if sbs is None:
        return
    node, fronthaul = sbs.node, sbs.fronthaul
    room = f"room for {node.kv_room_tokens():,.0f} tokens beside {node.llm.name}"
    yield f"  SBS       {node.gpu.name} at every cell, law {node.law.name}, {room}; used by the discipline pipeline"
    if math.isinf(fronthaul.delay_s):
        yield "  fronthaul down: the server decodes alone"
        return
    bits = f"{fronthaul.draft_token_bits:g} bits a draft, {fronthaul.verified_token_bits:g} a verdict"
    queueing = ", one transfer at a time" if fronthaul.queueing else ""
    yield f"  fronthaul {fronthaul.rate_bps / 1e9:g} Gbit/s, {1e3 * fronthaul.delay_s:g} ms, {bits}{queueing}"


def _capacity(scenario: Scenario, summary: WorkloadSummary) -> Iterator[str]:
    request = MeanRequest(summary.prompt_tokens.mean, summary.output_tokens.mean, summary.acceptance_rate.mean)
    server = scenario.servers[0]
    offered = summary.rate_hz / len(scenario.servers)
    if math.isinf(server.spec.usable_memory_bytes):
        yield "capacity of one server: not estimated, its memory is not limited"
        return
    yield "capacity of one server for mean requests (no queue, no padding, no deadline: an upper bound)"
    yield f"  offered   {offered:.3g} requests/s a server, {summary.rate_hz:.3g} in all"
    for mode in modes_of(server.spec):
        yield _mode(mode_capacity(server.spec, mode, request, server.acceptance), offered)


def _mode(capacity: ModeCapacity, offered: float) -> str:
    load = f"{100 * offered / capacity.requests_per_s:.0f} % used" if capacity.requests_per_s > 0 else "none fits"
    return (
        f"  {capacity.mode:<9} {capacity.alone_s:.3g} s of GPU alone, {capacity.batched_s:.3g} s in a batch of "
        f"{capacity.kv_room:,.1f} that fills the memory: {capacity.requests_per_s:.3g} requests/s, {load}"
    )
