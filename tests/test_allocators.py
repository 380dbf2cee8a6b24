"""How the transfers of a cell share its bandwidth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from balancesim.allocators import ALLOCATORS, PerRequest, Proportional, Shared

every_allocator = pytest.mark.parametrize("allocator", [make() for make in ALLOCATORS], ids=lambda a: a.name)


def test_per_request_gives_everybody_the_whole():
    """[P1]: a bandwidth for each request."""
    np.testing.assert_array_equal([5.0, 5.0], PerRequest().allocate(np.array([1.0, 9.0]), np.ones(2), 5.0))


def test_shared_gives_equal_parts():
    """12 Hz among three are 4 Hz each, whatever their channel."""
    actual = Shared().allocate(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 9.0]), 12.0)
    np.testing.assert_array_equal([4.0, 4.0, 4.0], actual)


def test_proportional_by_hand():
    """D/η = 4/2, 3/1, 5/5 = 2, 3, 1: of 12 Hz 4, 6 and 2, and each needs 4/(2·4) = 3/(1·6) = 5/(5·2) = 0.5 s = 6/12."""
    bits, efficiency = np.array([4.0, 3.0, 5.0]), np.array([2.0, 1.0, 5.0])
    actual = Proportional().allocate(bits, efficiency, 12.0)
    np.testing.assert_allclose([4.0, 6.0, 2.0], actual)
    np.testing.assert_allclose(0.5, bits / (efficiency * actual))


def test_proportional_leaves_out_who_cannot_send():
    """Transfers in outage and finished ones get nothing; the others share everything."""
    actual = Proportional().allocate(np.array([1.0, 0.0, 3.0, 3.0]), np.array([0.0, 2.0, 1.0, 3.0]), 8.0)
    np.testing.assert_allclose([0.0, 0.0, 6.0, 2.0], actual)
    np.testing.assert_array_equal([0.0, 0.0], Proportional().allocate(np.ones(2), np.zeros(2), 8.0))


def slowest_s(bits, efficiency, hertz):
    return float(np.max(bits / (efficiency * hertz)))


@pytest.mark.parametrize("seed", range(5))
def test_closed_form_is_the_minimum(seed):
    """[P2]: the slowest upload under the closed form is that of a numeric minimisation, to 1e-6 relative."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    bits, efficiency, total_hz = rng.uniform(1, 20, count), rng.uniform(0.2, 8, count), float(rng.uniform(5, 50))
    closed = Proportional().allocate(bits, efficiency, total_hz)
    assert slowest_s(bits, efficiency, closed) == pytest.approx((bits / efficiency).sum() / total_hz, rel=1e-12)

    # minimise T over (b/B, T) with T·b_k ≥ D_k/η_k and Σ b_k ≤ B, from equal shares
    need = bits / efficiency / total_hz
    start = np.append(np.full(count, 1 / count), need.max() * count)
    found = minimize(
        lambda x: x[-1],
        start,
        method="SLSQP",
        bounds=[(1e-9, 1.0)] * count + [(1e-9, None)],
        constraints=[
            {"type": "ineq", "fun": lambda x: x[:-1] * x[-1] - need},
            {"type": "ineq", "fun": lambda x: 1.0 - x[:-1].sum()},
        ],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.x[-1] == pytest.approx(slowest_s(bits, efficiency, closed), rel=1e-6)


@given(st.lists(st.tuples(st.floats(0.1, 1e6), st.floats(0.01, 8.0), st.floats(0.01, 1.0)), min_size=1, max_size=8))
def test_no_other_split_is_faster(rows):
    """Any other split of the band leaves some upload at least as late."""
    bits, efficiency, weights = np.array(rows).T
    best = slowest_s(bits, efficiency, Proportional().allocate(bits, efficiency, 3.0))
    assert slowest_s(bits, efficiency, 3.0 * weights / weights.sum()) >= best * (1 - 1e-12)


@every_allocator
def test_allocation_follows_the_transfers(allocator):
    """Shares are not negative, coupled ones fill the band exactly, order does not matter, inputs stay."""
    rng = np.random.default_rng(3)
    bits, efficiency = rng.uniform(1, 5, 9), rng.uniform(0.5, 6, 9)
    copies = bits.copy(), efficiency.copy()
    hertz = allocator.allocate(bits, efficiency, 7.0)
    order = rng.permutation(9)
    np.testing.assert_allclose(hertz[order], allocator.allocate(bits[order], efficiency[order], 7.0))
    assert (hertz >= 0).all()
    assert hertz.sum() == pytest.approx(7.0 if allocator.coupled else 63.0)
    np.testing.assert_array_equal(copies, (bits, efficiency))


@every_allocator
def test_nobody_to_share(allocator):
    """No transfers, no shares."""
    assert len(allocator.allocate(np.empty(0), np.empty(0), 7.0)) == 0
