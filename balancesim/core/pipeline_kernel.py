"""The recursion of the pipeline, compiled: the planners evaluate it for every transition (`core.pipeline`)."""

import numba
import numpy as np

from balancesim.units import FloatArray

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def last_verification_s(draft_s: FloatArray, verify_s: FloatArray, to_mbs_s: FloatArray, to_sbs_s: FloatArray) -> float:
    """Return V(N, M) of `core.pipeline.pipeline_schedule`; times have shape (N, M), the fronthaul's (M,)."""
    rounds, batches = draft_s.shape
    verdict = np.full(batches, -np.inf)  # when the batch's last verdict is back at the SBS
    sbs = mbs = 0.0
    for n in range(rounds):
        for m in range(batches):
            sbs = max(sbs, verdict[m]) + draft_s[n, m]
            mbs = max(mbs, sbs + to_mbs_s[m]) + verify_s[n, m]
            verdict[m] = mbs + to_sbs_s[m]
    return float(mbs)
