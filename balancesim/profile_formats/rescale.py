"""Tables of a GPU that was not measured, from one that was: stated rules, every row marked ``derived``."""

from dataclasses import replace

import numpy as np

from balancesim.profile_formats.canonical import Part

#: time of an empty kernel on current GPUs (aiconfigurator `mem_empirical_constant_latency`), and kernels of a layer
KERNEL_S = 3e-6
LAYER_KERNELS = 9


def borrowed(part: Part, ratio: float) -> Part:
    """Return times of another GPU: what exceeds the smallest time (launch) is multiplied by ``ratio``."""
    launch = float(part.seconds.min())
    return _derived(part, launch + ratio * (part.seconds - launch))


def less_bandwidth(part: Part, ratio: float, name: str) -> Part:
    """Return times of a card with the same compute and ``ratio`` ≥ 1 times less memory bandwidth.

    dense, head: t' = max(t, launch + ratio·(t at the first node − launch)): the weight read gets slower, the
    compute-bound part beyond the knee stays. Decode attention reads the cache: t' = launch + ratio·(t − launch).
    Prefill attention is compute bound: unchanged.
    """
    if ratio < 1:
        raise ValueError(f"bandwidth ratio must be at least 1, got {ratio}; it is old bandwidth over new")
    if name == "attention_prefill":
        return _derived(part, part.seconds)
    if name == "attention_decode":
        return borrowed(part, ratio)
    launch = min(KERNEL_S * (LAYER_KERNELS if name == "dense" else 1), float(part.seconds[0]))
    return _derived(part, np.maximum(part.seconds, launch + ratio * (part.seconds[0] - launch)))


def _derived(part: Part, seconds: np.typing.NDArray[np.float64]) -> Part:
    return replace(part, seconds=seconds, measured=np.zeros_like(part.measured))
