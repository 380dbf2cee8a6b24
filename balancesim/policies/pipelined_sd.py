"""Speculative decoding over two nodes in a pipeline: batches, draft length and bandwidths together (model.md §7)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import ClassVar

import numpy as np

from balancesim.core.decision import Decision
from balancesim.core.pipeline import PipelinePlan, fits_memory
from balancesim.core.pipeline_instance import PipelineInstance, admit
from balancesim.core.pipeline_plans import (
    first_batch,
    heuristic_batching,
    joint,
    joint_exact,
    maximum_batching,
    no_batching,
    no_plan,
    static_batching,
    uniform_bandwidth,
    without_pipeline,
)
from balancesim.core.pipeline_problem import (
    DraftLengths,
    behind,
    fits_alone,
    instance_of,
    lanes_of,
    late_members,
    without_late,
)
from balancesim.core.problem import Problem
from balancesim.units import IntArray

_REPLANS = 1  #: plans made anew without those that would be late; after that they are only taken out


class Batching(StrEnum):
    """How tasks are cut into batches."""

    DP = "dp"  #: the paper's dynamic programming
    EXACT = "exact"  #: the best contiguous batches, by branch and bound
    NONE = "none"  #: every task alone
    STATIC = "static"  #: ``batch_size`` tasks each, in order of arrival
    MAXIMUM = "maximum"  #: the largest batches that the memory allows
    HEURISTIC = "heuristic"  #: prompts of similar length, by powers of two


class Bandwidth(StrEnum):
    """How uploads that begin together share the band."""

    OPTIMAL = "optimal"  #: so that all end together
    UNIFORM = "uniform"  #: equally


@dataclass(frozen=True, slots=True)
class PipelinedSd:
    """The two-node pipeline of arXiv 2510.11331: batches, draft length and bandwidths together; baselines as options.

    At an epoch it plans for the oldest waiting requests that fit both memories together. The objective is the paper's,
    the time until all of them are done, whatever their deadlines.
    """

    name: ClassVar[str] = "pipelined_sd"
    disciplines: ClassVar[tuple[str, ...]] = ("pipeline",)

    batching: Batching = Batching.DP
    batch_size: int = 10  #: of static batching
    exact_nodes: int = 1000  #: of exact batching: prefixes expanded at most for a draft length, then the better of both
    draft_length: int | None = None  #: l; None = the best up to ``max_draft_length``
    max_draft_length: int = 10  #: l_max; l = 0 decodes on the MBS alone, autoregressively
    bandwidth: Bandwidth = Bandwidth.OPTIMAL
    pipelined: bool = True  #: False: one batch at a time is inside, that of the oldest request first
    max_tasks: int = 32  #: planned at an epoch: the time that a decision takes grows with the square
    #: plan anew as soon as no more than so many batches are inside; 0 = when all are done, as the paper does
    batches_inside: int = 0
    #: plan for fewer of the oldest requests where that serves more per second (large batches fit the memories only
    #: where few tasks share them); False = for all that fit, as the paper does
    by_rate: bool = True
    deadlines: bool = False  #: leave requests waiting that would be late; False = serve all, as the paper does

    def __post_init__(self) -> None:
        for field, least in (
            ("batch_size", 1),
            ("exact_nodes", 1),
            ("max_draft_length", 0),
            ("max_tasks", 1),
            ("batches_inside", 0),
        ):
            if getattr(self, field) < least:
                raise ValueError(f"{field} must be at least {least}, got {getattr(self, field)}")
        if self.draft_length is not None and self.draft_length < 0:
            raise ValueError(f"draft_length must be at least 0, got {self.draft_length}; leave it out to optimise it")
        if not self.pipelined and self.batches_inside:
            raise ValueError(f"batches_inside must be 0 without a pipeline, got {self.batches_inside}")

    def decide(self, problem: Problem) -> Decision:
        """Return the batches under way and, when it is time, new ones behind them, one lane each.

        Requests whose KV cache exceeds a node's empty memory are rejected; those without a channel wait. While the
        fronthaul is down, batches are decoded on the MBS alone.
        """
        if len(problem.lanes) > self.batches_inside:
            return behind(problem, ())
        users = problem.candidates
        queue = np.lexsort((users.request_id, -users.waited_s))
        possible = fits_alone(instance_of(problem, queue, self._lengths, held=False))
        rejected = tuple(users.request_id[queue[~possible]].tolist())
        queue = queue[possible & np.isfinite(users.upload_s[queue])][: self.max_tasks]
        decision = self._decision(problem, queue)
        for _ in range(_REPLANS if self.deadlines else 0):
            late = late_members(problem, decision)
            if not late:
                break
            queue = queue[~np.isin(users.request_id[queue], late)]
            decision = self._decision(problem, queue)
        if self.deadlines:
            decision = without_late(problem, decision)
        return replace(decision, rejected=rejected)

    @property
    def _lengths(self) -> DraftLengths:
        return DraftLengths(self.max_draft_length, self.draft_length)

    def _decision(self, problem: Problem, queue: IntArray) -> Decision:
        """Return the decision for the oldest of these candidates."""
        instance, upload_s = instance_of(problem, queue, self._lengths), problem.candidates.upload_s[queue]
        chosen = admit(instance).admitted
        best, best_rate = (no_plan(instance.take(chosen[:0])), chosen[:0]), 0.0
        while len(chosen):
            plan, tasks = self._plan(instance, chosen)
            served = len(plan.served)
            rate = served / (upload_s[tasks].max(initial=0.0) + plan.inference_s) if served else 0.0
            if rate <= best_rate:
                break
            best, best_rate = (plan, tasks), rate
            if not self.by_rate or len(tasks) == 1:
                break
            chosen = tasks[: len(tasks) // 2]
        plan, tasks = best
        rows = queue[tasks]
        lanes = lanes_of(problem, rows, plan.batches, plan.draft_length)
        ids, served_tasks = problem.candidates.request_id[rows].tolist(), plan.served
        weights = {ids[task]: float(plan.bandwidth_hz[task]) for task in served_tasks if plan.bandwidth_hz[task] > 0}
        return replace(behind(problem, lanes), bandwidth_weights=weights)

    def _plan(self, instance: PipelineInstance, chosen: IntArray) -> tuple[PipelinePlan, IntArray]:
        """Return the plan for the tasks chosen, or for the oldest of them where a baseline's padding needs too much."""
        while True:
            part = instance.take(chosen)
            plan = self._planner(part)
            if self.bandwidth is Bandwidth.UNIFORM:
                plan = uniform_bandwidth(part, plan)
            if not self.pipelined:
                plan = first_batch(part, plan)
            if not plan.batches or fits_memory(part, plan.batches, plan.draft_length):
                return plan, chosen
            chosen = chosen[: len(chosen) - 1 - len(chosen) // 8]

    @property
    def _planner(self) -> Callable[[PipelineInstance], PipelinePlan]:
        if not self.pipelined and self.batching in (Batching.DP, Batching.EXACT):
            return without_pipeline  # a shortest path, exact
        planners: dict[Batching, Callable[[PipelineInstance], PipelinePlan]] = {
            Batching.DP: joint,
            Batching.EXACT: partial(joint_exact, node_limit=self.exact_nodes),
            Batching.NONE: no_batching,
            Batching.STATIC: partial(static_batching, batch_size=self.batch_size),
            Batching.MAXIMUM: maximum_batching,
            Batching.HEURISTIC: heuristic_batching,
        }
        return planners[self.batching]
