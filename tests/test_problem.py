"""Candidates: looked up by their request ids, and with columns that are made when somebody looks at them."""

from dataclasses import fields, replace

import numpy as np
import pytest

from balancesim.core.candidates import Candidates
from balancesim.core.decision import AD_LANE, Lane
from balancesim.core.request import Mode
from tests.problems import make_candidates, make_problem

COLUMNS = [field.name for field in fields(Candidates)]


@pytest.mark.parametrize("count", [1, 5, 32, 33, 500])
def test_rows_are_where_the_ids_are(count):
    """In short and long lists of ids in any order, `rows` gives the places that a walk along the column finds."""
    ids = np.random.default_rng(count).permutation(np.arange(3, 3 + 7 * count, 7))
    problem = make_problem(make_candidates([1] * count, [1] * count, [1.0] * count, ids=ids))
    asked = ids[:: max(1, count // 4)].tolist()
    assert problem.rows(asked).tolist() == [ids.tolist().index(request_id) for request_id in asked]
    assert problem.rows(()).tolist() == []


@pytest.mark.parametrize("count", [1, 33])
def test_ids_of_no_candidate_are_named(count):
    """Below, between and above the ids that there are."""
    problem = make_problem(make_candidates([1] * count, [1] * count, [1.0] * count, ids=range(10, 10 + 2 * count, 2)))
    with pytest.raises(KeyError) as error:
        problem.rows((10, 9, 11, 10_000))
    assert error.value.args[0] == [9, 11, 10_000]


def test_columns_on_demand_are_the_columns():
    """Made once, at the first look, read-only; copies and selections have them all."""
    plain, made = make_candidates([3, 4], [5, 6], [1.0, 2.0]), []

    def make(name):
        made.append(name)
        return getattr(plain, name).copy()

    lazy = Candidates.on_demand({"request_id": plain.request_id}, make)
    assert len(lazy) == 2
    assert made == []
    assert lazy.slack_s is lazy.slack_s
    assert made == ["slack_s"]
    assert not lazy.slack_s.flags.writeable
    for name in COLUMNS:
        assert getattr(lazy, name).tolist() == getattr(plain, name).tolist()
        assert getattr(lazy.take(np.array([1])), name).tolist() == getattr(plain, name)[1:].tolist()
    assert replace(lazy, slack_s=np.array([7.0, 8.0])).slack_s.tolist() == [7.0, 8.0]
    with pytest.raises(AttributeError, match="has no attribute 'length'"):
        _ = lazy.length


def test_new_bytes_are_worked_out_once():
    """A problem asks its lane model once for the same members, and again for others."""
    asked = []

    class Counting:
        name = "counting"

        def new_bytes(self, problem, lane):
            asked.append(lane.members)
            return float(len(lane.members))

    problem = make_problem(make_candidates([1, 1], [1, 1], [1.0, 1.0]), lane_model=Counting())
    lanes = [
        Lane(AD_LANE, Mode.AD, share, 1.0, members) for share, members in ((1.0, (0,)), (0.5, (0,)), (1.0, (0, 1)))
    ]
    assert [problem.new_bytes(lane) for lane in lanes] == [1.0, 1.0, 2.0]
    assert asked == [(0,), (0, 1)]
