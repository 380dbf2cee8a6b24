"""What a policy returns: lanes, and the candidates it rejects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from balancesim.core.request import Mode

if TYPE_CHECKING:
    from balancesim.core.fused import DraftRule

#: Lane numbers used by the policies of BALANCE's family; any other number is as good.
AD_LANE = 0
SD_LANE = 1

_NO_WEIGHTS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Lane:
    """One batch process of a decision. Lanes with the same ``lane_id`` in successive decisions are the same process."""

    lane_id: int
    mode: Mode
    gpu_share: float  #: of the GPU's time, z for BALANCE's AD lane
    memory_share: float  #: of the memory free for KV caches, λ for BALANCE's AD lane
    members: tuple[int, ...] = ()  #: request ids admitted now; residents stay without being named
    draft_length: int = 0  #: γ; 0 for AD
    predicted_finish_s: float | None = None  #: policy's own prediction: epoch to the last new member's completion
    #: discipline `fused`: chooses draft lengths at every step, ``draft_length`` being the longest; None = always that
    draft_rule: "DraftRule | None" = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's answer to a `Problem`. Candidates in no lane and not rejected wait."""

    lanes: tuple[Lane, ...] = ()
    rejected: tuple[int, ...] = ()
    #: weights of admitted requests' uploads on a shared band, by request id; empty leaves the split to the allocator
    bandwidth_weights: Mapping[int, float] = field(default_factory=lambda: _NO_WEIGHTS)

    @property
    def admitted(self) -> tuple[int, ...]:
        """All request ids admitted by this decision, lane after lane."""
        return tuple([member for lane in self.lanes for member in lane.members])

    @property
    def gpu_share_ad(self) -> float:
        """z: the GPU share of all AD lanes together."""
        return sum([lane.gpu_share for lane in self.lanes if lane.mode is Mode.AD])

    @property
    def memory_share_ad(self) -> float:
        """λ: the memory share of all AD lanes together."""
        return sum([lane.memory_share for lane in self.lanes if lane.mode is Mode.AD])
