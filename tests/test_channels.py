"""Large-scale channels against the values of TR 38.901 Tables 7.4.1-1 and 7.4.2-1."""

import math

import numpy as np
import pytest

from balancesim.channels import CHANNELS, Fixed, Inh, LogDistance, Rma, Uma, Umi, power_gain
from balancesim.channels.tr38901 import Geometry
from balancesim.core.radio import RadioLinks
from balancesim.streams import Streams

STREAMS = Streams(7, 0)
#: what each channel is made of and where its sites and users stand: (channel, site height, user height)
WORLDS = [
    (Fixed(90.0), 25.0, 1.5),
    (LogDistance(40.0, 3.5, sigma_db=8.0), 25.0, 1.5),
    (Uma(), 25.0, 1.5),
    (Umi(), 10.0, 1.5),
    (Rma(), 35.0, 1.5),
    (Inh(), 3.0, 1.0),
    (Inh(open_office=True), 3.0, 1.0),
]
NAMES = [f"{type(c).__name__}-{getattr(c, 'open_office', '')}" for c, _, _ in WORLDS]
every_channel = pytest.mark.parametrize(("channel", "site_m", "user_m"), WORLDS, ids=NAMES)


def links_at(distances_m, site_m, user_m, users=None):
    distances = np.array(distances_m, dtype=float)
    users = np.arange(len(distances)) if users is None else np.array(users)
    return RadioLinks(users, distances, 3.5e9, site_m, user_m)


def loss_db(channel, links, *, los):
    return channel.pathloss_db(links, np.full(len(links), los))


def test_every_listed_channel_is_tried():
    """The contract tests run over the whole list."""
    assert set(CHANNELS) == {type(channel) for channel, _, _ in WORLDS}


# d2D, UMa LOS, NLOS, P_LOS, UMi LOS, NLOS, P_LOS at 3.5 GHz, h_UT 1.5 m: computed from the standard's formulas by hand
TABLE = [
    (10, 69.84, 79.42, 1.0000, 66.76, 73.46, 1.0000),
    (50, 77.21, 92.51, 0.6494, 79.09, 94.18, 0.5196),
    (100, 83.14, 103.04, 0.3477, 85.31, 104.64, 0.2310),
    (200, 89.57, 114.46, 0.1280, 91.61, 115.23, 0.0935),
    (500, 98.27, 129.92, 0.0363, 107.11, 129.26, 0.0360),
    (1000, 109.41, 141.67, 0.0180, 119.15, 139.89, 0.0180),
]


@pytest.mark.parametrize(("channel", "site_m", "column"), [(Uma(), 25.0, 1), (Umi(), 10.0, 4)], ids=["uma", "umi"])
def test_urban_losses_and_line_of_sight(channel, site_m, column):
    """UMa and UMi meet the table to its last digit."""
    links = links_at([row[0] for row in TABLE], site_m, 1.5)
    los, nlos, chance = (np.array([row[column + k] for row in TABLE]) for k in range(3))
    np.testing.assert_allclose(los, loss_db(channel, links, los=True), atol=0.00501)
    np.testing.assert_allclose(nlos, loss_db(channel, links, los=False), atol=0.00501)
    np.testing.assert_allclose(chance, channel.los_probability(links), atol=0.0000501)


@pytest.mark.parametrize(("site_m", "expected"), [(25.0, 560.4), (10.0, 210.1)])
def test_urban_breakpoint(site_m, expected):
    """d'_BP = 4·(h_BS − 1)·0.5·3.5e9/c: 560.4 m for UMa, 210.1 m for UMi."""
    geometry = Geometry.of(links_at([100.0], site_m, 1.5))
    assert geometry.breakpoint_m() == pytest.approx(expected, abs=0.05)


