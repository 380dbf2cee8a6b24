"""Discipline ``static``: padded batches that run to their end; the answers of a batch leave together [P1].

A decision is frozen until all its lanes are done (model.md §10). A lane starts when all its prompts are in (and the
draft model, if it was not loaded); a prompt that is not in by its deadline is dropped and the lane starts without it.
"""

from dataclasses import dataclass, field

import numpy as np

from balancesim.columns import GpuRow
from balancesim.core.decision import Lane
from balancesim.core.lane_models import CostForm
from balancesim.core.memory import padded_kv_bytes, speculates
from balancesim.core.padded import BatchCost, Members, padded_batch
from balancesim.core.problem import Residents, no_residents
from balancesim.processes.batch_uploads import upload_missing
from balancesim.processes.discipline import Host
from balancesim.processes.visit import Visit


@dataclass(slots=True, eq=False)
class _Batch:
    """One lane's batch."""

    lane: Lane
    members: list[Visit]
    output_bound: int  #: N of the decision: the longest predicted answer; longer truths are cut here
    waiting: set[int] = field(default_factory=set)  #: request ids whose prompt is not in
    draft_ready: bool = True
    start_s: float = 0.0
    tokens: int = 0


class StaticDiscipline:
    """Runs the lanes of one decision at a time; ``cost`` is the GPU time of a batch."""

    def __init__(self, host: Host, cost: CostForm = padded_batch) -> None:
        self._host = host
        self._cost = cost
        self._batches: dict[int, _Batch] = {}

    def ready(self) -> bool:
        """Return whether all lanes of the last decision are done."""
        return not self._batches

    def count(self) -> int:
        """Return how many requests are inside."""
        return sum(len(batch.members) for batch in self._batches.values())

    def unfinished(self) -> list[Visit]:
        """Return the visits still inside."""
        return [visit for batch in self._batches.values() for visit in batch.members]

    def residents(self) -> Residents:
        """Return nobody: a decision is only taken when all lanes are done."""
        return no_residents()

    def resident_lanes(self) -> dict[int, Lane]:
        """Return no lane, for the same reason."""
        return {}

    def admit(self, lane: Lane, visits: list[Visit], draft_load_s: float = 0.0) -> None:
        """Reserve the padded batch's memory and start the uploads that are still to be made."""
        if not visits:
            return
        host = self._host
        prompt = max(visit.request.prompt_tokens for visit in visits)
        bound = max(visit.request.predicted_output_tokens for visit in visits)
        per_sequence = float(padded_kv_bytes(host.spec, lane.mode, lane.draft_length, prompt + bound))
        host.memory.reserve(-1 - lane.lane_id, per_sequence * len(visits))
        batch = _Batch(lane, list(visits), bound)
        self._batches[lane.lane_id] = batch
        batch.waiting = {visit.request.request_id for visit in visits if visit.upload_end_s is None}
        for visit in visits:
            visit.reserved_bytes = per_sequence
        upload_missing(host, visits, batch.waiting, batch.members.remove, lambda: self._start_if_ready(batch))
        if draft_load_s > 0 and speculates(lane.mode, lane.draft_length):
            batch.draft_ready = False
            host.env.timeout(draft_load_s).callbacks.append(lambda _: self._draft_loaded(batch))
        self._start_if_ready(batch)

    def _draft_loaded(self, batch: _Batch) -> None:
        batch.draft_ready = True
        self._start_if_ready(batch)

    def _start_if_ready(self, batch: _Batch) -> None:
        if batch.waiting or not batch.draft_ready:
            return
        if not batch.members:
            self._end(batch)
            return
        host, lane, members = self._host, batch.lane, batch.members
        batch.start_s = host.env.now
        shape = self._emit(batch)
        cost = self._cost(host.spec, lane.mode, lane.draft_length, shape)
        for visit in members:
            visit.prefill_start_s = host.env.now
        host.gpu.run(lane.lane_id, float(cost.prefill_s), lambda: self._prefilled(batch, cost, shape))

    def _emit(self, batch: _Batch) -> Members:
        """Settle how many tokens and rounds (steps for AD) each member takes; return the batch as it will run."""
        lane, taken = batch.lane, []
        for visit in batch.members:
            wanted = visit.request.output_tokens
            visit.tokens_out = min(wanted, batch.output_bound)
            visit.truncated = visit.tokens_out < wanted
            steps = visit.tokens_out - 1
            if speculates(lane.mode, lane.draft_length):
                emitted = np.cumsum(self._host.acceptance.rounds(visit.request, lane.draft_length, self._host.luck))
                steps = int(np.searchsorted(emitted, visit.tokens_out - 1)) + 1 if visit.tokens_out > 1 else 0
                visit.draft_rounds = steps
            taken.append(steps)
        prompts = [visit.request.prompt_tokens for visit in batch.members]
        outputs = [visit.tokens_out for visit in batch.members]
        batch.tokens = sum(outputs)
        return Members(np.array(prompts), np.array(outputs), np.array(taken))

    def _prefilled(self, batch: _Batch, cost: BatchCost, shape: Members) -> None:
        host = self._host
        for visit in batch.members:
            visit.server_first_token_s = host.env.now
        self._span(batch, BatchCost(cost.prefill_s, 0.0, 0.0, 0.0), 0, len(batch.members))
        rest_s = float(cost.decode_s + cost.draft_s + cost.verify_s)
        batch.start_s = host.env.now
        if int(shape.output_tokens.max()) == 1:
            self._done(batch)
            return
        steps = int(shape.rounds.max())

        def decoded() -> None:
            tokens = batch.tokens - len(batch.members)
            self._span(batch, BatchCost(0.0, cost.decode_s, cost.draft_s, cost.verify_s), steps, tokens)
            self._done(batch)

        host.gpu.run(batch.lane.lane_id, rest_s, decoded)

    def _span(self, batch: _Batch, cost: BatchCost, steps: int, tokens: int) -> None:
        host, lane = self._host, batch.lane
        host.span(
            GpuRow(
                server_id=host.server_id,
                lane_id=lane.lane_id,
                mode=lane.mode,
                start_s=batch.start_s,
                end_s=host.env.now,
                steps=steps,
                batch_size=len(batch.members),
                tokens=tokens,
                prefill_s=float(cost.prefill_s),
                decode_s=float(cost.decode_s),
                draft_s=float(cost.draft_s),
                verify_s=float(cost.verify_s),
                switch_s=host.gpu.switching_s(lane.lane_id),
            )
        )

    def _done(self, batch: _Batch) -> None:
        for visit in batch.members:
            visit.server_last_token_s = self._host.env.now
            self._host.answered(visit)
        self._end(batch)

    def _end(self, batch: _Batch) -> None:
        del self._batches[batch.lane.lane_id]
        self._host.memory.release(-1 - batch.lane.lane_id)
        self._host.departed()
