"""Every policy of a single server through whole runs: lanes that come and go, residents, memory, slices."""

import pytest

from balancesim.core.request import Outcome
from balancesim.policies import POLICIES
from tests.test_simulate import BUSY, check_invariants, run

DISCIPLINES = ("static", "static_per_user", "continuous")
CASES = [
    (policy.name, discipline)
    for policy in POLICIES
    for discipline in getattr(policy, "disciplines", DISCIPLINES)
    if discipline in (*DISCIPLINES, "fused")
]


@pytest.mark.parametrize(("policy", "discipline"), CASES)
def test_every_policy_runs(tmp_path, policy, discipline):
    """Every request has one outcome, memory holds, the GPU is not used twice, and somebody is served in time."""
    short = ("run.horizon_s=3", "run.warmup_s=0", "network.cells=1", f"scheduling.discipline={discipline}")
    short += (f'run.policies=["{policy}"]',)
    scenario, result, recorder = run(tmp_path, policy, *BUSY, *short)
    check_invariants(scenario, result, recorder)
    assert result.outcomes.get(Outcome.COMPLETED, 0) > 0
