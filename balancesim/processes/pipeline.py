"""Discipline ``pipeline``: the SBS drafts batch after batch, the MBS verifies them (Zhu et al., arXiv 2510.11331).

Every lane of a decision is one batch. It starts when its prompts are in (a prompt that is not in by its deadline is
dropped) and then circulates: drafted at the SBS, over the fronthaul, verified at the MBS, and back, round after round;
a lane that does not speculate is decoded at the MBS alone. Both nodes serve batches in the order in which they come, so
that batches that start together follow the recursion of model.md §7. A decision may be taken at any time; its batches
queue behind those under way.

Padding [A]: a batch keeps its size and its memory until it leaves, and its context grows evenly over its rounds. A
member's answer leaves with the verification that emits its last token; a batch whose members are all done leaves early,
unless ``early_exit`` is off: then all batches of a decision run the rounds of the slowest member among them, as [P2]
counts.
"""

from collections.abc import Generator

import numpy as np
import simpy

from balancesim.columns import GpuRow
from balancesim.core.decision import Lane
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.pipeline_times import BatchTimes
from balancesim.core.problem import Residents, no_residents
from balancesim.core.request import Mode
from balancesim.processes.batch_uploads import upload_missing
from balancesim.processes.discipline import Host
from balancesim.processes.pipeline_batch import Member, PipelineBatch, batch_rounds, make_batch
from balancesim.processes.visit import Visit


