"""Splitting a band among uploads so that the slowest ends as early as possible (model.md §2, [P2])."""

import math

import numpy as np

from balancesim.units import FloatArray

_LOG2_E = math.log2(math.e)


def split_equal_finish(upload_bits: FloatArray, efficiency_bps_hz: FloatArray, total_hz: float) -> FloatArray:
    """Return b_k* = B·(D_k/η_k)/Σ_j (D_j/η_j): all uploads end together, at T_up* = (1/B)·Σ_j D_j/η_j [P2].

    Holds when η_k does not depend on b_k (noise of a fixed power, as in [P2]). Optimal: max_k D_k/(b_k η_k) is at
    least any weighted mean of its terms, and with weights b_k/B that mean is (1/B)·Σ D_k/η_k. Users without bits get
    nothing. Users in outage (η = 0) must be left out first (`pipeline_instance.admit`): ValueError.
    """
    if np.any(efficiency_bps_hz <= 0):
        raise ValueError("efficiency_bps_hz must be positive; leave users in outage out")
    loads = upload_bits / efficiency_bps_hz
    total = loads.sum()
    return np.zeros(len(loads)) if total == 0 else total_hz * loads / total


def split_uniform(upload_bits: FloatArray, total_hz: float) -> FloatArray:
    """Return B/K for everyone: the baseline "uniform bandwidth" of [P2]."""
    return np.full(len(upload_bits), total_hz / max(len(upload_bits), 1))


def upload_times_s(upload_bits: FloatArray, efficiency_bps_hz: FloatArray, bandwidth_hz: FloatArray) -> FloatArray:
    """Return D_k/(b_k·η_k); 0 without bits, infinite without rate."""
    rates = bandwidth_hz * efficiency_bps_hz
    times = np.full(len(rates), math.inf)
    np.divide(upload_bits, rates, out=times, where=rates > 0)
    return np.where(upload_bits > 0, times, 0.0)


def rate_bps(bandwidth_hz: FloatArray, snr_hz: FloatArray) -> FloatArray:
    """Return b·log2(1 + a/b), the rate when noise grows with the bandwidth; a = p·g/N0 in Hz. 0 at b = 0."""
    band = np.where(bandwidth_hz > 0, bandwidth_hz, 1.0)
    return np.where(bandwidth_hz > 0, band * np.log2(1 + snr_hz / band), 0.0)


def _bandwidth_for_rate(target_bps: FloatArray, snr_hz: FloatArray) -> FloatArray:
    """Return the b with b·log2(1 + a/b) = r; inf when r is at or above the wideband limit a·log2(e).

    With x = a/b the equation reads log2(1+x)/x = r/a, whose left side falls from log2(e) to 0: bisection on log x.
    """
    ratio = target_bps / snr_hz
    low, high = np.full(len(ratio), -60.0), np.full(len(ratio), 700.0)
    for _ in range(70):
        middle = 0.5 * (low + high)
        x = np.exp(middle)
        above = np.log1p(x) * _LOG2_E / x > ratio
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    band = snr_hz / np.exp(0.5 * (low + high))
    return np.where(ratio <= 0, 0.0, np.where(ratio >= _LOG2_E * (1 - 1e-12), math.inf, band))


def split_equal_finish_density(upload_bits: FloatArray, snr_hz: FloatArray, total_hz: float) -> FloatArray:
    """Return the optimal split when the noise power is N0·b_k, so that η_k depends on b_k.

    ``snr_hz`` is a_k = p·g_k/N0. All uploads still end together (else bandwidth moved from the earliest to the latest
    user, whose rate rises strictly with it, would help): find T with Σ_k b_k(D_k/T) = B by bisection on log T. The
    left side falls in T, from infinity at the wideband limit max_k D_k/(a_k·log2 e) to 0. Users without bits get
    nothing; users without signal must be left out first: ValueError.
    """
    if np.any(snr_hz <= 0):
        raise ValueError("snr_hz must be positive; leave users in outage out")
    bits = np.asarray(upload_bits, dtype=float)
    if not np.any(bits > 0):
        return np.zeros(len(bits))
    share = total_hz / np.count_nonzero(bits)
    rates = rate_bps(np.full(len(bits), share), snr_hz)
    # equal bandwidths are one feasible split, so its slowest upload bounds T from above
    low = math.log(float((bits / (snr_hz * _LOG2_E)).max()))
    high = math.log(float((bits / rates).max()))
    for _ in range(100):
        middle = 0.5 * (low + high)
        needed = float(_bandwidth_for_rate(bits / math.exp(middle), snr_hz).sum())
        low, high = (middle, high) if needed > total_hz else (low, middle)
    return _bandwidth_for_rate(bits / math.exp(high), snr_hz)
