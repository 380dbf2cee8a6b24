"""What a policy sees at a scheduling epoch: predictions and the current state, never the future."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from balancesim.core.decision import Lane
from balancesim.core.server import ServerSpec
from balancesim.units import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Candidates:
    """Waiting requests as columns, in order of arrival. Arrays are read-only."""

    request_id: IntArray
    prompt_tokens: IntArray
    output_tokens: IntArray  #: predicted
    acceptance_rate: FloatArray  #: predicted
    slack_s: FloatArray  #: d_k = arrival + T − now − t_down: time left for upload and inference; inf = no deadline
    upload_s: FloatArray  #: predicted upload time from now on, at the rate of the current block; 0 = already in
    waited_s: FloatArray  #: time since arrival
    prompt_bits: FloatArray  #: bits still to be uploaded
    spectral_efficiency_bps_hz: FloatArray  #: of the uplink in the current block

    def __post_init__(self) -> None:
        for column in vars(self).values():
            column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.request_id)

    def take(self, index: IntArray | BoolArray) -> "Candidates":
        """Return the rows selected by an index or mask."""
        return Candidates(**{name: column[index] for name, column in vars(self).items()})


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


@dataclass(frozen=True)
class LanePrediction:
    """What a lane of a decision is expected to do, from the epoch on; columns in the same order."""

    request_id: IntArray  #: new members, then the lane's residents
    finish_s: FloatArray  #: predicted time from the epoch to the last token
    slack_s: FloatArray  #: the time left for it; members already late when admitted impose nothing (inf)
    reserved_bytes: float  #: KV memory that the lane holds or reserves, residents included


class LaneModel(Protocol):
    """How a discipline turns a lane into completion times and memory (model.md §5, §6): static, continuous, ..."""

    name: ClassVar[str]

    def predict(self, problem: "Problem", lane: Lane) -> LanePrediction:
        """Return the prediction for one lane of a decision."""
        ...


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
    uses_sd: bool = False  #: a lane with residents uses SD, so the draft's weights must stay
    draft_loaded: bool = True  #: False: a decision with an SD lane loads the draft first

    @cached_property
    def residents(self) -> Residents:
        """Requests admitted before and still inside."""
        return self.make_residents()
