"""From a scenario to the processes: the cells with their links, and the set-up of each server."""

from collections.abc import Iterable

import numpy as np
import simpy

from balancesim.channels import power_gain
from balancesim.core.radio import RadioLinks
from balancesim.processes.cell import Cell
from balancesim.processes.links import Air
from balancesim.processes.setup import ServerSetup
from balancesim.processes.shared_link import make_link
from balancesim.scenario.settings import LinkSettings, Scenario
from balancesim.streams import Streams
from balancesim.topology import Topology
from balancesim.units import FloatArray


def build_cells(env: simpy.Environment, scenario: Scenario, topology: Topology, streams: Streams) -> list[Cell]:
    """Return the cells. Both directions have the same large-scale gain and fade independently."""
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


def server_setup(
    scenario: Scenario, policy_label: str, server_id: int, streams: Streams, cells: Iterable[Cell]
) -> ServerSetup:
    """Return what a server is made of: its hardware, its own instance of the policy, and its cells."""
    settings, scheduling = scenario.servers[server_id], scenario.scheduling
    return ServerSetup(
        server_id=server_id,
        spec=settings.spec,
        lane_model=scheduling.lane_model,
        slicing=scheduling.slicing,
        acceptance=settings.acceptance,
        luck=streams.keyed("acceptance"),
        policy=scenario.policy(policy_label).make(),
        cells={cell.cell_id: cell for cell in cells if scenario.network.cell_server[cell.cell_id] == server_id},
        epoch_s=scheduling.epoch_s,
        upload_on_admission=scheduling.upload_on_admission,
        abort_late=scheduling.abort_late,
        kv_growth_tokens=scheduling.kv_growth_tokens,
        max_candidates=scheduling.max_candidates,
    )
