"""Scheduling problems for tests: random ones from a seed, and hypothesis strategies with the extremes."""

import math
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from balancesim.core.candidates import Candidates
from balancesim.core.decision import Lane
from balancesim.core.gpu import GpuSpec
from balancesim.core.lane_models import ContinuousLanes, PerUserLanes, StaticLanes
from balancesim.core.llm import LlmSpec
from balancesim.core.memory import request_kv_bytes
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.pipeline_nodes import Fronthaul, PipelineNode, Sbs
from balancesim.core.problem import Problem, Residents
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec

GPU = GpuSpec("test GPU", 100e12, 1e12, 24e9)
TARGET = LlmSpec("target", 32, 4096, 32, 32, 128, 11008, 3, 32000, False, 6.7384e9, 6.4763e9, 4096)
DRAFT = LlmSpec("draft", 22, 2048, 32, 4, 64, 5632, 3, 32000, False, 1.1e9, 0.969e9, 4096)


@dataclass(frozen=True)
class LinearLaw:
    """Time = fixed + a·rows + b·context read: linear in the context, like `flops` and `affine`."""

    name = "linear"
    fixed_s: float
    row_s: float
    context_s: float

    def forward_s(self, llm, gpu, phase, work):
        return self.fixed_s + self.row_s * work.new_tokens + self.context_s * work.kv_tokens + 0.0 * work.sequences


TARGET_LAW = LinearLaw(2e-3, 2e-5, 4e-7)
DRAFT_LAW = LinearLaw(3e-4, 3e-6, 5e-8)


def make_server(kv_tokens=9000, draft_length=4, laws=(TARGET_LAW, DRAFT_LAW), **options):
    """A server whose memory holds this many tokens of the target's KV cache beside its weights.

    The draft's weights take the room of 4,196 tokens, so that 4000 leaves no room for SD.
    """
    usable = TARGET.weight_bytes + max(1.0, kv_tokens * TARGET.kv_bytes_per_token)
    return ServerSpec(GPU, TARGET, laws[0], usable, DRAFT, laws[1], draft_length, **options)


def with_sbs(server, kv_tokens=math.inf, fronthaul=None):
    """The same server as the MBS of a pipeline: an SBS with room for so many tokens of the draft's KV cache."""
    memory = DRAFT.weight_bytes + kv_tokens * DRAFT.kv_bytes_per_token
    node = PipelineNode(server.draft, GPU, server.draft_law, memory)
    return replace(server, sbs=Sbs(node, fronthaul or Fronthaul()))


def make_candidates(prompt, output, slack, *, alpha=None, upload=None, waited=None, ids=None):
    """Candidates from lists; what is left out is harmless."""
    count = len(prompt)
    floats = np.zeros(count)
    return Candidates(
        request_id=np.arange(count, dtype=np.int64) if ids is None else np.array(ids, dtype=np.int64),
        prompt_tokens=np.array(prompt, dtype=np.int64),
        output_tokens=np.array(output, dtype=np.int64),
        acceptance_rate=np.full(count, 0.8) if alpha is None else np.array(alpha, dtype=float),
        slack_s=np.array(slack, dtype=float),
        upload_s=floats.copy() if upload is None else np.array(upload, dtype=float),
        waited_s=np.arange(count, 0, -1, dtype=float) if waited is None else np.array(waited, dtype=float),
        prompt_bits=floats.copy(),
        spectral_efficiency_bps_hz=floats + 1.0,
    )


def make_problem(candidates, server=None, lane_model=None, **options):
    return Problem(0.0, 0, server or make_server(), lane_model or StaticLanes(), candidates, **options)


def random_candidates(rng, count, slack=(0.2, 4.0), lengths=(1, 120)):
    return make_candidates(
        rng.integers(*lengths, count, endpoint=True),
        rng.integers(*lengths, count, endpoint=True),
        rng.uniform(*slack, count),
        alpha=rng.uniform(0.6, 0.95, count),
        upload=rng.uniform(0.0, 0.2, count),
        ids=rng.permutation(10 * count)[:count],
    )


