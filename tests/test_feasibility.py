"""Every rule of a decision, broken alone, is reported in words."""

import re
from dataclasses import replace

import numpy as np
import pytest

from balancesim.core.decision import Decision, Lane
from balancesim.core.feasibility import check_structure, is_feasible
from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.request import Mode
from tests.problems import make_candidates, make_problem, make_server
from tests.test_lane_models import residents

USERS = make_candidates([10, 20, 30], [10, 10, 10], [5.0, 5.0, 0.001], ids=[1, 2, 3])
PROBLEM = make_problem(USERS, make_server(9000, 4))
AD = Lane(0, Mode.AD, 0.5, 0.5, (1,))
SD = Lane(1, Mode.SD, 0.5, 0.5, (2,), draft_length=4)


def with_residents():
    table = residents([np.inf, np.inf])
    lanes = (Lane(0, Mode.AD, 1.0, 1.0),)
    return make_problem(
        USERS, make_server(9000, 4), ContinuousLanes(), lanes=lanes, make_residents=lambda: table, held_bytes=200.0
    )


def test_a_good_decision():
    """A decision that keeps all rules has no reasons and counts as true."""
    verdict = is_feasible(PROBLEM, Decision((AD, SD), rejected=(3,)))
    assert verdict.reasons == ()
    assert verdict
    check_structure(PROBLEM, Decision((AD, SD), rejected=(3,)))


STRUCTURE = [
    (Decision((AD, replace(SD, members=(1, 2)))), r"disjoint, got request ids \[1\] more than once"),
    (Decision((AD,), rejected=(1,)), r"disjoint, got request ids \[1\]"),
    (Decision((replace(AD, members=(1, 8)),)), r"must be candidates, got request ids \[8\]"),
    (Decision((AD,), bandwidth_weights={9: 1.0}), r"bandwidth_weights must be of candidates, got request ids \[9\]"),
    (Decision((AD, replace(SD, lane_id=0))), r"lane_id must be unique, got \[0, 0\]"),
    (Decision((replace(AD, gpu_share=1.2),)), "lane 0: gpu_share must be between 0 and 1, got 1.2"),
    (Decision((replace(AD, memory_share=float("nan")),)), "lane 0: memory_share must be between 0 and 1, got nan"),
    (Decision((AD, replace(SD, gpu_share=0.6))), "gpu_share of all lanes must sum to at most 1, got 1.1"),
    (Decision((AD, replace(SD, memory_share=0.6))), "memory_share of all lanes must sum to at most 1, got 1.1"),
    (Decision((replace(AD, gpu_share=0.0),)), "lane 0: gpu_share must be above 0 where requests are admitted, got 0.0"),
    (Decision((replace(AD, draft_length=2),)), "lane 0: draft_length must be 0 for AD .* got 2"),
]


@pytest.mark.parametrize(("decision", "message"), STRUCTURE)
def test_structure(decision, message):
    """Broken structure is reported by both checks."""
    with pytest.raises(ValueError, match="decision at epoch 0: .*" + message):
        check_structure(PROBLEM, decision)
    verdict = is_feasible(PROBLEM, decision)
    assert not verdict
    assert any(re.search(message, reason) for reason in verdict.reasons)


def test_sd_needs_a_draft_model():
    """SD with γ ≥ 1 on a server without a draft model is refused; γ = 0 needs none."""
    problem = replace(PROBLEM, server=replace(PROBLEM.server, draft=None, draft_law=None))
    with pytest.raises(ValueError, match="lane 1: mode must be AD on a server without a draft model, got SD"):
        check_structure(problem, Decision((SD,)))
    check_structure(problem, Decision((replace(SD, draft_length=0),)))


def test_deadlines():
    """A member that is late is named with its time left and its predicted time."""
    reasons = is_feasible(PROBLEM, Decision((replace(AD, members=(1, 3)),))).reasons
    assert len(reasons) == 1
    assert reasons[0].startswith("lane 0: member 3 must finish within 0.001 s, got ")


def test_memory():
    """A lane over its share, and all lanes over the whole memory, are reported with both numbers of bytes."""
    # 60 tokens: 31,457,280 B for AD; members 1 and 2 padded to 20 + 10 need 2·30 tokens, all three 3·40
    problem = make_problem(USERS, make_server(60))
    lane = Lane(0, Mode.AD, 1.0, 1.0, (1, 2))
    check_structure(problem, Decision((lane,)))
    reasons = is_feasible(problem, Decision((replace(lane, memory_share=0.5),))).reasons
    assert reasons == ("lane 0: memory must be at most memory_share·free = 1.57286e+07 bytes, got 3.14573e+07 bytes",)
    with pytest.raises(
        ValueError, match=r"memory of all lanes must be at most 3.14573e\+07 bytes, got 0 held \+ 6.29146e\+07 new"
    ):
        check_structure(problem, Decision((replace(lane, members=(1, 2, 3)),)))


def test_residents():
    """A lane with residents must stay, with its mode and a share; a decision without lanes changes nothing."""
    problem = with_residents()
    assert is_feasible(problem, Decision())
    cases = [
        (Decision((SD,)), "lane 0: must stay in the decision while it has residents"),
        (
            Decision((Lane(0, Mode.SD, 1.0, 1.0, draft_length=4),)),
            "lane 0: mode must stay AD with draft_length 0, got SD",
        ),
        (
            Decision((Lane(0, Mode.AD, 0.0, 1.0),)),
            "lane 0: gpu_share must stay above 0 while it has residents, got 0.0",
        ),
    ]
    for decision, message in cases:
        with pytest.raises(ValueError, match=message):
            check_structure(problem, decision)


def test_residents_stay_in_time():
    """A decision that makes a resident late is refused."""
    problem = with_residents()
    lane = problem.lanes[0]
    needed = float(problem.lane_model.predict(problem, lane).finish_s[0])
    problem = replace(problem, make_residents=lambda: residents([needed * 1.5, np.inf]))
    assert is_feasible(problem, Decision((replace(lane, gpu_share=0.9),)))
    reasons = is_feasible(problem, Decision((replace(lane, gpu_share=0.5),))).reasons
    assert len(reasons) == 1
    assert reasons[0].startswith("lane 0: resident 50 must finish within ")


def test_a_lane_that_admits_nobody_may_exceed_its_share():
    """Paged growth may outgrow a memory share: a lane without new members is not refused for it."""
    problem = with_residents()
    assert is_feasible(problem, Decision((replace(problem.lanes[0], memory_share=0.0),)))
