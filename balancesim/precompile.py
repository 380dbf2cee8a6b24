"""Compile the decision kernels once: ``python -m balancesim.precompile``. `make` does so when it installs.

The kernels `core.*_kernel` are compiled at their first use, which takes
about twenty seconds, and kept on disk beside the code. A decision about one small problem of each kind does it.
"""

from dataclasses import replace

import numpy as np

from balancesim.catalog import gpu, llm
from balancesim.core.candidates import Candidates
from balancesim.core.decision import SD_LANE, Lane
from balancesim.core.lane_models import ContinuousLanes, PerUserLanes, StaticLanes
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.pipeline_nodes import Fronthaul, PipelineNode, Sbs
from balancesim.core.problem import Problem, Residents
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from balancesim.latency_laws import Roofline
from balancesim.policies import Balance, Optimal, PipelinedSd


def small_problem() -> Problem:
    """Return a static problem of eight requests that no single batch serves in time."""
    law = Roofline(launch_s=1e-4, bandwidth_efficiency=0.8, compute_efficiency=0.6)
    target, draft = llm("Llama-2-7B"), llm("TinyLlama-1.1B")
    server = ServerSpec(gpu("RTX 4090"), target, law, 20e9, draft=draft, draft_law=law, draft_length=4)
    count = 8
    steps = np.arange(count, dtype=float)
    candidates = Candidates(
        request_id=np.arange(count),
        prompt_tokens=np.arange(count) * 50 + 10,
        output_tokens=np.arange(count) * 40 + 5,
        acceptance_rate=0.6 + 0.04 * steps,
        slack_s=0.3 + 0.3 * steps,
        upload_s=0.01 * steps,
        waited_s=np.zeros(count),
        prompt_bits=np.ones(count),
        spectral_efficiency_bps_hz=np.ones(count),
    )
    return Problem(0.0, 0, server, StaticLanes(), candidates)


def continuous_problem() -> Problem:
    """Return the same in a running server with one resident."""

    def residents() -> Residents:
        ints, floats = np.array([100]), np.array([5.0])
        sd, no = np.array([True]), np.array([False])
        lane, length = np.array([SD_LANE]), np.array([4])
        rate, held, upload = np.array([0.8]), np.array([1e8]), np.zeros(1)
        return Residents(ints, lane, sd, ints, ints, ints, no, rate, length, held, floats, upload)

    lanes = (Lane(SD_LANE, Mode.SD, 1.0, 1.0, draft_length=4),)
    return replace(
        small_problem(),
        lane_model=ContinuousLanes(),
        lanes=lanes,
        make_residents=residents,
        held_bytes=1e8,
        uses_sd=True,
    )


def pipeline_problem() -> Problem:
    """Return the same with an SBS that drafts for the server."""
    problem = small_problem()
    server = problem.server
    assert server.draft is not None
    assert server.draft_law is not None
    sbs = Sbs(PipelineNode(server.draft, server.gpu, server.draft_law), Fronthaul())
    return replace(problem, server=replace(server, sbs=sbs), lane_model=PipelineLanes())


def main() -> None:
    """Take one decision of each kind."""
    empty = [replace(small_problem(), lane_model=lanes) for lanes in (StaticLanes(), PerUserLanes(), ContinuousLanes())]
    for problem in (*empty, continuous_problem()):
        Balance().decide(problem)
    Optimal().decide(small_problem())
    PipelinedSd().decide(pipeline_problem())


if __name__ == "__main__":
    main()
