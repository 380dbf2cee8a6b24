"""From a scenario to the processes: the cells with their links, and the set-up of each server."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import simpy

from balancesim.channels import power_gain
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.pipeline_nodes import Sbs
from balancesim.core.radio import RadioLinks
from balancesim.processes.cell import Cell
from balancesim.processes.links import Air
from balancesim.processes.pipeline_nodes import Mbs, SbsSite
from balancesim.processes.setup import ServerSetup
from balancesim.processes.shared_link import make_link
from balancesim.scenario.settings import LinkSettings, Scenario
from balancesim.streams import Streams
from balancesim.topology import Topology
from balancesim.units import FloatArray


@dataclass(frozen=True)
class World:
    """What the processes of one run are made from."""

    env: simpy.Environment
    scenario: Scenario
    topology: Topology
    streams: Streams


def build_cells(world: World) -> list[Cell]:
    """Return the cells. Both directions have the same large-scale gain and fade independently."""
    env, scenario, topology, streams = world.env, world.scenario, world.topology, world.streams
    radio, network = scenario.radio, scenario.network
    links = RadioLinks(
        topology.user_ids, topology.user_distance_m, radio.carrier_hz, network.site_height_m, network.user_height_m
    )
    gain = power_gain(radio.channel, links, streams, shadowing=radio.shadowing)
    airs = [
        _air(scenario, settings, gain, streams, name)
        for name, settings in (("fading_uplink", radio.uplink), ("fading_downlink", radio.downlink))
    ]
    return [
        Cell(
            cell_id,
            make_link(env, airs[0], radio.uplink.bandwidth_hz, radio.uplink.allocator),
            make_link(env, airs[1], radio.downlink.bandwidth_hz, radio.downlink.allocator),
            float(topology.cell_backhaul_s[cell_id]),
            radio.bits_per_token,
            radio.streamed,
        )
        for cell_id in range(topology.cells)
    ]


def _air(scenario: Scenario, link: LinkSettings, gain: FloatArray, streams: Streams, stream: str) -> Air:
    """Return the channel state of all users in one direction.

    Power and noise are taken over the whole bandwidth of the link: a share of it has the same SINR [A].
    """
    sinr = np.asarray(gain * link.snr_per_gain(link.bandwidth_hz))
    radio = scenario.radio
    users = dict(enumerate(sinr.tolist()))
    return Air(users, radio.fading, radio.coherence_s, radio.rate_law, streams.keyed(stream))


def server_setups(world: World, policy_label: str, cells: Sequence[Cell]) -> list[ServerSetup]:
    """Return what every place of service is made of, with its own instance of the policy, and its cells.

    A place of service is a server with all its cells; under the discipline `pipeline` it is an SBS with its own cell,
    and the SBS of one server share it as their MBS. In the result tables SBS have the numbers of their cells, and the
    GPUs of the MBS those after them.
    """
    scenario = world.scenario
    if not isinstance(scenario.lane_model(policy_label), PipelineLanes):
        return [_setup(world, policy_label, server_id, cells) for server_id in range(len(scenario.servers))]
    mbs: dict[int, Mbs] = {}
    setups = []
    for cell, fronthaul in zip(cells, world.topology.cell_fronthaul, strict=True):
        server_id = scenario.network.cell_server[cell.cell_id]
        setup = _setup(world, policy_label, server_id, [cell])
        sbs = Sbs(setup.spec.nodes.draft, fronthaul)
        shared = mbs.setdefault(server_id, Mbs.of(world.env, len(cells) + server_id, fronthaul))
        site = SbsSite.of(world.env, sbs, shared)
        setups.append(replace(setup, server_id=cell.cell_id, spec=replace(setup.spec, sbs=sbs), site=site))
    return setups


def gpu_names(setups: Sequence[ServerSetup]) -> tuple[str, ...]:
    """Return the name of every GPU of the world, by its number in the result tables."""
    names: dict[int, str] = {}
    for setup in setups:
        spec = setup.spec
        if setup.site is None or spec.sbs is None:
            names[setup.server_id] = spec.gpu.name
        else:
            names[setup.server_id] = spec.sbs.node.gpu.name
            names[setup.site.mbs.server_id] = spec.gpu.name
    return tuple(names[server_id] for server_id in sorted(names))


def _setup(world: World, policy_label: str, server_id: int, cells: Sequence[Cell]) -> ServerSetup:
    scenario = world.scenario
    settings, scheduling, lane_model = (
        scenario.servers[server_id],
        scenario.scheduling,
        scenario.lane_model(policy_label),
    )
    return ServerSetup(
        server_id=server_id,
        spec=settings.under(lane_model),
        lane_model=lane_model,
        slicing=scheduling.slicing,
        acceptance=settings.acceptance,
        luck=world.streams.keyed("acceptance"),
        policy=scenario.policy(policy_label).make(),
        cells={cell.cell_id: cell for cell in cells if scenario.network.cell_server[cell.cell_id] == server_id},
        epoch_s=scheduling.epoch_s,
        upload_on_admission=scheduling.upload_on_admission,
        abort_late=scheduling.abort_late,
        kv_growth_tokens=scheduling.kv_growth_tokens,
        max_candidates=scheduling.max_candidates,
    )
