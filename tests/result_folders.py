"""Result folders for tests: rows made by hand, and small worlds drawn from a seed."""

from pathlib import Path

import numpy as np

from balancesim.columns import EpochRow, GpuRow, RequestRow
from balancesim.core.request import Mode, Outcome, RejectReason
from balancesim.manifest import RunInfo, RunSummary
from balancesim.recorder import Recorder

SCENARIO = {
    "description": "two servers",
    "run": {"horizon_s": 100.0, "warmup_s": 10.0, "policies": ["balance", "ad_only", "sd_only"], "replications": 3},
    "requests": {"ttft_target_s": 2.0},
    "policy": {"balance": {"share_step": 0.1}},
}


def request_row(request_id: int, arrival_s: float, outcome: Outcome, **changes: object) -> RequestRow:
    """Return a request that asks for 11 tokens within 5 s, sent and answered on AD unless ``changes`` say otherwise.

    Upload takes 0.5 s from the arrival, waiting 0.25 s, prefill 0.25 s, decoding 2 s, the downlink 0.125 s.
    """
    t = arrival_s
    row = RequestRow(
        request_id=request_id,
        user_id=request_id % 7,
        cell_id=0,
        server_id=request_id % 2,
        task="",
        prompt_tokens=100,
        output_tokens=11,
        predicted_output_tokens=12,
        acceptance_rate=0.8,
        predicted_acceptance_rate=0.75,
        payload_bits=0.0,
        deadline_s=5.0,
        mode=Mode.AD,
        lane_id=0,
        draft_length=0,
        outcome=outcome,
        reject_reason=None,
        arrival_s=t,
        upload_start_s=t,
        upload_end_s=t + 0.5,
        admitted_s=t,
        prefill_start_s=t + 0.75,
        server_first_token_s=t + 1.0,
        server_last_token_s=t + 3.0,
        user_first_token_s=t + 1.125,
        user_last_token_s=t + 3.125,
        tokens_out=11,
        draft_rounds=0,
        drafted_tokens=0,
        accepted_tokens=0,
        truncated=False,
        preemptions=0,
        cached_tokens=0,
        uplink_sinr=100.0,
        downlink_sinr=None,
    )
    return row._replace(**changes)  # type: ignore[arg-type]


#: Timestamps and lane of a request that was never admitted.
NEVER_IN = {
    "mode": None,
    "lane_id": None,
    "draft_length": None,
    "upload_start_s": None,
    "upload_end_s": None,
    "admitted_s": None,
    "prefill_start_s": None,
    "server_first_token_s": None,
    "server_last_token_s": None,
    "user_first_token_s": None,
    "user_last_token_s": None,
    "tokens_out": 0,
    "uplink_sinr": None,
}


def epoch_row(epoch_s: float, **changes: object) -> EpochRow:
    """Return a decision with an AD lane and an SD lane, two requests in each."""
    row = EpochRow(
        server_id=0,
        epoch=0,
        epoch_s=epoch_s,
        candidates=5,
        residents=0,
        rejected=1,
        admitted=4,
        admitted_ad=2,
        admitted_sd=2,
        gpu_share_ad=0.25,
        memory_share_ad=0.5,
        lane_id=(0, 1),
        lane_mode=(Mode.AD, Mode.SD),
        lane_gpu_share=(0.25, 0.75),
        lane_memory_share=(0.5, 0.5),
        lane_admitted=(2, 2),
        kv_used_bytes=2e9,
        kv_peak_bytes=3e9,
        kv_capacity_bytes=4e9,
        predicted_finish_s=1.5,
        measured_finish_s=2.0,
    )
    return row._replace(**changes)  # type: ignore[arg-type]


def gpu_row(start_s: float, end_s: float, **changes: object) -> GpuRow:
    """Return a span of the AD lane without work unless ``changes`` say so."""
    row = GpuRow(
        server_id=0,
        lane_id=0,
        mode=Mode.AD,
        start_s=start_s,
        end_s=end_s,
        steps=10,
        batch_size=2,
        tokens=20,
        prefill_s=0.0,
        decode_s=0.0,
        draft_s=0.0,
        verify_s=0.0,
        switch_s=0.0,
    )
    return row._replace(**changes)  # type: ignore[arg-type]


def run_info(policy: str = "ad_only", replication: int = 0, **changes: object) -> RunInfo:
    """Return what a run of the test scenario is."""
    values: dict[str, object] = {"seed": 7, "scenario": SCENARIO} | changes
    return RunInfo(policy, replication, **values)  # type: ignore[arg-type]


def summary(offered: int, **changes: object) -> RunSummary:
    """Return the summary of a run with two servers that ended at 120 s."""
    values: dict[str, object] = {
        "wall_s": 0.5,
        "events": 1000,
        "offered": offered,
        "end_s": 120.0,
        "servers": 2,
        "decisions": 100,
        "decision_wall_s": 0.25,
        "decision_wall_max_s": 0.02,
    } | changes
    return RunSummary(**values)  # type: ignore[arg-type]


def drawn_run(folder: Path, policy: str, replication: int, served: float) -> None:
    """Write a run in which each of 200 requests is served with the given chance; luck is shared by the policies."""
    rng = np.random.default_rng(replication)
    arrivals = np.sort(rng.uniform(0, 100, 200))
    luck, decode_s = rng.random(200), rng.lognormal(0, 0.6, 200)
    with Recorder(folder.parent, folder.name, run_info(policy, replication)) as recorder:
        for i, t in enumerate(arrivals.tolist()):
            end_s = t + 1.0 + decode_s[i] / served
            changes: dict[str, object] = {"server_last_token_s": end_s, "user_last_token_s": end_s + 0.125}
            changes["deadline_s"] = 99.0
            if luck[i] < served:
                recorder.request(request_row(i, t, Outcome.COMPLETED, **changes))
            elif luck[i] < served + 0.1:
                recorder.request(request_row(i, t, Outcome.LATE, **changes))
            elif luck[i] < 0.9:
                changes |= NEVER_IN | {"reject_reason": RejectReason.POLICY}
                recorder.request(request_row(i, t, Outcome.REJECTED, **changes))
            else:
                recorder.request(request_row(i, t, Outcome.EXPIRED, **changes | NEVER_IN))
        for epoch in range(100):
            used = float(1e9 * (1 + rng.random()))
            recorder.epoch(epoch_row(float(epoch), epoch=epoch, kv_used_bytes=used, kv_peak_bytes=1.5 * used))
            if policy != "sd_only":
                recorder.gpu(gpu_row(epoch, epoch + 1.0, prefill_s=0.1, decode_s=0.3))
            if policy != "ad_only":
                work = {"prefill_s": 0.05, "draft_s": 0.15, "verify_s": 0.2, "switch_s": 0.01}
                recorder.gpu(gpu_row(epoch, epoch + 1.0, lane_id=1, mode=Mode.SD, **work))
        recorder.close(summary(200))


def three_policies(folder: Path, replications: int = 3) -> Path:
    """Write a folder in which balance serves most, sd_only least."""
    for policy, served in (("balance", 0.75), ("ad_only", 0.65), ("sd_only", 0.55)):
        for replication in range(replications):
            drawn_run(folder, policy, replication, served)
    return folder
