"""The radio's random parts against their laws, with intervals over independent replications."""

import math

import numpy as np
import pytest
import simpy
from scipy import stats
from scipy.special import exp1

from balancesim.allocators import PerRequest
from balancesim.channels import Inh, LogDistance, Rma, Uma, Umi, power_gain
from balancesim.core.radio import RadioLinks
from balancesim.fading import NoFading, Rayleigh
from balancesim.fading.chunk import CHUNK
from balancesim.processes.links import Air
from balancesim.processes.shared_link import make_link
from balancesim.rate_laws import AttenuatedShannon, Shannon
from balancesim.streams import Streams

pytestmark = pytest.mark.slow
REPLICATIONS, USERS = 12, 2000


def assert_mean(samples, expected, confidence=0.999):
    """The law's value lies in Student's interval over the replications, and the interval says something."""
    half = stats.t.ppf((1 + confidence) / 2, len(samples) - 1) * np.std(samples, ddof=1) / math.sqrt(len(samples))
    assert abs(np.mean(samples) - expected) <= half, f"{np.mean(samples)} ± {half}, expected {expected}"
    assert half < 0.1 * max(abs(expected), 0.1)


def links_at(distance_m, site_m, user_m):
    return RadioLinks(np.arange(USERS), np.full(USERS, distance_m), 3.5e9, site_m, user_m)


def gains_db(channel, links, replication, *, shadowing):
    return 10.0 * np.log10(power_gain(channel, links, Streams(11, replication), shadowing=shadowing))


@pytest.mark.parametrize("threshold_db", [-10.0, 0.0, 8.0])
@pytest.mark.parametrize("mean_db", [5.0, 15.0])
def test_rayleigh_outage(mean_db, threshold_db):
    """P(SNR < θ) = 1 − exp(−θ/mean SNR)."""
    mean, theta = 10 ** (mean_db / 10), 10 ** (threshold_db / 10)
    law = AttenuatedShannon(1.0, 100.0, lowest_sinr_db=threshold_db)
    blocks, users = 20 * CHUNK, 50
    shares = []
    for replication in range(REPLICATIONS):
        luck = Streams(11, replication).keyed("fading_uplink")
        air = Air(dict.fromkeys(range(users), mean), Rayleigh(), 0.005, law, luck)
        rates = np.array([air.efficiencies(user, block) for user in range(users) for block in range(0, blocks, CHUNK)])
        shares.append(float(np.mean(rates == 0.0)))
    assert_mean(np.array(shares), 1.0 - math.exp(-theta / mean))


def test_rayleigh_gain_has_mean_and_variance_one():
    """The power gain is exponential with mean 1, hence variance 1; neighbouring blocks and users are uncorrelated."""
    means, variances, in_time, in_space = [], [], [], []
    for replication in range(REPLICATIONS):
        luck = Streams(11, replication).keyed("fading_uplink")
        gains = np.array([np.concatenate([Rayleigh().gains(luck, user, k) for k in range(20)]) for user in range(60)])
        means.append(gains.mean())
        variances.append(gains.var())
        in_time.append(np.mean((gains[:, 1:] - 1) * (gains[:, :-1] - 1)))
        in_space.append(np.mean((gains[1:] - 1) * (gains[:-1] - 1)))
    assert_mean(means, 1.0)
    assert_mean(variances, 1.0)
    assert_mean(in_time, 0.0)
    assert_mean(in_space, 0.0)


@pytest.mark.parametrize("distance_m", [30.0, 100.0, 200.0])
@pytest.mark.parametrize(
    ("channel", "site_m", "user_m"),
    [(Uma(), 25.0, 1.5), (Umi(), 10.0, 1.5), (Rma(), 35.0, 1.5), (Inh(), 3.0, 1.0), (Inh(open_office=True), 3.0, 1.0)],
    ids=["uma", "umi", "rma", "inh", "inh-open"],
)
def test_share_in_line_of_sight(channel, site_m, user_m, distance_m):
    """Of many users at one distance the LOS share is the probability of Table 7.4.2-1 (told by their loss)."""
    links = links_at(distance_m, site_m, user_m)
    los_db = -channel.pathloss_db(links, np.ones(USERS, bool))[0]
    shares = [
        float(np.mean(np.isclose(gains_db(channel, links, r, shadowing=False), los_db))) for r in range(REPLICATIONS)
    ]
    expected = float(channel.los_probability(links)[0])
    half = stats.t.ppf(0.9995, REPLICATIONS - 1) * np.std(shares, ddof=1) / math.sqrt(REPLICATIONS)
    assert abs(np.mean(shares) - expected) <= half
    assert half < 0.02


