"""Every scenario of the repository loads, and a short run of it holds what every run must."""

import pytest

from balancesim.recorder import MemoryRecorder
from balancesim.scenario import load
from balancesim.scenario.document import scenario_names
from balancesim.simulate import run_world
from tests.test_simulate import check_invariants

NAMES = scenario_names()


def test_the_six_scenarios_are_there():
    """The scenarios that the README lists."""
    assert {"dense_urban", "suburban", "rural", "indoor_office", "stadium", "paper_balance"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_short_run(name):
    """A few seconds under the first policy of the list."""
    overrides = () if name == "paper_balance" else ("run.horizon_s=15", "run.warmup_s=0", "run.drain_s=30")
    scenario = load(name, overrides)
    assert not scenario.warnings
    assert scenario.description
    recorder = MemoryRecorder()
    result = run_world(scenario, scenario.policies[0].label, 0, recorder)
    check_invariants(scenario, result, recorder)
    assert result.summary.offered > 0