def random_residents(rng, server, count, first_id=100_000):
    """Residents of an AD lane 0 and an SD lane 1, some not prefilled, some late, some without deadline."""
    if count == 0:
        return None
    is_sd = rng.random(count) < 0.4
    remaining, context = rng.integers(1, 100, count), rng.integers(1, 200, count)
    needs = rng.random(count) < 0.3
    slack = rng.uniform(-0.5, 8.0, count)
    slack[rng.random(count) < 0.3] = np.inf
    reserved = [
        request_kv_bytes(server, Mode.SD if sd else Mode.AD, server.draft_length if sd else 0, float(tokens))
        for sd, tokens in zip(is_sd, remaining + context, strict=True)
    ]
    return Residents(
        request_id=np.arange(first_id, first_id + count),
        lane_id=is_sd.astype(np.int64),
        is_sd=is_sd,
        tokens_out=np.where(needs, 0, rng.integers(1, 50, count)),
        remaining_tokens=remaining,
        context_tokens=context,
        needs_prefill=needs,
        acceptance_rate=rng.uniform(0.6, 0.95, count),
        draft_length=np.where(is_sd, server.draft_length, 0),
        reserved_bytes=np.array(reserved),
        slack_s=slack,
        upload_s=np.where(needs, rng.uniform(0.0, 0.3, count), 0.0),
    )


def random_problem(seed, count=8, *, continuous=False, residents=0, server=None, **options):
    """A problem from a seed; ``options`` go to the candidates."""
    rng = np.random.default_rng(seed)
    server = server or make_server()
    candidates = random_candidates(rng, count, **options)
    if not continuous:
        return make_problem(candidates, server)
    table = random_residents(rng, server, residents)
    if table is None:
        return make_problem(candidates, server, ContinuousLanes())
    has = [bool((table.lane_id == lane_id).any()) for lane_id in (0, 1)]
    share = 0.5 if all(has) else 1.0
    kinds = ((0, Mode.AD, 0), (1, Mode.SD, server.draft_length))
    lanes = tuple(
        Lane(lane_id, mode, share, share, draft_length=gamma)
        for (lane_id, mode, gamma), used in zip(kinds, has, strict=True)
        if used
    )
    return make_problem(
        candidates,
        server,
        ContinuousLanes(),
        lanes=lanes,
        make_residents=lambda: table,
        held_bytes=float(table.reserved_bytes.sum()),
        uses_sd=has[1] and server.draft_length > 0,
    )


def in_pipeline(problem, sbs_kv_tokens=math.inf):
    """The same problem for an SBS and its MBS: lanes with residents are batches under way, uploads have bits."""
    server, residents = with_sbs(problem.server, sbs_kv_tokens), problem.make_residents()
    speculating = residents.reserved_bytes[residents.is_sd & (residents.draft_length > 0)].sum()
    users = problem.candidates
    return replace(
        problem,
        server=server,
        lane_model=PipelineLanes(),
        sbs_held_bytes=float(speculating) / TARGET.kv_bytes_per_token * DRAFT.kv_bytes_per_token,
        candidates=replace(users, prompt_bits=np.where(users.upload_s > 0, 1e5 * users.prompt_tokens, 0.0)),
    )


@st.composite
def problems(draw, max_count=8, *, continuous=None):
    """Small problems of either discipline, with their extremes: α 0 and 1, γ 0, twins, passed deadlines, no memory."""
    count = draw(st.integers(0, max_count))
    kind = draw(st.booleans()) if continuous is None else continuous
    gamma = draw(st.sampled_from([0, 1, 4]))
    kv_tokens = draw(st.sampled_from([0, 200, 5000, 9000]))
    server = make_server(kv_tokens, gamma, draft_load_bytes_s=draw(st.sampled_from([np.inf, 1e10])))
    problem = random_problem(
        draw(st.integers(0, 2**32)),
        count,
        continuous=kind,
        residents=draw(st.integers(0, 6)) if kind and kv_tokens >= 5000 else 0,
        server=server,
        slack=draw(st.sampled_from([(0.05, 0.5), (0.2, 3.0), (-1.0, 1.0)])),
        lengths=draw(st.sampled_from([(1, 1), (1, 20), (1, 200)])),
    )
    if not kind and draw(st.booleans()):
        problem = replace(problem, lane_model=PerUserLanes())
    users = problem.candidates
    changes = {}
    if draw(st.booleans()):
        rate = draw(st.sampled_from([0.0, 1.0]))
        changes["acceptance_rate"] = np.full(count, rate)
    if draw(st.booleans()) and count:
        changes |= {
            name: np.full(count, getattr(users, name)[0]) for name in ("prompt_tokens", "output_tokens", "slack_s")
        }
    if draw(st.booleans()):
        changes["slack_s"] = np.where(np.arange(count) % 2 == 0, np.inf, users.slack_s)
    if draw(st.booleans()) and count:
        upload = users.upload_s.copy()
        upload[0] = draw(st.sampled_from([np.nan, np.inf]))
        changes["upload_s"] = upload
    return replace(problem, candidates=replace(users, **changes), draft_loaded=draw(st.booleans()))
