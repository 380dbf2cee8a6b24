"""What a scenario's servers and radio can carry, from means: a first look before anything is simulated.

The estimate takes every request as the mean one (Σ of means, no queueing, no padding, no deadlines), so it is an upper
bound to aim with, not a result.
"""

import math
from dataclasses import dataclass

import numpy as np

from balancesim import topology
from balancesim.acceptance import AcceptanceLaw
from balancesim.channels import power_gain
from balancesim.core.latency import decode_steps_s, prefill_s, rounds_s
from balancesim.core.memory import request_kv_bytes
from balancesim.core.radio import RadioLinks
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from balancesim.scenario.settings import Scenario
from balancesim.streams import Streams
from balancesim.units import linear_to_db


@dataclass(frozen=True, slots=True)
class MeanRequest:
    """The mean request of a workload."""

    prompt_tokens: float
    output_tokens: float
    acceptance_rate: float


@dataclass(frozen=True, slots=True)
class ModeCapacity:
    """What one server can carry in one mode, with the whole GPU."""

    mode: Mode
    kv_room: float  #: mean requests that fit into the KV memory at once
    alone_s: float  #: GPU time of a mean request in a batch of one
    batched_s: float  #: GPU time of a mean request in a batch that fills the KV memory
    requests_per_s: float  #: at that batch; 0 when not even one request fits


def mode_capacity(spec: ServerSpec, mode: Mode, request: MeanRequest, law: AcceptanceLaw) -> ModeCapacity:
    """Return the capacity of a server in a mode.

    GPU time of a request in a batch of b: prefill(s)/1 + (steps or rounds) · time(b, c)/b at the mean context
    c = s + n/2; SD needs (n − 1)/E rounds with E tokens per round [L]. kv_room = free / KV bytes of s + n tokens.
    """
    tokens = request.prompt_tokens + request.output_tokens
    free_bytes = spec.free_bytes(uses_sd=mode is Mode.SD)
    room = free_bytes / float(request_kv_bytes(spec, mode, spec.draft_length, tokens))
    alone_s = _request_s(spec, mode, request, law, 1)
    batch = math.floor(room)
    batched_s = _request_s(spec, mode, request, law, batch) if batch >= 1 else math.inf
    return ModeCapacity(mode, room, alone_s, batched_s, 1.0 / batched_s if batched_s > 0 else math.inf)


def _request_s(spec: ServerSpec, mode: Mode, request: MeanRequest, law: AcceptanceLaw, batch: int) -> float:
    prompt, after_first = request.prompt_tokens, max(0.0, request.output_tokens - 1.0)
    prefill = float(prefill_s(spec, mode, 1.0, prompt, prompt**2))
    contexts = batch * (prompt + request.output_tokens / 2)
    if mode is Mode.AD:
        step = decode_steps_s(spec, float(batch), contexts)
        return prefill + after_first * float(step) / batch
    expected = float(np.asarray(law.expected_tokens_per_round(request.acceptance_rate, spec.draft_length)))
    round_s = float(rounds_s(spec, float(batch), contexts, spec.draft_length).total_s)
    return prefill + after_first / expected * round_s / batch


@dataclass(frozen=True, slots=True)
class UploadTime:
    """How long an upload takes one user who has the bandwidth for itself, without fading."""

    where: str
    snr_db: float
    seconds: float  #: inf = out of range


def upload_times(scenario: Scenario, bits: float) -> tuple[UploadTime, ...]:
    """Return the upload time of so many bits for the median user and the user at the 5th percentile of SNR.

    The users are those of replication 0, shadowing included. The 5th percentile is what 3GPP calls the cell edge.
    """
    radio, streams = scenario.radio, Streams(scenario.run.seed, 0)
    world = topology.build(scenario.network, streams)
    heights = scenario.network.site_height_m, scenario.network.user_height_m
    links = RadioLinks(world.user_ids, world.user_distance_m, radio.carrier_hz, *heights)
    gain = power_gain(radio.channel, links, streams, shadowing=radio.shadowing)
    bandwidth_hz = radio.uplink.bandwidth_hz
    snr = gain * radio.uplink.snr_per_gain(bandwidth_hz)
    times = []
    for where, share in (("median user", 0.5), ("cell edge (5 % of users are worse)", 0.05)):
        at = np.quantile(snr, [share], method="lower")
        rate_bps = bandwidth_hz * float(radio.rate_law.spectral_efficiency_bps_hz(at)[0])
        seconds = bits / rate_bps if rate_bps > 0 else math.inf
        times.append(UploadTime(where, float(linear_to_db(float(at[0]))), seconds))
    return tuple(times)


def modes_of(spec: ServerSpec) -> tuple[Mode, ...]:
    """Return the modes that a server can run: SD needs a draft model."""
    return (Mode.AD,) if spec.draft is None else (Mode.AD, Mode.SD)
