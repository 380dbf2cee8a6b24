"""Two nodes in a pipeline: the recursion of drafting and verification, and its bounds (model.md §7, [P2]).

[P2] is Zhu et al., arXiv 2510.11331 v1; the exact form of the recursion is inferred from its description [A].
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from balancesim.core.pipeline_bandwidth import upload_times_s
from balancesim.core.pipeline_instance import PipelineInstance
from balancesim.core.pipeline_times import BatchTimes, batch_times
from balancesim.units import FloatArray, IntArray, Numeric

Batches = tuple[tuple[int, ...], ...]  #: task indices, batch after batch in the order of the pipeline


@dataclass(frozen=True)
class Schedule:
    """End of every draft phase D(n,m) and verification V(n,m), in seconds after the uploads; shape (..., N, M)."""

    draft_end_s: FloatArray
    verify_end_s: FloatArray

    @property
    def inference_s(self) -> FloatArray:
        """T_inf = V(N, M); 0 without batches or rounds. Shape (...)."""
        if self.verify_end_s.shape[-2] == 0 or self.verify_end_s.shape[-1] == 0:
            return np.zeros(self.verify_end_s.shape[:-2])
        return self.verify_end_s[..., -1, -1]


def pipeline_schedule(
    draft_s: FloatArray, verify_s: FloatArray, to_mbs_s: Numeric = 0.0, to_sbs_s: Numeric = 0.0
) -> Schedule:
    """Return the schedule of N rounds of M batches; everything before the last two axes is a further dimension.

        D(n,m) = max( D(n,m−1), V(n−1,m) + r_m ) + T_d(n,m),   D(n,0) = D(n−1,M),   D(0,·) = 0
        V(n,m) = max( D(n,m) + f_m, V(n,m−1) ) + T_v(n,m),     V(n,0) = V(n−1,M),   V(0,·) = 0

    The SBS drafts the batches in order, round after round; the MBS verifies them in the same order; a batch is drafted
    again when its verdict is back. f_m and r_m are the fronthaul times up and down (0 in [P2]); r_m does not apply to
    round 1, which waits for no verdict. ``draft_s`` and ``verify_s`` have shape (..., N, M).
    """
    shape = np.broadcast_shapes(draft_s.shape, verify_s.shape)
    rounds, batches = shape[-2:]
    up = np.broadcast_to(np.asarray(to_mbs_s, dtype=float), (batches,))
    down = np.broadcast_to(np.asarray(to_sbs_s, dtype=float), (batches,))
    draft_end, verify_end = np.empty(shape), np.empty(shape)
    sbs_free, mbs_free = np.zeros(shape[:-2]), np.zeros(shape[:-2])
    for n in range(rounds):
        for m in range(batches):
            ready = verify_end[..., n - 1, m] + down[m] if n else sbs_free
            sbs_free = np.maximum(sbs_free, ready) + draft_s[..., n, m]
            mbs_free = np.maximum(sbs_free + up[m], mbs_free) + verify_s[..., n, m]
            draft_end[..., n, m], verify_end[..., n, m] = sbs_free, mbs_free
    return Schedule(draft_end, verify_end)


def partition_inference_s(times: BatchTimes, rows: Sequence[int]) -> float:
    """Return T_inf of the batches ``rows`` of ``times``: the last entry of `pipeline_schedule`, compiled."""
    from balancesim.core.pipeline_kernel import last_verification_s  # compiled: not needed by runs without a pipeline

    if not rows:
        return 0.0
    index = np.asarray(rows, dtype=np.int64)
    return float(
        last_verification_s(times.draft_s(index), times.verify_s(index), times.to_mbs_s[index], times.to_sbs_s[index])
    )


def sequential_inference_s(times: BatchTimes, rows: Sequence[int]) -> float:
    """Return T_inf without pipelining: Σ_m of each batch's own loop, drafting and verifying in turn [P2 baseline]."""
    return float(times.loop_sum_s[list(rows)].sum())


@dataclass(frozen=True)
class PipelinePlan:
    """A joint decision and what it predicts. Times in seconds from the moment of the decision."""

    draft_length: int  #: l; 0 = autoregressive decoding on the MBS
    batches: Batches  #: indices into the instance's tasks
    bandwidth_hz: FloatArray  #: b_k, by task; 0 for tasks that are not served
    upload_s: float  #: T_up: the slowest upload
    inference_s: float  #: T_inf
    fits_memory: bool = True  #: False: a baseline's batches exceed a node's memory

    @property
    def total_s(self) -> float:
        """The objective T_up + T_inf of [P2]."""
        return self.upload_s + self.inference_s

    @property
    def served(self) -> tuple[int, ...]:
        """All tasks in some batch."""
        return tuple(task for batch in self.batches for task in batch)


def times_of(instance: PipelineInstance, batches: Batches, draft_length: int) -> BatchTimes:
    """Return the times of any batches: b_m = size, Î_m = the longest input in the batch (padding [P2])."""
    sizes = np.array([len(batch) for batch in batches], dtype=np.int64)
    inputs = np.array([instance.tasks.prompt_tokens[list(batch)].max() for batch in batches], dtype=np.int64)
    return batch_times(instance, sizes, inputs, draft_length)


def fits_memory(instance: PipelineInstance, batches: Batches, draft_length: int) -> bool:
    """Return whether weights and all batches' KV caches fit on both nodes (an unlimited node always fits)."""
    sizes = np.array([len(batch) for batch in batches], dtype=np.int64)
    inputs: IntArray = np.array([instance.tasks.prompt_tokens[list(batch)].max() for batch in batches], np.int64)
    return bool(instance.kv_tokens(sizes, inputs).sum() <= instance.kv_room_tokens(draft_length))


def inference_s(instance: PipelineInstance, batches: Batches, draft_length: int) -> float:
    """Return T_inf of the pipeline over any batches; 0 without batches."""
    if not batches:
        return 0.0
    return partition_inference_s(times_of(instance, batches, draft_length), range(len(batches)))


def slowest_upload_s(instance: PipelineInstance, bandwidth_hz: FloatArray) -> float:
    """Return T_up = max_k D_k/(b_k·η_k); 0 without tasks."""
    tasks = instance.tasks
    times = upload_times_s(tasks.upload_bits, tasks.spectral_efficiency_bps_hz, bandwidth_hz)
    return float(times.max(initial=0.0))
