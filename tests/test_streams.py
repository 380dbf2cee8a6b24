"""Keyed streams: what they give depends on the key alone, however they are asked."""

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from balancesim.streams import Streams

KEYS = st.tuples(st.integers(0, 2**63), st.integers(0, 2**40), st.integers(0, 9), st.booleans())


@settings(max_examples=50, deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=12))
def test_numbers_are_those_of_a_generator_made_for_the_key(calls):
    """The stream's own generator, wound from key to key, gives what a fresh Philox with that key and counter gives."""
    stream = Streams(3, 1).keyed("fading_uplink")
    for first, second, count, uniform in calls:
        fresh = np.random.Generator(np.random.Philox(key=stream.key, counter=(0, 0, first, second)))
        if uniform:
            assert stream.uniforms(first, count, second).tolist() == fresh.random(count).tolist()
        else:
            assert stream.exponentials(first, count, second).tolist() == fresh.standard_exponential(count).tolist()


def test_a_longer_call_extends_a_shorter_one():
    """Draft lengths that look further share the numbers of those that look less far."""
    stream = Streams(3, 1).keyed("acceptance")
    assert stream.uniforms(5, 100).tolist()[:7] == stream.uniforms(5, 7).tolist()


def test_streams_of_other_names_seeds_and_replications_differ():
    """One number each: name, seed and replication all count."""
    streams = [Streams(1, 0), Streams(2, 0), Streams(1, 1)]
    first = [s.keyed("acceptance").uniforms(0, 1)[0] for s in streams] + [streams[0].keyed("other").uniforms(0, 1)[0]]
    assert len(set(first)) == 4


def test_a_stream_goes_to_another_process():
    """A copy by pickle gives the same numbers and compares equal."""
    stream = Streams(3, 1).keyed("acceptance")
    copy = pickle.loads(pickle.dumps(stream))
    assert copy == stream
    assert copy.uniforms(4, 3).tolist() == stream.uniforms(4, 3).tolist()
