"""Tests of the split of the uplink band among uploads."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from balancesim.core.pipeline_bandwidth import (
    rate_bps,
    split_equal_finish,
    split_equal_finish_density,
    split_uniform,
    upload_times_s,
)


def numeric_optimum(times, count, total):
    """Minimise the slowest upload over the simplex: an epigraph programme for SLSQP, in units of the even split."""
    even = total / count
    start = np.append(np.full(count, 1.0), float(times(np.full(count, even)).max()))
    scale = start[-1]
    start[-1] = 1.0
    result = minimize(
        lambda x: x[-1],
        start,
        jac=lambda x: np.append(np.zeros(count), 1.0),
        method="SLSQP",
        bounds=[(1e-6, count)] * count + [(0.0, 2.0)],
        constraints=[
            {"type": "ineq", "fun": lambda x: x[-1] - times(x[:-1] * even) / scale},
            {"type": "ineq", "fun": lambda x: 1 - x[:-1].sum() / count},
        ],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert result.success, result.message
    return float(times(result.x[:-1] * even).max())


def test_closed_form_by_hand():
    """D/η = 2, 1, 1 of 8 Hz: half the band for the first; all end at (2+1+1)/8 s."""
    bits, efficiency = np.array([4.0, 1.0, 3.0]), np.array([2.0, 1.0, 3.0])
    split = split_equal_finish(bits, efficiency, 8.0)
    assert split.tolist() == [4.0, 2.0, 2.0]
    assert upload_times_s(bits, efficiency, split).tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("seed", range(8))
def test_closed_form_equals_numeric_minimisation(seed):
    """The closed form's slowest upload is the numeric minimum to 1e-6."""
    rng = np.random.default_rng(seed)
    bits, efficiency = rng.uniform(1e3, 1e5, 5), rng.uniform(0.5, 8, 5)
    closed = upload_times_s(bits, efficiency, split_equal_finish(bits, efficiency, 2e7)).max()
    best = numeric_optimum(lambda band: bits / (band * efficiency), 5, 2e7)
    assert closed == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_density_noise_split_equals_numeric_minimisation(seed):
    """With noise N0·b the equal-finish solution is the numeric minimum to 1e-6 and uses the whole band."""
    rng = np.random.default_rng(seed)
    bits, snr_hz = rng.uniform(1e3, 1e5, 4), 10 ** rng.uniform(5, 8, 4)
    split = split_equal_finish_density(bits, snr_hz, 2e7)
    times = bits / rate_bps(split, snr_hz)
    assert split.sum() == pytest.approx(2e7, rel=1e-9)
    assert times.max() == pytest.approx(times.min(), rel=1e-9)
    best = numeric_optimum(lambda band: bits / rate_bps(band, snr_hz), 4, 2e7)
    assert times.max() == pytest.approx(best, rel=1e-6)


def test_density_noise_differs_from_the_closed_form():
    """A user deep in noise needs more than its share b ∝ D/η at equal bandwidths."""
    bits, snr_hz = np.array([1e4, 1e4]), np.array([1e4, 1e9])
    split = split_equal_finish_density(bits, snr_hz, 1e6)
    at_half = np.log2(1 + snr_hz / 5e5)
    closed = split_equal_finish(bits, at_half, 1e6)
    assert (bits / rate_bps(split, snr_hz)).max() < (bits / rate_bps(closed, snr_hz)).max()


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.1, 10)), min_size=1, max_size=20), st.floats(1e3, 1e9))
def test_closed_form_uses_the_band_and_ends_together(users, total):
    """The shares sum to B and every upload takes (1/B)·Σ D/η."""
    bits, efficiency = np.array(users).T
    split = split_equal_finish(bits, efficiency, total)
    expected = (bits / efficiency).sum() / total
    assert split.sum() == pytest.approx(total)
    assert upload_times_s(bits, efficiency, split) == pytest.approx(expected)


def test_uniform_split():
    """B/K each; nobody gets nothing from an empty list."""
    assert split_uniform(np.ones(4), 8.0).tolist() == [2.0] * 4
    assert split_uniform(np.ones(0), 8.0).tolist() == []


def test_users_without_bits_get_no_band():
    """An empty upload takes no band and no time in both splits."""
    bits = np.array([0.0, 10.0])
    assert split_equal_finish(bits, np.ones(2), 4.0).tolist() == [0.0, 4.0]
    density = split_equal_finish_density(bits, np.full(2, 1e3), 4.0)
    assert density[0] == 0.0
    assert density[1] == pytest.approx(4.0)
    assert split_equal_finish(np.zeros(2), np.ones(2), 4.0).tolist() == [0.0, 0.0]
    assert split_equal_finish_density(np.zeros(2), np.ones(2), 4.0).tolist() == [0.0, 0.0]
    assert upload_times_s(bits, np.ones(2), np.zeros(2)).tolist() == [0.0, math.inf]


def test_users_in_outage_are_refused():
    """A user without rate would make every split infinite: an error, not NaN."""
    with pytest.raises(ValueError, match="efficiency_bps_hz must be positive"):
        split_equal_finish(np.ones(2), np.array([1.0, 0.0]), 4.0)
    with pytest.raises(ValueError, match="snr_hz must be positive"):
        split_equal_finish_density(np.ones(2), np.array([1.0, 0.0]), 4.0)
