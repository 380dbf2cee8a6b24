"""The acceptance law ``by_task``: the request's task picks a measured curve over depth."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from balancesim.acceptance.by_depth import ByDepth
from balancesim.core.request import Request
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray, IntArray, Numeric

DEFAULT_TASK = "default"


@dataclass(frozen=True, slots=True)
class ByTask:
    """`ByDepth` with a curve for each task of the trace; ``default`` is for requests of other tasks or of none."""

    name: ClassVar[str] = "by_task"

    #: by task: measured chance to keep the draft at depth 1, 2, …, its predecessors kept
    conditional_acceptance: Mapping[str, tuple[float, ...]]
    _laws: dict[str, ByDepth] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if DEFAULT_TASK not in self.conditional_acceptance:
            raise ValueError(f"conditional_acceptance must have an entry {DEFAULT_TASK!r}, for requests without a task")
        laws = {}
        for task, curve in self.conditional_acceptance.items():
            try:
                laws[task] = ByDepth(tuple(curve))
            except ValueError as error:
                raise ValueError(f"task {task!r}: {error}") from None
        object.__setattr__(self, "_laws", laws)

    def _law(self, request: Request) -> ByDepth:
        return self._laws.get(request.task) or self._laws[DEFAULT_TASK]

    def rounds(self, request: Request, draft_length: int, stream: KeyedStream) -> IntArray:
        """Return the tokens of each round by the curve of the request's task."""
        return self._law(request).rounds(request, draft_length, stream)

    def kept_by_depth(self, request: Request, draft_length: int, stream: KeyedStream) -> FloatArray:
        """Return the drafts kept from every position by the curve of the request's task."""
        return self._law(request).kept_by_depth(request, draft_length, stream)

    def expected_tokens_per_round(self, acceptance_rate: Numeric, draft_length: int) -> Numeric:
        """Return the mean under the default's curve: no task is known here."""
        return self._laws[DEFAULT_TASK].expected_tokens_per_round(acceptance_rate, draft_length)
