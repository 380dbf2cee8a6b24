"""Each scenario sits where the decision matters."""

import pytest

from balancesim.columns import RequestRow
from balancesim.core.request import Outcome
from balancesim.recorder import MemoryRecorder
from balancesim.scenario import load
from balancesim.scenario.document import scenario_names
from balancesim.simulate import run_world

pytestmark = pytest.mark.slow


def served_in_time(rows: list[RequestRow], warmup_s: float) -> float:
    """Share of the offered requests that were answered in time."""
    counted = [row for row in rows if row.arrival_s >= warmup_s]
    return sum(row.outcome is Outcome.COMPLETED for row in counted) / len(counted)


@pytest.mark.parametrize("name", scenario_names())
def test_policies_differ_and_none_is_perfect(name):
    """The best policy serves 50 to 95 % in time, and policies differ by at least 5 points."""
    scenario = load(name)
    replications = 10 if name == "paper_balance" else 1
    shares = {}
    for entry in scenario.policies:
        found = []
        for replication in range(replications):
            recorder = MemoryRecorder()
            run_world(scenario, entry.label, replication, recorder)
            found.append(served_in_time(recorder.requests, scenario.run.warmup_s))
        shares[entry.label] = sum(found) / len(found)
    best = max(shares.values())
    assert 0.50 <= best <= 0.95, shares
    assert best - min(shares.values()) >= 0.05, shares
