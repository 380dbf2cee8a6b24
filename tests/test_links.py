"""Transfers over the radio of a cell, alone on their bandwidth or sharing it."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from balancesim.allocators import PerRequest, Proportional, Shared
from balancesim.fading import FADINGS, NoFading, Rayleigh
from balancesim.fading.chunk import CHUNK
from balancesim.processes.links import MOST_BLOCKS, Air
from balancesim.processes.shared_link import make_link
from balancesim.rate_laws import CqiTable1, Shannon
from balancesim.streams import Streams

NO_FADING, SHANNON = NoFading(), Shannon()
SINR_OF = {0.0: 0.0, 0.5: 2**0.5 - 1, 1.0: 1.0, 2.0: 3.0, 3.0: 7.0}  #: log2(1 + SINR) = η


@dataclass(frozen=True)
class Pattern:
    """Fading that repeats given gains, the same for everybody."""

    gain: tuple[float, ...]
    name: ClassVar[str] = "pattern"
    varies: ClassVar[bool] = True

    def gains(self, stream, user_id, chunk):
        return np.array([self.gain[k % len(self.gain)] for k in range(chunk * CHUNK, (chunk + 1) * CHUNK)])


class Radio:
    """A link under test: sends, cancels, and notes when transfers end."""

    def __init__(self, allocator, efficiencies=(), *, hertz=1.0, fading=NO_FADING, law=SHANNON, sinr=None, start_s=0.0):
        self.env = simpy.Environment(start_s)
        sinr = sinr if sinr is not None else [SINR_OF[x] for x in efficiencies]
        self.air = Air(dict(enumerate(sinr)), fading, 1.0, law, Streams(5, 0).keyed("fading_uplink"))
        self.link = make_link(self.env, self.air, hertz, allocator)
        self.ends = {}
        self.events = 0

    def at(self, time_s, action):
        self.env.timeout(time_s - self.env.now).callbacks.append(lambda _: action())

    def send(self, transfer_id, user_id, bits, *, at=None):
        def note():
            assert transfer_id not in self.ends
            self.ends[transfer_id] = self.env.now

        def begin():
            self.link.send(transfer_id, user_id, bits, note)
            assert transfer_id not in self.ends, "done must not be called within send"

        begin() if at is None else self.at(at, begin)

    def run(self, until_s=math.inf):
        """Run until nothing is left to happen; return the ends by transfer."""
        while self.env.peek() < until_s and math.isfinite(self.env.peek()):
            self.env.step()
            self.events += 1
        return self.ends


every_allocator = pytest.mark.parametrize("allocator", [PerRequest(), Shared(), Proportional()], ids=lambda a: a.name)
every_fading = pytest.mark.parametrize("fading", [NoFading(), Rayleigh(), Pattern((1.0,))], ids=lambda f: f.name)


# ---- one transfer


@every_allocator
@pytest.mark.parametrize("fading", [NoFading(), Pattern((1.0,))], ids=lambda f: f.name)
def test_transfer_alone(allocator, fading):
    """6 bit at 2 bit/s/Hz over 2 Hz take 1.5 s, with any sharing and with fading that changes nothing."""
    radio = Radio(allocator, [2.0], hertz=2.0, fading=fading)
    radio.send(0, 0, 6.0, at=0.25)
    assert radio.run() == {0: 1.75}


@every_allocator
def test_transfer_through_fading(allocator):
    """Gains 3, 0, 1 at mean SINR 1 are 2, 0, 1 bit/s; from 0.5 s on they carry 1, 0, 1 and, again, 0.5 in 0.25 s."""
    radio = Radio(allocator, [1.0], fading=Pattern((3.0, 0.0, 1.0)))
    radio.send(0, 0, 2.5, at=0.5)
    assert radio.run() == {0: 3.25}


@every_allocator
def test_fading_beyond_a_chunk(allocator):
    """A first bit that comes in block 150, beyond two chunks of 64, is waited for."""
    radio = Radio(allocator, [1.0], fading=Pattern((0.0,) * 150 + (1.0,) * 1000))
    radio.send(0, 0, 2.5)
    assert radio.run() == {0: 152.5}


@every_allocator
@every_fading
@pytest.mark.parametrize("efficiency", [0.0, 1.0])
def test_no_bits_are_through_at_once(allocator, fading, efficiency):
    """A transfer of no bits ends at the instant it starts, through the event queue, also in outage."""
    radio = Radio(allocator, [efficiency], fading=fading)
    radio.send(0, 0, 0.0, at=0.5)
    assert radio.run(10.0) == {0: 0.5}


@every_allocator
def test_outage_never_ends(allocator):
    """Without fading and without a rate there is no end and no event."""
    radio = Radio(allocator, [0.0])
    radio.send(0, 0, 1.0)
    assert radio.run() == {}
    assert radio.events == 0
    radio.link.cancel(0)
    assert radio.run() == {}


def test_lasting_outage_is_given_up():
    """Alone, a transfer is followed through MOST_BLOCKS blocks and the rest of the last chunk, and then never ends."""
    for block, expected in ((MOST_BLOCKS - 1, {0: MOST_BLOCKS - 0.5}), (MOST_BLOCKS + CHUNK, {})):
        radio = Radio(PerRequest(), [1.0], fading=Pattern((0.0,) * block + (1.0,) * (2 * MOST_BLOCKS - block)))
        radio.send(0, 0, 0.5)
        assert radio.run() == expected


@pytest.mark.parametrize("fading", [NoFading(), Rayleigh()], ids=lambda f: f.name)
def test_alone_a_transfer_is_one_event(fading):
    """The end of a transfer with its own bandwidth is the only event, however many blocks it takes."""
    radio = Radio(PerRequest(), [1.0], fading=fading)
    for key in range(10):
        radio.send(key, 0, 1000.0 + key)
    radio.run()
    assert len(radio.ends) == radio.events == 10


def test_sharing_without_fading_has_no_block_events():
    """Transfers that share cost one event a join and one an end but the last, though they outlast many blocks."""
    radio = Radio(Shared(), [1.0], hertz=1.0)
    for key in range(10):
        radio.send(key, 0, 100.0 * (key + 1))
    radio.run()
    assert radio.events == 10 + 9


# ---- several transfers


def test_dedicated_transfers_do_not_meet():
    """With a bandwidth each, two transfers of one user at a time both take 2 s."""
    radio = Radio(PerRequest(), [1.0])
    radio.send(0, 0, 2.0)
    radio.send(1, 0, 2.0, at=1.0)
    assert radio.run() == {0: 2.0, 1: 3.0}


def test_equal_sharing_by_hand():
    """2 Hz: A sends 2 of 3 bit alone in 1 s; then A and B have 1 Hz each: A's 1 bit at η 1 and B's 2 at η 2 end at 2 s.

    C with 3 bit at η 1 joins at 1.5 s: 2/3 Hz each; A and B have 0.5 s of 1 Hz left, that is 0.75 s: 2.25 s. C has sent
    0.5 bit by then and has 2 Hz to itself: 2.25 + 2.5/2 = 3.5 s.
    """
    radio = Radio(Shared(), [1.0, 2.0], hertz=2.0)
    radio.send(0, 0, 3.0)
    radio.send(1, 1, 2.0, at=1.0)
    radio.send(2, 0, 3.0, at=1.5)
    assert radio.run() == pytest.approx({0: 2.25, 1: 2.25, 2: 3.5}, rel=1e-12)


def test_outage_holds_its_share():
    """Equal sharing gives a user in outage its part all the same: 3 bit over 1 of 2 Hz take 3 s."""
    radio = Radio(Shared(), [0.0, 1.0], hertz=2.0)
    radio.send(0, 0, 1.0)
    radio.send(1, 1, 3.0)
    assert radio.run() == {1: 3.0}


def test_proportional_uploads_end_together():
    """[P2]: D/η = 2, 3, 1 over 12 Hz: all end at (2 + 3 + 1)/12 s, in order of their start."""
    radio = Radio(Proportional(), [2.0, 1.0, 3.0], hertz=12.0)
    for key, bits in enumerate((4.0, 3.0, 3.0)):
        radio.send(key, key, bits)
    assert radio.run() == pytest.approx({0: 0.5, 1: 0.5, 2: 0.5}, rel=1e-12)
    assert len(set(radio.ends.values())) == 1
    assert list(radio.ends) == [0, 1, 2]


@pytest.mark.parametrize(("allocator", "expected"), [(PerRequest(), {1: 4.0}), (Shared(), {1: 5.0})])
def test_cancelling_frees_the_band(allocator, expected):
    """Of two 4-bit transfers at 1 bit/s one is given up after 2 s: sharing, the other has sent 1 and needs 3 s more."""
    radio = Radio(allocator, [1.0])
    radio.send(0, 0, 4.0)
    radio.send(1, 0, 4.0)
    radio.at(2.0, lambda: radio.link.cancel(0))
    assert radio.run() == expected


@every_allocator
def test_cancelling_what_is_not_there(allocator):
    """Giving up a transfer that has ended, or was never sent, changes nothing."""
    radio = Radio(allocator, [1.0])
    radio.send(0, 0, 1.0)
    radio.send(1, 0, 3.0, at=2.0)
    radio.at(3.0, lambda: radio.link.cancel(0))
    radio.at(3.0, lambda: radio.link.cancel(99))
    assert radio.run() == {0: 1.0, 1: 5.0}


@every_allocator
def test_an_id_may_be_used_again(allocator):
    """A transfer given up and sent anew under its id ends once, 3 bit after the second start."""
    radio = Radio(allocator, [1.0])
    radio.send(0, 0, 2.0)
    radio.at(1.0, lambda: radio.link.cancel(0))
    radio.send(0, 0, 3.0, at=1.0)
    assert radio.run() == {0: 4.0}


@every_allocator
def test_an_end_may_start_the_next(allocator):
    """A transfer started by the end of another begins at that instant, also on a link that has emptied."""
    radio = Radio(allocator, [1.0])
    radio.link.send(0, 0, 1.0, lambda: radio.send(1, 0, 2.0))
    assert radio.run() == {1: 3.0}


# ---- what the server asks


def test_state_of_the_present_block():
    """SINR and η are those of the block that holds now: gains 3, 0, 1 at mean SINR 1 and 7."""
    radio = Radio(PerRequest(), [1.0, 3.0], fading=Pattern((3.0, 0.0, 1.0)))
    seen = []
    for time_s in (0.0, 0.999, 1.0, 2.0, 3.5):
        radio.at(time_s, lambda: seen.append((radio.link.sinr(1), *radio.link.spectral_efficiency(np.array([0, 1])))))
    radio.run()
    high, low = (21.0, 2.0, math.log2(22.0)), (7.0, 1.0, 3.0)
    np.testing.assert_allclose([high, high, (0.0, 0.0, 0.0), low, high], seen)


@pytest.mark.parametrize(
    ("allocator", "waiting", "hertz"), [(PerRequest(), 2, 6.0), (Shared(), 2, 2.0), (Shared(), 0, 6.0)]
)
def test_predicted_times(allocator, waiting, hertz):
    """Bits over the present rate: of the whole band, or of what one more among the active would have; 0 for no bits."""
    radio = Radio(allocator, [1.0, 2.0, 0.0], hertz=6.0)
    for key in range(waiting):
        radio.send(key, 0, 1000.0)
    actual = radio.link.predicted_s(np.array([0, 1, 2, 2]), np.array([12.0, 12.0, 12.0, 0.0]))
    np.testing.assert_array_equal([12.0 / hertz, 6.0 / hertz, math.inf, 0.0], actual)


@every_allocator
def test_prediction_holds_where_nothing_changes(allocator):
    """Without fading and without others, a transfer takes the time predicted."""
    radio = Radio(allocator, [3.0], hertz=7.0)
    predicted = radio.link.predicted_s(np.array([0]), np.array([100.0]))[0]
    radio.send(0, 0, 100.0)
    assert radio.run()[0] == predicted


@every_allocator
@every_fading
def test_a_channel_that_is_no_number_is_an_error(allocator, fading):
    """A NaN gain is an error that names the user, not a transfer of unknown length."""
    radio = Radio(allocator, fading=fading, sinr=[1.0, math.nan])
    with pytest.raises(ValueError, match=r"SINR must be finite, got .*nan.* for user 1"):
        radio.link.send(0, 1, 5.0, lambda: None)


@every_allocator
@pytest.mark.parametrize("bits", [-1.0, math.nan, math.inf])
def test_a_size_that_is_no_number_of_bits_is_an_error(allocator, bits):
    """Bits must be finite and not negative."""
    with pytest.raises(ValueError, match="bits must be finite and at least 0"):
        Radio(allocator, [1.0]).link.send(0, 0, bits, lambda: None)


# ---- fading


def air_of(seed, stream, users=3):
    return Air(dict.fromkeys(range(users), 2.0), Rayleigh(), 0.005, Shannon(), Streams(seed, 0).keyed(stream))


def test_fading_is_a_function_of_user_and_block():
    """Whoever asks in whatever order sees the same gains; other users, blocks, directions and seeds see others."""
    keys = [(user, block) for user in range(3) for block in (0, 1, 63, 64, 65, 700)]
    forward = {key: air_of(1, "fading_uplink").sinr(*key) for key in keys}
    air = air_of(1, "fading_uplink", users=50)
    assert forward == {key: air.sinr(*key) for key in reversed(keys)}
    assert len(set(forward.values())) == len(keys)
    assert not set(forward.values()) & {air_of(1, "fading_downlink").sinr(*key) for key in keys}
    assert not set(forward.values()) & {air_of(2, "fading_uplink").sinr(*key) for key in keys}


@pytest.mark.parametrize("fading", [make() for make in FADINGS], ids=lambda f: f.name)
def test_every_fading_tells_a_chunk_at_a_time(fading):
    """A listed fading returns a chunk of gains, none negative; one that does not vary returns ones."""
    gains = fading.gains(Streams(1, 0).keyed("fading_uplink"), 3, 2)
    assert len(gains) == CHUNK
    assert (gains >= 0).all()
    assert fading.varies or (gains == 1.0).all()


# ---- conservation


def carried_bits(radio, spans, key, hertz_of):
    """Integrate the rate of one transfer over the pieces in which nothing changes: an independent accountant.

    ``spans``: (user, start, stop) by transfer. ``hertz_of(number active)``: the bandwidth of each.
    """
    user, start, stop = spans[key]
    cuts = {start, stop, *(t for _, a, b in spans.values() for t in (a, b) if start < t < stop)}
    cuts |= {float(k) for k in range(math.ceil(start), math.floor(stop) + 1)}
    total, edges = 0.0, sorted(cuts)
    for a, b in pairwise(edges):
        middle = (a + b) / 2
        active = sum(1 for _, begin, end in spans.values() if begin <= a and b <= end)
        total += hertz_of(active) * radio.air.efficiency(user, int(middle) if radio.air.fading.varies else 0) * (b - a)
    return total


@pytest.mark.parametrize("fading", [NoFading(), Rayleigh()], ids=lambda f: f.name)
@pytest.mark.parametrize("law", [Shannon(), CqiTable1()], ids=lambda x: x.name)
@pytest.mark.parametrize("allocator", [PerRequest(), Shared()], ids=lambda a: a.name)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), start_s=st.sampled_from([0.0, 3600.0, 1e6]))
def test_the_integral_of_the_rate_is_the_bits(fading, law, allocator, seed, start_s):
    """Random joins and cancels: what ended got its bits, what was given up got fewer, early and late in a run."""
    rng = np.random.default_rng(seed)
    radio = Radio(allocator, fading=fading, law=law, sinr=rng.uniform(0.5, 20.0, 4), hertz=2.0, start_s=start_s)
    count = int(rng.integers(1, 13))
    begins = start_s + np.round(np.cumsum(rng.exponential(0.7, count)), int(rng.integers(0, 4)))
    bits, users = rng.exponential(4.0, count), rng.integers(0, 4, count)
    stops = {}
    for key in range(count):
        radio.send(key, int(users[key]), float(bits[key]), at=begins[key])
        if rng.random() < 0.3:
            stops[key] = begins[key] + rng.exponential(1.0)
            radio.at(stops[key], lambda key=key: radio.link.cancel(key))
    ends = radio.run(start_s + 1e5)
    spans = {key: (int(users[key]), begins[key], ends.get(key, stops.get(key))) for key in range(count)}
    assert all(stop is not None for _, _, stop in spans.values()), "every transfer ends or is given up"
    for key in range(count):
        carried = carried_bits(radio, spans, key, lambda n: 2.0 / n if allocator.coupled else 2.0)
        if key in ends:
            assert carried == pytest.approx(bits[key], rel=1e-9, abs=1e-8 if start_s else 1e-9)
        else:
            assert carried < bits[key] + 1e-8


@pytest.mark.parametrize("fading", [NoFading(), Rayleigh()], ids=lambda f: f.name)
@pytest.mark.parametrize("allocator", [Shared(), Proportional()], ids=lambda a: a.name)
@pytest.mark.parametrize("seed", range(3))
def test_small_steps_come_to_the_same(fading, allocator, seed):
    """A twin that moves bits in steps of 1/2048 s ends each transfer within a step for each change of rates."""
    rng, step_s = np.random.default_rng(seed), 1 / 2048
    radio = Radio(allocator, fading=fading, sinr=rng.uniform(1.0, 10.0, 3), hertz=2.0)
    begins = np.round(np.cumsum(rng.exponential(0.5, 5)) / step_s) * step_s
    bits = rng.uniform(1.0, 6.0, 5)
    for key in range(5):
        radio.send(key, key % 3, float(bits[key]), at=begins[key])
    left, ends, now_s = bits.copy(), {}, 0.0
    while len(ends) < 5:
        active = [key for key in range(5) if begins[key] <= now_s and key not in ends]
        block = int(now_s) if fading.varies else 0
        efficiency = np.array([radio.air.efficiency(key % 3, block) for key in active])
        left[active] -= efficiency * allocator.allocate(left[active], efficiency, 2.0) * step_s
        now_s += step_s
        ends.update({key: now_s for key in active if left[key] <= 1e-9})
    assert radio.run() == pytest.approx(ends, abs=20 * step_s)


@pytest.mark.parametrize("fading", [NoFading(), Rayleigh()], ids=lambda f: f.name)
@pytest.mark.parametrize("start_s", [3600.0, 2e5, 1e7])
def test_the_clock_goes_on_late_in_a_run(fading, start_s):
    """Fast transfers late in a run end although their last bits take less time than the clock resolves."""
    rng = np.random.default_rng(1)
    radio = Radio(Shared(), sinr=rng.uniform(1, 100, 20), hertz=4e8, fading=fading, start_s=start_s)
    begins = start_s + np.cumsum(rng.exponential(0.01, 200))
    for key in range(200):
        radio.send(key, key % 20, float(rng.exponential(1e6)), at=begins[key])
    assert len(radio.run()) == 200
    assert radio.events < 200 * 5


def test_a_policys_weights_split_the_band():
    """Weights 3 and 1 on 4 Hz with η = 1: 3 Hz and 1 Hz; when the first ends, the rest has the whole band."""
    radio = Radio(Shared(), (1.0, 1.0), hertz=4.0)
    ends = {}
    radio.link.send(0, 0, 6.0, lambda: ends.setdefault(0, radio.env.now), 3.0)
    radio.link.send(1, 1, 6.0, lambda: ends.setdefault(1, radio.env.now), 1.0)
    radio.env.run()
    # 6 bits at 3 bit/s end at 2 s; by then 2 of the other's bits are through, 4 more at 4 bit/s end at 3 s
    assert ends == {0: pytest.approx(2.0), 1: pytest.approx(3.0)}


def test_a_transfer_without_a_weight_counts_one():
    """Beside a weight of 3, a transfer that no policy weighed has a quarter of the band."""
    radio = Radio(Proportional(), (1.0, 1.0), hertz=4.0)
    ends = {}
    radio.link.send(0, 0, 3.0, lambda: ends.setdefault(0, radio.env.now), 3.0)
    radio.link.send(1, 1, 1.0, lambda: ends.setdefault(1, radio.env.now))
    radio.env.run()
    assert ends == {0: pytest.approx(1.0), 1: pytest.approx(1.0)}
