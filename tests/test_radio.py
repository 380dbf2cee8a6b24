"""Links as columns, table look-up, and transfers over a piecewise-constant rate."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim.core.radio import RadioLinks, block_of, table_efficiency, transfer_end_s

FOREVER = 1_000_000


def end_s(start_s, bits, rates, block_s=1.0, at_hand=64, most_blocks=FOREVER):
    """Carry bits over the given rates, of which ``at_hand`` are told at a time; the last rate lasts."""

    def ahead(block):
        stop = (block // at_hand + 1) * at_hand
        return np.array([float(rates[min(k, len(rates) - 1)]) for k in range(block, stop)])

    return transfer_end_s(start_s, bits, block_s, ahead, most_blocks)


def links(**changes):
    columns = {"carrier_hz": 3.5e9, "site_height_m": 10.0, "user_height_m": 1.5} | changes
    return RadioLinks(np.array([0, 1]), np.array([30.0, 0.0]), **columns)


def test_distance_in_space_is_pythagoras():
    """The distance between antennas is the hypotenuse of the distance in the plane and the difference of heights."""
    np.testing.assert_allclose([50.0, 40.0], links(site_height_m=41.5).distance_3d_m())
    assert len(links()) == 2


@pytest.mark.parametrize(
    ("missing", "ask"),
    [
        ("carrier_hz", lambda l: l.carrier_ghz()),
        ("site_height_m", lambda l: l.heights_m()),
        ("user_height_m", lambda l: l.distance_3d_m()),
    ],
)
def test_what_a_channel_needs_must_be_given(missing, ask):
    """A value that the channel asks for and the scenario lacks is an error that names its key."""
    with pytest.raises(ValueError, match=missing.replace("carrier_hz", "carrier_ghz")):
        ask(links(**{missing: None}))


def test_table_row_is_the_highest_reached():
    """A threshold counts as reached at equality; below the first the efficiency is 0, above the last it stays."""
    sinr_db = np.array([-math.inf, -0.01, 0.0, 9.99, 10.0, 80.0])
    actual = table_efficiency(10.0 ** (sinr_db / 10.0), np.array([0.0, 10.0]), np.array([0.5, 2.0]))
    np.testing.assert_array_equal([0.0, 0.0, 0.5, 0.5, 2.0, 2.0], actual)


def test_transfer_within_a_block():
    """6 bit at 4 bit/s from 0.25 s on: 1.5 s, which in blocks of 2 s is inside the first: 1.75 s."""
    assert end_s(0.25, 6.0, [4.0], block_s=2.0) == 1.75


def test_transfer_over_blocks():
    """From 0.5 s: 0.5 s at 2 bit/s carry 1, the outage nothing, then 3 bit/s carry the rest of 2.5 in 0.5 s."""
    assert end_s(0.5, 2.5, [2.0, 0.0, 3.0]) == 2.5


@pytest.mark.parametrize("at_hand", [1, 2, 3, 64])
def test_transfer_does_not_depend_on_the_rates_at_hand(at_hand):
    """Rates told one, two or many blocks at a time give the same end: 5 + 0 + 1 + 0 + 4 bit in five blocks, 2 s
    more."""
    assert end_s(0.0, 14.0, [5.0, 0.0, 1.0, 0.0, 4.0, 2.0], at_hand=at_hand) == 7.0


def test_transfer_ends_on_a_boundary():
    """Bits that fill a block exactly are through at its end, not after the outage that follows."""
    assert end_s(0.0, 3.0, [3.0, 0.0, 0.0, 1.0]) == 1.0


def test_no_bits_take_no_time():
    """A transfer of no bits is through when it starts, also in outage."""
    assert end_s(1.5, 0.0, [0.0]) == 1.5


def test_lasting_outage_never_ends():
    """A transfer that the blocks looked at do not carry never ends."""
    assert math.inf == end_s(0.0, 1.0, [0.0], most_blocks=200)
    assert math.inf == end_s(0.0, 3.0, [1.0, 1.0, 0.0], most_blocks=200)


@given(
    st.floats(0.0, 20.0),
    st.floats(0.0, 50.0),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0]), max_size=20),
    st.sampled_from([1, 4, 64]),
)
def test_integral_of_the_rate_is_the_bits(start_s, bits, rates, at_hand):
    """The rate, summed over the blocks and their parts between start and end, carries the bits."""
    rates = [*rates, 2.0]
    end = end_s(start_s, bits, rates, at_hand=at_hand)
    carried = sum(
        rates[min(k, len(rates) - 1)] * max(0.0, min(end, k + 1) - max(start_s, k)) for k in range(math.ceil(end) + 1)
    )
    assert carried == pytest.approx(bits, abs=1e-7)
    assert end >= start_s


@given(st.integers(0, 10**9), st.sampled_from([1e-3, 5e-3, 0.01, 0.07, 1 / 3, 1.0]))
def test_the_end_of_a_block_lies_ahead(block, block_s):
    """Just before, at and just after a boundary, the end of the block told is later than the time, however late it
    is."""
    edge = block * block_s
    for time_s in (edge, math.nextafter(edge, math.inf), math.nextafter(edge, 0.0)):
        assert block_of(time_s, block_s) == block
        assert (block_of(time_s, block_s) + 1) * block_s > time_s
    assert block_of(edge + 0.5 * block_s, block_s) == block
