"""A batch in the pipeline: its members, what every round emits for them, and what its rounds take."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from balancesim.core.decision import Lane
from balancesim.core.memory import speculates
from balancesim.core.pipeline_times import Answers, BatchTimes, round_times
from balancesim.processes.discipline import Host
from balancesim.processes.visit import Visit
from balancesim.units import IntArray


@dataclass(slots=True, eq=False)
class Member:
    """A request in a batch."""

    visit: Visit
    tokens: int  #: answer tokens that it will get: the truth, cut at the batch's bound
    emitted: IntArray  #: of them, out after 1, 2, … rounds; its length is the rounds that it needs

    @property
    def rounds(self) -> int:
        """Rounds until its last token."""
        return len(self.emitted)


@dataclass(slots=True, eq=False)
class PipelineBatch:
    """One lane of a decision. ``members`` shrinks when prompts do not come in time, ``inside`` as answers are done."""

    lane: Lane
    order: int  #: of admission
    members: list[Member]
    bytes_mbs: float
    waiting: set[int] = field(default_factory=set)  #: request ids whose prompt is not in
    inside: list[Member] = field(default_factory=list)  #: not answered yet, those with fewest rounds last
    round: int = 0  #: rounds done
    started: bool = False
    start_s: float = 0.0

    @property
    def drafts(self) -> bool:
        """Whether the SBS drafts for it; else it is decoded on the MBS alone."""
        return speculates(self.lane.mode, self.lane.draft_length)

    def drop(self, visit: Visit) -> None:
        """Take a request out before the batch starts."""
        self.members = [member for member in self.members if member.visit is not visit]
        self.inside = [member for member in self.inside if member.visit is not visit]

    @property
    def rounds(self) -> int:
        """Rounds that its slowest member needs."""
        return max(member.rounds for member in self.members)

    @property
    def output_tokens(self) -> int:
        """O: its longest answer."""
        return max(member.tokens for member in self.members)


def make_batch(host: Host, lane: Lane, order: int, visits: Sequence[Visit]) -> PipelineBatch:
    """Return a batch with every member's luck drawn.

    Answers are cut at the longest predicted one of the batch, which is what its KV caches have room for. Round 1 emits
    tokens already (the target's prefill is its first verification), so an answer of n tokens needs the rounds that the
    acceptance law gives for n tokens after a first.
    """
    bound = max(visit.request.predicted_output_tokens for visit in visits)
    prompt = max(visit.request.prompt_tokens for visit in visits)
    members = []
    for visit in visits:
        tokens = min(visit.request.output_tokens, bound)
        visit.truncated = tokens < visit.request.output_tokens
        members.append(Member(visit, tokens, _emitted(host, lane, visit, tokens)))
    size = float(len(visits) * (prompt + bound)) * host.spec.target.kv_bytes_per_token
    inside = sorted(members, key=lambda member: -member.rounds)
    return PipelineBatch(lane, order, members, size, inside=inside)


def _emitted(host: Host, lane: Lane, visit: Visit, tokens: int) -> IntArray:
    if not speculates(lane.mode, lane.draft_length):
        return np.arange(1, tokens + 1)
    request = replace(visit.request, output_tokens=tokens + 1)
    return np.cumsum(host.acceptance.rounds(request, lane.draft_length, host.luck))


def batch_rounds(host: Host, batch: PipelineBatch, rounds: int, output_tokens: int) -> BatchTimes:
    """Return the times of a batch's rounds: ``rounds`` of them, over which ``output_tokens`` are out evenly [A]."""
    sizes = np.array([len(batch.members)])
    inputs = np.array([max(member.visit.request.prompt_tokens for member in batch.members)])
    answers = Answers(batch.lane.draft_length if batch.drafts else 0, rounds, output_tokens)
    return round_times(host.spec.nodes, sizes, inputs, answers)
