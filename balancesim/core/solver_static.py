"""The padded sub-problem of one lane, exactly (model.md §5, step "solve the AD (SD) sub-problem" of [P1]).

Inside bounds on prompt S, answer N, rounds I (SD) and upload U all users are interchangeable: only the count b matters, and
the b-th largest slack among the eligible must reach U + C(b, S, N, I)/share. So the paper's enumeration of a deadline bound
D is not needed. Every *tight* combination of bounds (each reached by a user inside the others) is listed once per problem
with, for each b, the share and the memory it needs if U is relaxed to each user's own upload: `_Box` rows. One alternative
(share, memory, users still available) then looks only at boxes whose relaxed need fits, largest b first, and settles U there.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from balancesim.core.decision import Lane
from balancesim.core.memory import padded_kv_bytes, speculates
from balancesim.core.padded import BatchShape, padded_cost
from balancesim.core.problem import Admissions, Budgets, Problem
from balancesim.core.server import ServerSpec
from balancesim.core.speculation import expected_tokens_per_round, planned_rounds
from balancesim.units import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class _Entries:
    """Counts and boxes that could be served: b users inside box ``box`` need this share and this memory at least."""

    count: IntArray  #: descending
    share: FloatArray
    memory_bytes: FloatArray
    box: IntArray


@dataclass(frozen=True)
class PaddedSubProblem:
    """One padded lane over all candidates of a problem; columns are in order of patience (slack minus upload)."""

    server: ServerSpec
    lane: Lane
    row: IntArray  #: candidate of each column
    prompt_tokens: IntArray
    output_tokens: IntArray
    rounds: IntArray  #: planned rounds; decode steps n − 1 for AD
    start_s: FloatArray  #: upload, or loading of the draft model
    slack_s: FloatArray
    preference: FloatArray  #: of users who fit equally, those with the smallest value are admitted first

    @classmethod
    def of(cls, problem: Problem, lane: Lane, load_s: float) -> "PaddedSubProblem":
        """Build the sub-problem; users whose upload alone misses the deadline can never be served and are left out."""
        users = problem.candidates
        start = np.maximum(users.upload_s, load_s)
        with np.errstate(invalid="ignore"):
            patience = users.slack_s - start
        order = np.lexsort((users.request_id, -patience))
        row = order[patience[order] > 0]  # NaN (no channel) is not above 0
        gamma = lane.draft_length if speculates(lane.mode, lane.draft_length) else 0
        rate = users.acceptance_rate[row]
        gain = np.asarray(expected_tokens_per_round(rate, problem.server.draft_length), dtype=float)
        output = users.output_tokens[row]
        return cls(
            server=problem.server,
            lane=lane,
            row=row,
            prompt_tokens=users.prompt_tokens[row],
            output_tokens=output,
            rounds=np.asarray(planned_rounds(output, rate, gamma), dtype=np.int64),
            start_s=start[row],
            slack_s=users.slack_s[row],
            preference=-gain if gamma else gain,
        )

    @cached_property
    def _boxes(self) -> IntArray:
        """Tight bounds (S, N, I), one row each; for AD I is N − 1."""
        prompts = np.unique(self.prompt_tokens)
        pairs = _tight_pairs(self.output_tokens, self.rounds)
        boxes = np.column_stack((np.repeat(prompts, len(pairs)), np.tile(pairs, (len(prompts), 1))))
        inside = self._inside(boxes)
        reached = np.ones(len(boxes), dtype=np.bool_)
        for axis, values in enumerate((self.prompt_tokens, self.output_tokens, self.rounds)):
            reached &= (inside & (values == boxes[:, axis, None])).any(axis=1)
        return boxes[reached]

    def _inside(self, boxes: IntArray) -> BoolArray:
        """Return which users are within each box, (boxes, users)."""
        return (
            (self.prompt_tokens <= boxes[:, 0, None])
            & (self.output_tokens <= boxes[:, 1, None])
            & (self.rounds <= boxes[:, 2, None])
        )

    def _cost_s(self, count: IntArray, boxes: IntArray) -> FloatArray:
        shape = BatchShape(count, boxes[:, 0], boxes[:, 1], boxes[:, 2])
        return np.asarray(padded_cost(self.server, self.lane.mode, self.lane.draft_length, shape).total_s)

    def _sequence_bytes(self, boxes: IntArray) -> FloatArray:
        tokens = boxes[:, 0] + boxes[:, 1]
        size = padded_kv_bytes(self.server, self.lane.mode, self.lane.draft_length, tokens)
        return np.asarray(size, dtype=float)

    @cached_property
    def _entries(self) -> _Entries:
        """What each box needs for each count, U relaxed to each user's own upload."""
        inside = self._inside(self._boxes)
        rank = np.cumsum(inside, axis=1, dtype=np.int32)
        memory = rank * self._sequence_bytes(self._boxes)[:, None]
        box, column = np.nonzero(inside & (memory <= self.server.free_bytes(uses_sd=False)))
        count = rank[box, column].astype(np.int64)
        if len(box) == 0:
            return _Entries(count, np.empty(0), np.empty(0), box)
        share = self._cost_s(count, self._boxes[box]) / (self.slack_s - self.start_s)[column]
        possible = np.flatnonzero(share <= 1.0)
        order = possible[np.lexsort((box[possible], share[possible], -count[possible]))]
        return _Entries(count[order], share[order], memory[box[order], column[order]], box[order])

    def admit(self, budgets: Budgets) -> Admissions:
        """Return the largest batch for every alternative."""
        members = np.zeros_like(budgets.available)
        for alternative in range(len(members)):
            available = budgets.available[alternative, self.row]
            least = max(1, int(budgets.at_least[alternative]))
            limits = (float(budgets.gpu_share[alternative]), float(budgets.memory_bytes[alternative]))
            columns = self._largest(available, limits, least)
            members[alternative, self.row[columns]] = True
        return Admissions(members, np.ones(len(members), dtype=np.bool_))

    def _largest(self, available: BoolArray, limits: tuple[float, float], least: int) -> IntArray:
        """Return the columns of the largest batch of at least this many, or none."""
        share, memory_bytes = limits
        entries = self._entries
        end = int(np.searchsorted(-entries.count, -least, side="right"))
        fits = (entries.share[:end] <= share) & (entries.memory_bytes[:end] <= memory_bytes)
        boxes, first = np.unique(entries.box[:end][fits], return_index=True)
        boxes = boxes[np.argsort(first, kind="stable")]  # by count within relaxed limits, then by share
        bound = entries.count[:end][fits][np.sort(first)]
        best: tuple[int, float, IntArray] = (least - 1, 0.0, np.empty(0, np.int64))
        for start in range(0, len(boxes), 64):
            if bound[start] <= best[0]:
                break
            best = self._settle(boxes[start : start + 64], available, limits, best)
        return best[2]

    def _settle(
        self,
        chosen: IntArray,
        available: BoolArray,
        limits: tuple[float, float],
        best: tuple[int, float, IntArray],
    ) -> tuple[int, float, IntArray]:
        """Improve on the best batch with the chosen boxes: relaxed counts first, then U settled where they promise more."""
        share, memory_bytes = limits
        boxes = self._boxes[chosen]
        inside = self._inside(boxes) & available
        rank = np.cumsum(inside, axis=1, dtype=np.int64)
        box, column = np.nonzero(inside)
        if len(box) == 0:
            return best
        count = rank[box, column]
        needed = self._cost_s(count, boxes[box]) / (self.slack_s - self.start_s)[column]
        fits = (needed <= share) & (count * self._sequence_bytes(boxes)[box] <= memory_bytes)
        most = np.zeros(len(boxes), dtype=np.int64)
        np.maximum.at(most, box[fits], count[fits])
        for index in np.argsort(-most, kind="stable"):
            if most[index] <= best[0]:
                break
            found = self._with_upload(boxes[index], np.flatnonzero(inside[index]), int(most[index]), share)
            if found[0] > best[0]:
                best = found
        return best

    def _with_upload(self, box: IntArray, columns: IntArray, most: int, share: float) -> tuple[int, float, IntArray]:
        """Return the largest batch in a box when the slowest upload delays all: count, its upload bound, columns."""
        start, slack = self.start_s[columns], self.slack_s[columns]
        cost = self._cost_s(np.arange(1, most + 1), np.tile(box, (most, 1))) / share
        if start[:most].max() + cost[-1] <= slack[:most].min():
            bound = float(start[:most].max())
            pool = (start <= bound) & (slack >= bound + cost[-1])
            return most, bound, self._preferred(columns[pool], most)
        by_slack = np.argsort(-slack, kind="stable")
        uploads = np.unique(start)
        quick = start[by_slack] <= uploads[:, None]
        rank = np.cumsum(quick, axis=1)
        in_time = quick & (rank <= most)
        in_time &= uploads[:, None] + cost[np.clip(rank, 1, most) - 1] <= slack[by_slack]
        counts = np.where(in_time, rank, 0).max(axis=1)
        row = int(np.argmax(counts))
        count, bound = int(counts[row]), float(uploads[row])
        if count == 0:
            return 0, 0.0, np.empty(0, np.int64)
        pool = (start <= bound) & (slack >= bound + cost[count - 1])
        return count, bound, self._preferred(columns[pool], count)

    def _preferred(self, pool: IntArray, count: int) -> IntArray:
        """Return the users that the other mode would gain least from; ties by size, then by patience and request id."""
        keys = (pool, self.prompt_tokens[pool] + self.output_tokens[pool], self.preference[pool])
        return pool[np.lexsort(keys)[:count]]


def _tight_pairs(outputs: IntArray, rounds: IntArray) -> IntArray:
    """Return bounds (N, I) such that N is reached by a user within I and I by a user within N."""
    pairs = np.unique(np.column_stack((outputs, rounds)), axis=0)
    inside_n = pairs[:, 0, None] <= pairs[None, :, 0]
    larger_i = pairs[:, 1, None] >= pairs[None, :, 1]
    # user a gives I, user b gives N: a is within N, b is within I
    give_i, give_n = np.nonzero(inside_n & larger_i)
    return np.unique(np.column_stack((pairs[give_n, 0], pairs[give_i, 1])), axis=0)
