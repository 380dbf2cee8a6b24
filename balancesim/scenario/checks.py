"""What must hold between the sections of a scenario."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from balancesim.arrivals import PerReplication
from balancesim.core.candidates import Candidates
from balancesim.core.decision import Decision
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.problem import LaneModel, Problem, is_coupled
from balancesim.core.radio import RadioLinks
from balancesim.core.server import ServerSpec
from balancesim.scenario.policy_list import PolicyEntry
from balancesim.scenario.settings import Network, RadioSettings, RunSettings, SchedulingSettings, ServerSettings
from balancesim.scenario.validation import Faults
from balancesim.streams import Streams
from balancesim.workload import Workload


def check_trace(workload: Workload, run: RunSettings, faults: Faults) -> None:
    """Files must be readable, and a replay must have a window for every replication."""
    last = Streams(run.seed, run.replications - 1)
    key = "requests.arrivals"
    try:
        if isinstance(workload.arrivals, PerReplication):
            workload.arrivals.for_replication(last, workload.horizon_s)
        key = "requests.lengths"
        workload.check(run.replications)
    except (ValueError, OSError) as error:
        faults.note(key, ValueError(str(error)))
    except StopIteration:
        faults.add("requests.arrivals", "no request arrives")


def check_channel(radio: RadioSettings, network: Network, faults: Faults) -> None:
    """A channel must have what it asks for: a carrier, antenna heights."""
    distance_m = np.array([network.radius_m])
    links = RadioLinks(
        np.zeros(1, np.int64), distance_m, radio.carrier_hz, network.site_height_m, network.user_height_m
    )
    try:
        radio.channel.los_probability(links)
        for is_los in (True, False):
            radio.channel.pathloss_db(links, np.array([is_los]))
    except ValueError as error:
        faults.note("radio.channel", error)


def check_policies(
    entries: Sequence[PolicyEntry], server: ServerSettings, lane_model: LaneModel, faults: Faults
) -> None:
    """Every policy must answer a problem of one candidate on this server: sd_only, say, needs a draft model."""
    for entry in entries:
        model = entry.lane_model or lane_model
        try:
            policy = entry.make()
            check_discipline(policy, model, server.spec)
            decision: object = policy.decide(probe(server.under(model), model))
        except ValueError as error:
            path, _, rule = str(error).rpartition(": ")
            known = path.startswith(("server.", "sbs"))
            faults.add(path if known else f"policy.{entry.label}", f"{rule} (policy {entry.label})")
        except Exception as error:  # a user's policy may fail in any way
            faults.add(f"policy.{entry.label}", f"fails on a problem of one candidate: {type(error).__name__}: {error}")
        else:
            if not isinstance(decision, Decision):
                faults.add(f"policy.{entry.label}", f"decide(problem) must return a Decision, got {decision!r}")


def check_discipline(policy: object, lane_model: LaneModel, spec: ServerSpec) -> None:
    """Raise where a policy does not plan for a discipline, or the server's memory is not what it needs.

    A policy of the two-node pipeline says so by ``disciplines = ("pipeline",)``; one that says nothing is for the
    disciplines of a single server whose lanes share the GPU by slices.
    """
    pipelined = isinstance(lane_model, PipelineLanes)
    spoken = getattr(policy, "disciplines", None)
    if lane_model.name not in spoken if spoken is not None else is_coupled(lane_model):
        rule = "must be another" if spoken is None else f"must be {' or '.join(spoken)}"
        raise ValueError(f'discipline {rule} for this policy, got {lane_model.name}; give it its own, discipline = "…"')
    if not pipelined and math.isinf(spec.usable_memory_bytes):
        raise ValueError(f"server.unlimited_memory: must be false under the discipline {lane_model.name}, got true")


def probe(spec: ServerSpec, lane_model: LaneModel) -> Problem:
    """Return a problem of one short request without a deadline, its prompt at the server."""
    one, zero = np.ones(1), np.zeros(1)
    candidates = Candidates(
        request_id=np.zeros(1, np.int64),
        prompt_tokens=np.ones(1, np.int64),
        output_tokens=np.ones(1, np.int64),
        acceptance_rate=one / 2,
        slack_s=np.full(1, np.inf),
        upload_s=zero.copy(),
        waited_s=zero.copy(),
        prompt_bits=zero.copy(),
        spectral_efficiency_bps_hz=one.copy(),
    )
    return Problem(now_s=0.0, epoch=0, server=spec, lane_model=lane_model, candidates=candidates)


def check_vocabularies(spec: ServerSpec) -> list[str]:
    """Return a warning when draft and target do not share their tokens (model.md §10: no error)."""
    draft = spec.draft
    if draft is None or not draft.vocab_family or not spec.target.vocab_family:
        return []
    if draft.vocab_family == spec.target.vocab_family:
        return []
    return [
        f"server.draft: warning: {draft.name} ({draft.vocab_family}) and {spec.target.name} "
        f"({spec.target.vocab_family}) have different vocabularies; a real pair would need translation"
    ]


def check_scheduling(settings: SchedulingSettings, entries: Sequence[PolicyEntry], faults: Faults) -> None:
    """A switch must cost less than the smallest window that a policy may choose."""
    slicing = settings.slicing
    if slicing.slice_s == 0 or slicing.switch_s == 0:
        return
    if slicing.switch_s >= slicing.slice_s:
        faults.add(
            "scheduling.switch_ms",
            f"must be below slice_ms = {slicing.slice_s * 1e3:g}, got {slicing.switch_s * 1e3:g}",
        )
        return
    for entry in entries:
        share = _attribute(entry, "smallest_gpu_share")
        if isinstance(share, float) and 0 < share < 1 and slicing.switch_s >= share * slicing.slice_s:
            faults.add(
                "scheduling.switch_ms",
                f"must be below the smallest window of policy {entry.label}, {share * slicing.slice_s * 1e3:g} ms, "
                f"got {slicing.switch_s * 1e3:g}; use a longer slice or larger shares",
            )


def _attribute(entry: PolicyEntry, name: str) -> Any:
    """Return what a policy says of itself, or None when it has faults of its own or does not say."""
    try:
        return getattr(entry.make(), name, None)
    except ValueError:
        return None