def test_rural_losses():
    """RMa at 3.5 GHz, h_BS 35, h_UT 1.5, W 20, h 5, term by term.

    d_BP = 2π·35·1.5·3.5e9/c = 3851.1 m; h^1.72 = 15.9305, so slope 0.477914 and offset 0.700940; lg h = 0.698970.
    d2D 1000: d3D 1000.561, PL1 = 20 lg(146,690) [103.3281] + 0.477914·3.000244 − 0.700940 + 0.00139794·1000.561.
    Beyond: PL1(3851.1) = 121.4312 and 40 lg(5000.112/3851.115) = 4.5357.
    NLOS = 161.04 − 9.2373 + 5.2423 − 24.2945·1.544068 + 38.6334·(lg d3D − 3) + 10.8814 − (3.2·lg²(17.625) − 4.97).
    """
    links = links_at([1000.0, 5000.0], 35.0, 1.5)
    near = 103.3281 + 0.477914 * 3.000244 - 0.700940 + 1.398724
    np.testing.assert_allclose([near, 121.4312 + 4.5357], loss_db(Rma(), links, los=True), atol=1e-3)
    common = 161.04 - 9.2373 + 5.2423 - 24.2945 * 1.544068 + 10.8814 - (3.2 * 1.246129**2 - 4.97)
    nlos = [common + 38.6334 * 0.000244, common + 38.6334 * 0.698980]
    np.testing.assert_allclose(nlos, loss_db(Rma(), links, los=False), atol=1e-3)


def test_rural_line_of_sight_and_spread():
    """RMa sees a user surely within 10 m, with e^−1 a kilometre further; beyond d_BP (3851 m) LOS spreads by 6 dB."""
    links = links_at([10.0, 1010.0, 4000.0], 35.0, 1.5)
    np.testing.assert_allclose([1.0, math.exp(-1), math.exp(-3.99)], Rma().los_probability(links))
    np.testing.assert_array_equal([4.0, 4.0, 6.0], Rma().shadowing_sigma_db(links, np.ones(3, bool)))
    np.testing.assert_array_equal([8.0, 8.0, 8.0], Rma().shadowing_sigma_db(links, np.zeros(3, bool)))


def test_indoor_losses():
    """InH at d3D = sqrt(10² + 2²), lg 1.008517: LOS 32.4 + 17.447 + 10.881; NLOS 17.3 + 38.626 + 13.547 (lg fc
    0.544068)."""
    links = links_at([10.0], 3.0, 1.0)
    assert loss_db(Inh(), links, los=True)[0] == pytest.approx(32.4 + 17.44734 + 10.88136, abs=1e-4)
    assert loss_db(Inh(), links, los=False)[0] == pytest.approx(17.3 + 38.62620 + 13.54730, abs=1e-4)


@pytest.mark.parametrize(
    ("open_office", "expected"),
    [
        (False, {1.0: 1.0, 1.2: 1.0, 5.9: math.exp(-1), 6.5: 0.32, 39.1: 0.32 * math.exp(-1)}),
        (True, {1.0: 1.0, 5.0: 1.0, 40.4: math.exp(-0.5), 49.0: math.exp(-44 / 70.8), 260.7: 0.54 * math.exp(-1)}),
    ],
    ids=["mixed", "open"],
)
def test_indoor_line_of_sight(open_office, expected):
    """InH's probability in each of its three ranges, at arguments that make the exponent simple."""
    actual = Inh(open_office).los_probability(links_at(list(expected), 3.0, 1.0))
    np.testing.assert_allclose(list(expected.values()), actual)


@pytest.mark.parametrize("channel", [Uma(), Umi(), Inh()])
def test_spread_of_the_tables(channel):
    """Sigma is 4/6 dB (UMa), 4/7.82 (UMi), 3/8.03 (InH)."""
    expected = {"uma": [4.0, 6.0], "umi": [4.0, 7.82], "inh": [3.0, 8.03]}[channel.name]
    links = links_at([50.0, 50.0], 3.0, 1.0)
    np.testing.assert_array_equal(expected, channel.shadowing_sigma_db(links, np.array([True, False])))


def test_users_high_up_are_seen_more_often():
    """UMa at d = 100, h_UT 23: C' = 1, so P = 0.3477·(1 + 1.25·e^(−2/3)), with P at h_UT 1.5 from the table above."""
    high = Uma().los_probability(links_at([100.0], 25.0, 23.0))[0]
    assert high == pytest.approx(0.3477 * (1.0 + 1.25 * math.exp(-2 / 3)), abs=1e-4)
    at_13 = Uma().los_probability(links_at([100.0], 25.0, 13.0))[0]
    assert at_13 == pytest.approx(0.3477, abs=5e-5)


def test_path_loss_of_the_paper():
    """[P1]: −50 dBm/Hz, d^−4, −174 dBm/Hz at 250 m: 124 − 40 lg 250 = 28.08 dB."""
    links = links_at([250.0, 0.5], None, None)
    actual = loss_db(LogDistance(reference_loss_db=0.0, exponent=4.0), links, los=True)
    assert -50.0 - actual[0] + 174.0 == pytest.approx(28.08, abs=0.005)
    assert actual[1] == 0.0  # nearer than the reference distance of 1 m


