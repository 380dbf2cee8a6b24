"""As many batches as pay: each AD or SD, with shares of GPU and memory of its own (docs/algorithms.md)."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.batch_search import BatchSearch, lane_choices, new_lane
from balancesim.core.decision import Decision, Lane
from balancesim.core.pair_search import PairSearch, best_two_lanes, check_share_step
from balancesim.core.problem import Problem
from balancesim.core.solver import best_of, single
from balancesim.policies.lanes import ad_lane, check_draft_length, has_draft, sd_lane


@dataclass(frozen=True, slots=True)
class MultiBatch:
    """Two or more batches, each AD or SD, solved one after another; another batch is added while it serves more."""

    name: ClassVar[str] = "multi_batch"

    max_batches: int = 4  #: M at most
    share_step: float = 0.1  #: step of the grid of the shares of two batches, as in `balance`
    batch_step: float = 0.2  #: step of the grid of the shares of three and more
    refine: bool = True  #: search on around the best shares
    draft_length: int | None = None  #: γ of SD; None = the server's

    def __post_init__(self) -> None:
        if self.max_batches < 1:
            raise ValueError(f"max_batches must be at least 1, got {self.max_batches}")
        check_share_step("batch_step", self.batch_step)
        check_draft_length(self.draft_length)
        self._pairs()

    def decide(self, problem: Problem) -> Decision:
        """Return the decision for the number of batches M = 1, 2, … after which one more serves nobody more.

        M = 1 and 2 are those of `ad_only`, `sd_only`, `balance`, `ad_two_batches` and `sd_two_batches`. M ≥ 3: all
        multisets of modes over the grid of shares, each lane of the best decision divided, then an ascent. For every M
        tried at least half of the optimum over the grid. Lanes with residents stay and count; without a draft model
        all are AD.
        """
        first = max(1, len(problem.lanes))
        best = best_of(problem, [])
        search = BatchSearch(problem, self.smallest_gpu_share)
        for count in range(first, max(first, self.max_batches) + 1):
            found = best_of(problem, [best, *self._of_count(search, count, best)])
            if len(found.admitted) == len(best.admitted) and count > first:
                break
            best = found
            if len(best.admitted) == len(problem.candidates):
                break
        return best

    def _of_count(self, search: BatchSearch, count: int, before: Decision) -> list[Decision]:
        problem = search.problem
        kinds = (ad_lane(), sd_lane(problem, self.draft_length)) if has_draft(problem) else (ad_lane(),)
        choices = list(lane_choices(problem, count, kinds))
        if count == 1:
            subs = [problem.lane_model.sub_problem(problem, lane) for (lane,) in choices]
            return [single(problem, lane, sub) for (lane,), sub in zip(choices, subs, strict=True)]
        if count == 2:
            return [best_two_lanes(problem, (one, two), self._pairs()) for one, two in choices]
        return self._of_many(search, choices, kinds, before)

    def _of_many(
        self, search: BatchSearch, choices: list[tuple[Lane, ...]], kinds: tuple[Lane, ...], before: Decision
    ) -> list[Decision]:
        best, floor = before, len(before.admitted)
        for lanes in choices:
            best = search.over_grid(lanes, round(1.0 / self.batch_step), len(best.admitted)) or best
        for kind in kinds if self.refine and len(before.lanes) == len(choices[0]) - 1 else ():
            lane = new_lane(kind, before.lanes)
            best = search.divide(before, lane, len(best.admitted)) or best
        if self.refine and len(best.admitted) > floor:
            best = search.ascend(best)
        return [best]

    @property
    def smallest_gpu_share(self) -> float:
        """The smallest GPU share of a lane: a switch must cost less than its window."""
        return min(self.batch_step, self._pairs().smallest_gpu_share)

    def _pairs(self) -> PairSearch:
        return PairSearch(self.share_step, refine=self.refine)
