"""A single edge server without radio, for tests of what happens behind it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import simpy

from balancesim.acceptance import Iid
from balancesim.core.gpu import GpuSpec
from balancesim.core.lane_models import ContinuousLanes, StaticLanes
from balancesim.core.llm import LlmSpec
from balancesim.core.request import Request
from balancesim.core.server import ServerSpec
from balancesim.core.slicing import Slicing
from balancesim.core.work import Phase
from balancesim.processes.cell import Cell
from balancesim.processes.server import EdgeServer
from balancesim.processes.setup import ServerSetup, Sinks
from balancesim.processes.visit import Visit
from balancesim.streams import Streams


class InstantLink:
    """A link that takes no time."""

    def send(self, transfer_id, user_id, bits, done, weight=None):
        done()

    def cancel(self, transfer_id):
        raise AssertionError("nothing is under way")

    def predicted_s(self, user_ids, bits):
        return np.zeros(len(user_ids))

    def time_s(self, user_id, bits):
        return 0.0

    def spectral_efficiency(self, user_ids):
        return np.ones(len(user_ids))

    def sinr(self, user_id):
        return 1.0


@dataclass(frozen=True)
class StepLaw:
    """A step of a batch of b takes fixed_s + per_row_s·b, a prefill prefill_s: queueing theory's servers."""

    name: ClassVar[str] = "step"
    fixed_s: float = 0.0
    per_row_s: float = 0.0
    prefill_s: float = 0.0

    def forward_s(self, llm, gpu, phase, work):
        if phase is Phase.PREFILL:
            return self.prefill_s + 0.0 * work.new_tokens
        return self.fixed_s + self.per_row_s * work.new_tokens


#: 1 layer, 1 byte of KV a token: memory counts tokens
UNIT_LLM = LlmSpec(
    name="unit", layers=1, hidden=1, heads=1, kv_heads=1, head_dim=1, ffn=1, ffn_matrices=2, vocab=1,
    tied_embeddings=True, parameters=1.0, nonembedding_parameters=1.0, context_tokens=10**9,
    weight_bytes_per_parameter=1.0, kv_bytes_per_value=0.5,
)  # fmt: skip
UNIT_GPU = GpuSpec("unit", 1.0, 1.0, 1e18)


@dataclass
class Edge:
    """Runs requests through one server under a policy."""

    law: StepLaw
    policy: object
    static: bool = False
    memory_tokens: float = 1e15
    max_candidates: int = 1000
    epoch_s: float | None = None
    upload_on_admission: bool = False
    visits: list[Visit] = field(default_factory=list)
    epochs: list = field(default_factory=list)
    spans: list = field(default_factory=list)

    def run(self, requests: Iterable[Request], until: float | None = None):
        """Return the finished visits."""
        env = simpy.Environment()
        spec = ServerSpec(UNIT_GPU, UNIT_LLM, self.law, usable_memory_bytes=1.0 + self.memory_tokens)
        link = InstantLink()
        setup = ServerSetup(
            server_id=0,
            spec=spec,
            lane_model=StaticLanes() if self.static else ContinuousLanes(),
            slicing=Slicing(0.0),
            acceptance=Iid(),
            luck=Streams(0, 0).keyed("acceptance"),
            policy=self.policy,
            cells={0: Cell(0, link, link, 0.0, 32.0, False)},
            epoch_s=self.epoch_s,
            upload_on_admission=self.upload_on_admission,
            abort_late=False,
            kv_growth_tokens=64,
            max_candidates=self.max_candidates,
        )
        server = EdgeServer(env, setup, Sinks(self.visits.append, self.epochs.append, self.spans.append))

        def source():
            for request in requests:
                yield env.timeout(request.arrival_s - env.now)
                server.arrive(Visit(request, 0, 0))

        env.process(source())
        env.run(until=until)
        server.close()
        return self.visits
