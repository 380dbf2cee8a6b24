"""What a policy sees at a scheduling epoch: predictions and the current state, never the future."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeGuard

import numpy as np

from balancesim.core.candidates import Candidates
from balancesim.core.decision import Decision, Lane
from balancesim.core.server import ServerSpec
from balancesim.units import BoolArray, FloatArray, IntArray, Numeric

if TYPE_CHECKING:
    from balancesim.core.shares import PairGrid, PairSolution


@dataclass(frozen=True)
class Residents:
    """Admitted requests that are not done (continuous batching), as columns. Arrays are read-only."""

    request_id: IntArray
    lane_id: IntArray
    is_sd: BoolArray
    tokens_out: IntArray  #: tokens emitted so far
    remaining_tokens: IntArray  #: predicted, at least 1
    context_tokens: IntArray  #: tokens in the KV cache now, or to be prefilled
    needs_prefill: BoolArray  #: not prefilled yet (uploading or waiting for the step boundary)
    acceptance_rate: FloatArray  #: predicted
    draft_length: IntArray
    reserved_bytes: FloatArray  #: KV memory held
    slack_s: FloatArray  #: deadline left as for candidates; inf = none, negative = already late: imposes nothing
    upload_s: FloatArray  #: rest of the upload; 0 = in

    def __post_init__(self) -> None:
        for column in vars(self).values():
            column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.request_id)


def no_residents() -> Residents:
    """Return an empty table of residents."""
    ints, floats, bools = np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
    return Residents(ints, ints, bools, ints, ints, ints, bools, floats, ints, floats, floats, floats)


#: Two ways to add up the same times or bytes may differ by this, relative to the larger of 1 and the limit.
TOLERANCE = 1e-9


def tolerance(limit: Numeric) -> Numeric:
    """Return the difference by which rounding may exceed a limit."""
    return TOLERANCE * np.maximum(1.0, np.abs(limit))


@dataclass(frozen=True)
class LanePrediction:
    """What a lane of a decision is expected to do, from the epoch on; columns in the same order."""

    request_id: IntArray  #: new members, then the lane's residents
    finish_s: FloatArray  #: predicted time from the epoch to the last token
    slack_s: FloatArray  #: the time left for it; members already late when admitted impose nothing (inf)
    reserved_bytes: float  #: KV memory that the lane holds or reserves, residents included

    @property
    def late(self) -> BoolArray:
        """Which members miss their deadline."""
        return ~(self.finish_s <= self.slack_s + tolerance(self.slack_s))  # NaN is late


@dataclass(frozen=True)
class Budgets:
    """What one lane may use, for G alternatives at once (a grid of shares). K candidates."""

    available: BoolArray  #: (G, K): candidates that may be admitted
    gpu_share: FloatArray  #: (G,)
    memory_bytes: FloatArray  #: (G,): KV memory of the lane, for residents and new members together
    at_least: IntArray  #: (G,): an alternative that cannot serve this many may come back with no members


@dataclass(frozen=True)
class Admissions:
    """A lane's new members for each of G alternatives."""

    members: BoolArray  #: (G, K)
    feasible: BoolArray  #: (G,): False where not even the lane's residents can be kept; no members then


class SubProblem(Protocol):
    """One lane's part of a problem: the most candidates that a lane of one mode can serve in time (model.md §5)."""

    def admit(self, budgets: Budgets) -> Admissions:
        """Return the members for every alternative."""
        ...

    def pair(self, other: "SubProblem", grid: "PairGrid", floor: int) -> "PairSolution | None":
        """Return the best cell of a grid with this lane solved over all candidates, then the other over the rest.

        None when no cell serves more than ``floor``. Both sub-problems are of one problem and one lane model.
        """
        ...


class LaneModel(Protocol):
    """How a discipline turns a lane into completion times and memory (model.md §5, §6): static, continuous, ..."""

    name: ClassVar[str]
    runs_to_end: ClassVar[bool]  #: a decision is frozen until all its lanes are done

    def predict(self, problem: "Problem", lane: Lane) -> LanePrediction:
        """Return the prediction for one lane of a decision."""
        ...

    def new_bytes(self, problem: "Problem", lane: Lane) -> float:
        """Return the KV memory that a lane's new members reserve, without looking at residents."""
        ...

    def sub_problem(self, problem: "Problem", lane: Lane) -> SubProblem:
        """Return the sub-problem of a lane with this number, mode and draft length; its shares are not read."""
        ...