@pytest.mark.parametrize(
    ("channel", "site_m", "user_m", "los_db", "nlos_db"),
    [
        (Uma(), 25.0, 1.5, 4.0, 6.0),
        (Umi(), 10.0, 1.5, 4.0, 7.82),
        (Rma(), 35.0, 1.5, 4.0, 8.0),
        (Inh(), 3.0, 1.0, 3.0, 8.03),
        (LogDistance(40.0, 3.5, sigma_db=7.0), None, None, 7.0, None),
    ],
    ids=["uma", "umi", "rma", "inh", "log_distance"],
)
def test_spread_of_shadowing(channel, site_m, user_m, los_db, nlos_db):
    """Shadowing has mean 0 dB and the table's standard deviation in each state, and does not touch the state."""
    links = links_at(60.0, site_m, user_m)
    at_sight = -channel.pathloss_db(links, np.ones(USERS, bool))[0]
    for expected_db, sight in ((los_db, True), (nlos_db, False)):
        if expected_db is None:
            continue
        means, deviations = [], []
        for replication in range(REPLICATIONS):
            plain = gains_db(channel, links, replication, shadowing=False)
            shadowed = gains_db(channel, links, replication, shadowing=True)
            shadow = (shadowed - plain)[np.isclose(plain, at_sight) == sight]
            means.append(shadow.mean())
            deviations.append(math.sqrt(np.mean(shadow**2)))
        half = stats.t.ppf(0.9995, REPLICATIONS - 1) * np.std(means, ddof=1) / math.sqrt(REPLICATIONS)
        assert abs(np.mean(means)) <= half
        # the root of an unbiased mean square is biased by σ/(4n) at most: n is about 100 users or more
        half = stats.t.ppf(0.9995, REPLICATIONS - 1) * np.std(deviations, ddof=1) / math.sqrt(REPLICATIONS)
        assert abs(np.mean(deviations) - expected_db) <= half + expected_db / 400
        assert half < 0.1 * expected_db


def test_sight_and_shadowing_are_independent_of_fading_and_each_other():
    """Users' shadows do not correlate with their luck in line of sight (both at a distance where P_LOS is 0.35)."""
    links = links_at(100.0, 25.0, 1.5)
    products = []
    for replication in range(REPLICATIONS):
        plain, shadowed = (gains_db(Uma(), links, replication, shadowing=s) for s in (False, True))
        sight = np.isclose(plain, plain.max())
        normal = (shadowed - plain) / np.where(sight, 4.0, 6.0)
        products.append(float(np.mean((sight - 0.3477) * normal)))
    assert_mean(products, 0.0)


def test_long_transfers_get_the_ergodic_rate():
    """Over many blocks the rate is B·E[log2(1 + s·g)] = B·e^(1/s)·E1(1/s)/ln 2: g exponential, s the mean SNR."""
    mean, hertz, coherence_s, bits = 10.0, 1e6, 0.001, 1e7
    expected = hertz * math.exp(1 / mean) * exp1(1 / mean) / math.log(2)
    rates = []
    for replication in range(REPLICATIONS):
        env, ends = simpy.Environment(), []
        luck = Streams(11, replication).keyed("fading_downlink")
        link = make_link(env, Air({0: mean}, Rayleigh(), coherence_s, Shannon(), luck), hertz, PerRequest())
        link.send(0, 0, bits, lambda env=env, ends=ends: ends.append(env.now))
        env.run()
        rates.append(bits / ends[0])
    # the end is a stopping time: by Wald's identity what is cut off is less than one block of some 3,500
    half = stats.t.ppf(0.9995, REPLICATIONS - 1) * np.std(rates, ddof=1) / math.sqrt(REPLICATIONS)
    assert abs(np.mean(rates) - expected) <= half + expected / 3000
    assert half < 0.03 * expected


def test_fixed_rate_without_fading():
    """Without fading the same transfer takes bits/(B·log2(1 + s)) to the last digits."""
    env, ends = simpy.Environment(), []
    luck = Streams(11, 0).keyed("fading_downlink")
    link = make_link(env, Air({0: 10.0}, NoFading(), 0.001, Shannon(), luck), 1e6, PerRequest())
    link.send(0, 0, 1e7, lambda: ends.append(env.now))
    env.run()
    assert ends == pytest.approx([10.0 / math.log2(11.0)], rel=1e-14)