@pytest.mark.parametrize(("channel", "site_m", "nearest_m"), [(Uma(), 25, 10), (Umi(), 10, 10), (Rma(), 35, 10)])
def test_below_its_range_a_formula_stands_still(channel, site_m, nearest_m):
    """Users nearer than 10 m have the loss at 10 m."""
    losses = loss_db(channel, links_at([0.0, 3.0, nearest_m], site_m, 1.5), los=True)
    np.testing.assert_array_equal(losses[2], losses)


def test_indoor_formula_stands_still_below_a_metre():
    """A user under the antenna of the same height has the loss at 1 m: 32.4 + 20 lg 3.5."""
    assert loss_db(Inh(), links_at([0.0], 1.0, 1.0), los=True)[0] == pytest.approx(32.4 + 10.88136)


@every_channel
def test_loss_grows_with_distance_and_without_sight(channel, site_m, user_m):
    """Farther users lose at least as much (but for a rounding at the breakpoint), hidden ones at least as much."""
    links = links_at(np.geomspace(1.0, 5000.0, 200), site_m, user_m)
    los, nlos = loss_db(channel, links, los=True), loss_db(channel, links, los=False)
    assert (np.diff(los) > -0.01).all()
    assert (nlos >= los).all()
    chance = channel.los_probability(links)
    assert ((chance > 0) & (chance <= 1)).all()


@every_channel
@pytest.mark.parametrize("shadowing", [True, False])
def test_gain_belongs_to_the_user(channel, site_m, user_m, shadowing):
    """Gains do not depend on the order of the users, on how many there are, or on who asked before."""
    distances = np.linspace(20.0, 400.0, 40)
    whole = power_gain(channel, links_at(distances, site_m, user_m), STREAMS, shadowing=shadowing)
    order = np.array([31, 4, 17])
    part = links_at(distances[order], site_m, user_m, users=order)
    np.testing.assert_array_equal(whole[order], power_gain(channel, part, STREAMS, shadowing=shadowing))
    assert (whole > 0).all()


@every_channel
def test_no_users_no_gains(channel, site_m, user_m):
    """An empty table is answered by an empty array."""
    assert len(power_gain(channel, links_at([], site_m, user_m), STREAMS, shadowing=True)) == 0


def test_gain_is_the_loss_in_linear_units():
    """90 dB are a gain of 1e−9; shadowing off leaves it alone."""
    links = links_at([5.0, 50.0], 25.0, 1.5)
    np.testing.assert_allclose([1e-9, 1e-9], power_gain(Fixed(90.0), links, STREAMS, shadowing=False))


def test_other_replications_are_other_worlds():
    """Shadowing differs between replications."""
    links = links_at(np.full(20, 100.0), 25.0, 1.5)
    one, other = (power_gain(Uma(), links, Streams(7, r), shadowing=True) for r in (0, 1))
    assert (one != other).all()


@pytest.mark.parametrize("channel", [Uma(), LogDistance(0.0, 4.0), Inh()])
def test_a_distance_that_is_no_number_is_an_error(channel):
    """A NaN in a channel is an error that names the user."""
    with pytest.raises(ValueError, match=r"power gain must be finite and positive, got nan for user 1 at nan m"):
        power_gain(channel, links_at([50.0, math.nan], 25.0, 1.5), STREAMS, shadowing=False)


@pytest.mark.parametrize(("site_m", "user_m", "field"), [(10.0, 1.0, "user_height_m"), (0.5, 1.5, "site_height_m")])
def test_heights_that_leave_no_breakpoint(site_m, user_m, field):
    """UMa and UMi need antennas above the environment height of 1 m."""
    with pytest.raises(ValueError, match=f"network.{field} must be above 1 m"):
        loss_db(Umi(), links_at([100.0], site_m, user_m), los=True)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Fixed(math.nan), "loss_db"),
        (lambda: LogDistance(40.0, 0.0), "exponent"),
        (lambda: LogDistance(40.0, 2.0, reference_m=-1.0), "reference_m"),
        (lambda: LogDistance(40.0, 2.0, sigma_db=-1.0), "sigma_db"),
        (lambda: Rma(street_width_m=0.0), "street_width_m"),
        (lambda: Rma(building_height_m=math.inf), "building_height_m"),
    ],
)
def test_wrong_options_are_named(make, field):
    """An option outside its range is an error that begins with its name."""
    with pytest.raises(ValueError, match=f"^{field} must be"):
        make()