class CoupledLaneModel(LaneModel, Protocol):
    """A lane model whose lanes wait for each other, so that only a whole decision can be predicted and checked."""

    def predictions(self, problem: "Problem", decision: Decision) -> list[LanePrediction]:
        """Return the prediction for every lane of a decision."""
        ...

    def broken_rules(self, problem: "Problem", decision: Decision) -> Iterator[str]:
        """Yield in words what is against the rules of this discipline beside those of every decision."""
        ...


def is_coupled(model: LaneModel) -> TypeGuard[CoupledLaneModel]:
    """Return whether the lanes of a discipline wait for each other; asked at every epoch, so one attribute decides."""
    return hasattr(model, "broken_rules")


#: Up to so many candidates are looked through one by one.
_SHORT = 32


@dataclass(frozen=True)
class Problem:
    """An immutable scheduling problem. ``residents`` are built only when a policy looks at them."""

    now_s: float
    epoch: int
    server: ServerSpec
    lane_model: LaneModel
    candidates: Candidates
    lanes: tuple[Lane, ...] = ()  #: lanes of the decision in force, without members
    make_residents: Callable[[], Residents] = field(default=no_residents, repr=False)
    held_bytes: float = 0.0  #: KV memory reserved by residents, all lanes
    sbs_held_bytes: float = 0.0  #: KV memory reserved on the SBS, where one drafts for this server
    uses_sd: bool = False  #: a lane with residents uses SD, so the draft's weights must stay
    draft_loaded: bool = True  #: False: a decision with an SD lane loads the draft first
    _new_bytes: dict[tuple[object, ...], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _predictions: dict[tuple[object, ...], LanePrediction] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def rows(self, request_ids: Sequence[int]) -> IntArray:
        """Return the rows of candidates, in the order of the ids.

        Raises:
            KeyError: ids that are no candidate's, as its argument.
        """
        column = self.candidates.request_id
        if not request_ids:
            return column[:0]
        if len(column) <= _SHORT:
            listed = column.tolist()
            rows = [listed.index(request_id) if request_id in listed else -1 for request_id in request_ids]
        else:
            order = self._order
            places = column[order].searchsorted(request_ids).clip(max=len(column) - 1)
            found = order[places]
            rows = np.where(column[found] == request_ids, found, -1).tolist()
        if -1 in rows:
            raise KeyError([request_id for request_id, row in zip(request_ids, rows, strict=True) if row < 0])
        return np.array(rows, dtype=np.int64)

    @cached_property
    def _order(self) -> IntArray:
        """Rows of the candidates by ascending request id."""
        return self.candidates.request_id.argsort(kind="stable")

    def new_bytes(self, lane: Lane) -> float:
        """Return `LaneModel.new_bytes` of this problem; what a policy has asked, the server need not work out again."""
        asked = (lane.mode, lane.draft_length, lane.members)
        if asked not in self._new_bytes:
            self._new_bytes[asked] = self.lane_model.new_bytes(self, lane)
        return self._new_bytes[asked]

    def predict(self, lane: Lane) -> LanePrediction:
        """Return `LaneModel.predict` of this problem, worked out once for every set of members and share."""
        asked = (lane.lane_id, lane.mode, lane.draft_length, lane.draft_rule, lane.gpu_share, lane.members)
        if asked not in self._predictions:
            self._predictions[asked] = self.lane_model.predict(self, lane)
        return self._predictions[asked]

    def lane_in_force(self, lane_id: int) -> Lane | None:
        """Return the lane with this number that has residents, if there is one."""
        for lane in self.lanes:
            if lane.lane_id == lane_id:
                return lane
        return None

    def held_elsewhere_bytes(self, lane_id: int) -> float:
        """Return the KV memory held by residents of other lanes than this one."""
        if self.lane_in_force(lane_id) is None:
            return self.held_bytes
        residents = self.residents
        return self.held_bytes - float(residents.reserved_bytes[residents.lane_id == lane_id].sum())

    @cached_property
    def residents(self) -> Residents:
        """Requests admitted before and still inside."""
        return self.make_residents()
