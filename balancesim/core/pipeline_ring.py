"""Batches that circulate between the two nodes of the pipeline: any start times, any number of rounds (model.md §7).

Both nodes serve one batch at a time in the order in which batches come, and the fronthaul keeps the order in which
transfers were sent. Batches that start together and run equally many rounds then end as the recursion of
`core.pipeline.pipeline_schedule` says: its strict order is that of arrival. Batches may also come later, leave earlier,
or do without drafts (autoregressive decoding on the MBS, which never visits the SBS).
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from balancesim.core.pipeline_times import BatchTimes
from balancesim.units import FloatArray


@dataclass(frozen=True)
class RingBatch:
    """One batch: when it comes, and its times on the nodes and between them, round by round."""

    ready_s: float  #: its prompts are in
    draft_s: FloatArray  #: T_d, shape (N,)
    verify_s: FloatArray  #: T_v, shape (N,)
    to_mbs_s: float  #: fronthaul; not read without drafts
    to_sbs_s: float
    drafts: bool  #: False: autoregressive decoding on the MBS

    @staticmethod
    def of(times: BatchTimes, ready_s: float, drafts: bool, skipped: int = 0) -> "RingBatch":
        """Return the only batch of ``times`` without its first ``skipped`` rounds."""
        return RingBatch(
            ready_s,
            times.draft_s([0])[skipped:, 0],
            times.verify_s([0])[skipped:, 0],
            float(times.to_mbs_s[0]),
            float(times.to_sbs_s[0]),
            drafts,
        )


def ring_ends(batches: Sequence[RingBatch]) -> list[FloatArray]:
    """Return for every batch when each of its verifications ends, shape (N,); inf behind a fronthaul that is down.

    Batches that come at one instant are served in the order given.
    """
    ends: list[list[float]] = [[] for _ in batches]
    number = count()
    # (time, place in the order, at the SBS, batch): a batch waits for one node at a time
    events = [(batch.ready_s, next(number), batch.drafts, m) for m, batch in enumerate(batches) if len(batch.verify_s)]
    heapq.heapify(events)
    sbs = mbs = to_mbs = to_sbs = -math.inf
    while events:
        at, _, drafting, m = heapq.heappop(events)
        batch, done = batches[m], len(ends[m])
        if drafting:
            sbs = max(sbs, at) + float(batch.draft_s[done])
            to_mbs = max(to_mbs, sbs + batch.to_mbs_s)
            heapq.heappush(events, (to_mbs, next(number), False, m))
            continue
        mbs = max(mbs, at) + float(batch.verify_s[done])
        ends[m].append(mbs)
        if done + 1 < len(batch.verify_s):
            to_sbs = max(to_sbs, mbs + batch.to_sbs_s) if batch.drafts else to_sbs
            heapq.heappush(events, (to_sbs if batch.drafts else mbs, next(number), batch.drafts, m))
    return [np.array(times) for times in ends]