class PipelineDiscipline:
    """The batches of one SBS; its MBS may serve those of others beside them."""

    def __init__(self, host: Host) -> None:
        if host.site is None or not isinstance(host.lane_model, PipelineLanes):
            raise ValueError("the discipline pipeline needs an SBS and its lane model")
        nodes = host.spec.nodes
        self._host, self._site, self._fronthaul = host, host.site, nodes.fronthaul
        self._early_exit = host.lane_model.early_exit
        self._site.mbs.departed.append(host.departed)
        self._kv_ratio = nodes.draft.llm.kv_bytes_per_token / host.spec.target.kv_bytes_per_token
        self._batches: dict[int, PipelineBatch] = {}  #: by lane id, in order of admission
        self._order = 0

    def ready(self) -> bool:
        """Return True: new batches queue behind those under way."""
        return True

    def count(self) -> int:
        """Return how many requests are inside."""
        return sum(len(batch.inside) for batch in self._batches.values())

    def unfinished(self) -> list[Visit]:
        """Return the visits still inside."""
        for batch in self._batches.values():
            for member in batch.inside:
                self._settle(batch, member)
        return [member.visit for batch in self._batches.values() for member in batch.inside]

    def resident_lanes(self) -> dict[int, Lane]:
        """Return the batches under way."""
        return {lane_id: batch.lane for lane_id, batch in self._batches.items()}

    def residents(self) -> Residents:
        """Return who is inside, as a policy may see it."""
        rows = [_row(self._host, batch, member) for batch in self._batches.values() for member in batch.inside]
        if not rows:
            return no_residents()
        ints, floats, bools = np.int64, float, np.bool_
        kinds = (ints, ints, bools, ints, ints, ints, bools, floats, ints, floats, floats, floats)
        columns = zip(*rows, strict=True)
        return Residents(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))

    def admit(self, lane: Lane, visits: list[Visit], draft_load_s: float = 0.0) -> None:  # noqa: ARG002
        """Reserve a new batch's memory on both nodes and start the uploads that are still to be made."""
        if lane.lane_id in self._batches:
            self._batches[lane.lane_id].lane = lane
            return
        if not visits:
            return
        batch = make_batch(self._host, lane, self._order, visits)
        self._order += 1
        self._batches[lane.lane_id] = batch
        self._host.memory.reserve(-1 - lane.lane_id, batch.bytes_mbs)
        if batch.drafts:
            self._site.memory.reserve(-1 - lane.lane_id, batch.bytes_mbs * self._kv_ratio)
        for visit in visits:
            visit.prefill_tokens = 0
            visit.reserved_bytes = batch.bytes_mbs / len(visits)
        batch.waiting = {visit.request.request_id for visit in visits if visit.upload_end_s is None}
        upload_missing(self._host, visits, batch.waiting, batch.drop, lambda: self._start_if_ready(batch))
        self._start_if_ready(batch)

    def _start_if_ready(self, batch: PipelineBatch) -> None:
        if batch.waiting or batch.started:
            return
        if not batch.members:
            self._leave(batch)
            return
        batch.started = True
        self._host.env.process(self._run(batch))

    def _run(self, batch: PipelineBatch) -> Generator[simpy.Event, None, None]:
        """One batch's way: both nodes in turn, until its members are done."""
        host, length = self._host, batch.lane.draft_length
        rounds, output_tokens = self._extent(batch)
        times = batch_rounds(host, batch, rounds, output_tokens)
        draft_s, verify_s = times.draft_s([0])[:, 0].tolist(), times.verify_s([0])[:, 0].tolist()
        up_bits = len(batch.members) * length * self._fronthaul.draft_token_bits
        down_bits = len(batch.members) * (length + 1) * self._fronthaul.verified_token_bits
        batch.start_s = host.env.now
        for member in batch.members:
            member.visit.prefill_start_s = host.env.now
        for turn in range(rounds):
            if batch.drafts:
                if turn:
                    yield self._site.down.send(down_bits)
                yield self._site.stage.serve(draft_s[turn])
                yield self._site.up.send(up_bits)
            yield self._site.mbs.stage.serve(verify_s[turn])
            self._verified(batch)
            if self._early_exit and not batch.inside:
                break
        self._span(batch, times)
        self._leave(batch)

    def _extent(self, batch: PipelineBatch) -> tuple[int, int]:
        """Return the rounds that a batch runs and the tokens over which its context grows."""
        if self._early_exit:
            return batch.rounds, batch.output_tokens
        epoch = batch.members[0].visit.epoch
        plan = [other for other in self._batches.values() if other.members and other.members[0].visit.epoch == epoch]
        return max(other.rounds for other in plan), max(other.output_tokens for other in plan)

    def _verified(self, batch: PipelineBatch) -> None:
        """A verification is over: first tokens are there, and answers that are complete leave."""
        host, inside = self._host, batch.inside
        batch.round += 1
        if batch.round == 1:
            for member in batch.members:
                host.first_token(member.visit)
        while inside and inside[-1].rounds <= batch.round:
            self._answer(batch, inside.pop())
        if host.abort_late:
            now_s = host.env.now
            for member in [member for member in inside if member.visit.deadline_at_s < now_s]:
                inside.remove(member)
                self._answer(batch, member)

    def _answer(self, batch: PipelineBatch, member: Member) -> None:
        self._settle(batch, member)
        member.visit.server_last_token_s = self._host.env.now
        self._host.answered(member.visit)

    @staticmethod
    def _settle(batch: PipelineBatch, member: Member) -> None:
        """Write down what a member has got by now."""
        rounds = min(batch.round, member.rounds)
        member.visit.tokens_out = int(member.emitted[rounds - 1]) if rounds else 0
        member.visit.draft_rounds = rounds if batch.drafts else 0

    def _span(self, batch: PipelineBatch, times: BatchTimes) -> None:
        """Report the GPU time of each node; round 1 holds the prefills and counts as one."""
        draft_s, verify_s = (rows([0])[: batch.round, 0] for rows in (times.draft_s, times.verify_s))
        row = GpuRow(
            server_id=self._site.mbs.server_id,
            lane_id=batch.lane.lane_id,
            mode=batch.lane.mode,
            start_s=batch.start_s,
            end_s=self._host.env.now,
            steps=batch.round,
            batch_size=len(batch.members),
            tokens=sum(member.visit.tokens_out for member in batch.members),
            prefill_s=float(verify_s[0]),
            decode_s=0.0 if batch.drafts else float(verify_s[1:].sum()),
            draft_s=0.0,
            verify_s=float(verify_s[1:].sum()) if batch.drafts else 0.0,
            switch_s=0.0,
        )
        self._host.span(row)
        if batch.drafts:
            row = row._replace(server_id=self._host.server_id, tokens=0, verify_s=0.0)
            self._host.span(row._replace(prefill_s=float(draft_s[0]), draft_s=float(draft_s[1:].sum())))

    def _leave(self, batch: PipelineBatch) -> None:
        owner = -1 - batch.lane.lane_id
        del self._batches[batch.lane.lane_id]
        self._host.memory.release(owner)
        if batch.drafts:
            self._site.memory.release(owner)
        for departed in self._site.mbs.departed:  # what is free on the MBS is free for every SBS
            departed()


def _row(host: Host, batch: PipelineBatch, member: Member) -> tuple[float, ...]:
    """Return one row of `core.problem.Residents`: predictions, never the truth."""
    visit, request = member.visit, member.visit.request
    out = int(member.emitted[min(batch.round, member.rounds) - 1]) if batch.round else 0
    uploading = request.request_id in batch.waiting
    return (
        request.request_id,
        batch.lane.lane_id,
        batch.lane.mode is Mode.SD,
        out,
        max(1, request.predicted_output_tokens - out),
        request.prompt_tokens + out,
        batch.round == 0,
        request.predicted_acceptance_rate,
        batch.lane.draft_length,
        batch.bytes_mbs / len(batch.inside),
        visit.slack_s(host.env.now, host.downlink_s(visit)),
        host.uploads.left_s(visit) if uploading else 0.0,
    )
