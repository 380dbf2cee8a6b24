"""The columns of who waits against a plain list, whatever comes and goes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from balancesim.processes.waiting_table import WaitingTable

#: many come; the n-th of those who wait leaves; a look at the oldest few
STEPS = st.one_of(
    st.tuples(st.just("come"), st.integers(1, 300)),
    st.tuples(st.just("leave"), st.integers(0, 400)),
    st.tuples(st.just("leave last"), st.integers(1, 3)),
    st.tuples(st.just("look"), st.integers(1, 50)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_a_look_shows_the_oldest_in_their_order(steps):
    """Whoever left, the columns are those of the first requests that are still there."""
    table, waiting, made = WaitingTable(whole=2, floats=1), [], 0
    for kind, number in steps:
        if kind == "come":
            for request_id in range(made, made + number):
                table.append((request_id, 7 * request_id), (request_id / 2,))
                waiting.append(request_id)
            made += number
        elif kind == "leave" and waiting:
            table.remove(waiting.pop(number % len(waiting)))
        elif kind == "leave last":
            for _ in range(min(number, len(waiting))):
                table.remove(waiting.pop())
        whole, floats = table.oldest(number)
        assert whole[0].tolist() == waiting[:number]
        assert whole[1].tolist() == [7 * request_id for request_id in waiting[:number]]
        assert floats[0].tolist() == [request_id / 2 for request_id in waiting[:number]]


def test_a_look_at_nobody_shows_nobody():
    """A full server may show none of those who wait, also while there are gaps among them."""
    table = WaitingTable(whole=1, floats=1)
    for request_id in range(3):
        table.append((request_id,), (0.5,))
    table.remove(1)
    assert table.oldest(0)[0].shape == (1, 0)
    assert table.oldest(-1)[0].shape == (1, 0)
    assert table.oldest(2)[0].tolist() == [[0, 2]]


def test_what_was_shown_stays():
    """A policy may keep the columns: later changes do not reach them."""
    table = WaitingTable(whole=1, floats=1)
    for request_id in range(3):
        table.append((request_id,), (0.5,))
    shown, _ = table.oldest(3)
    table.remove(1)
    table.append((3,), (0.5,))
    table.oldest(3)
    assert shown[0].tolist() == [0, 1, 2]


def test_the_room_does_not_grow_with_those_who_have_left():
    """A thousand come and go ten at a time: the columns stay at their first size."""
    table = WaitingTable(whole=1, floats=1)
    for first in range(0, 10_000, 10):
        for request_id in range(first, first + 10):
            table.append((request_id,), (0.0,))
        for request_id in range(first, first + 10):
            table.remove(request_id)
    assert table.oldest(5)[0].shape == (1, 0)
    assert table._whole.shape[1] == 256
