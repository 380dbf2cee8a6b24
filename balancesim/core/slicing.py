"""The options of GPU time slicing, and the windows that shares make of a period."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slicing:
    """How the GPU is sliced."""

    slice_s: float  #: period P; 0 = fluid sharing
    switch_s: float = 0.0  #: c: time lost at each change of owner
    work_conserving: bool = True

    def __post_init__(self) -> None:
        if not (0 <= self.slice_s < math.inf) or not (0 <= self.switch_s < math.inf):
            raise ValueError(f"slice_s and switch_s must be finite and at least 0, got {self.slice_s}, {self.switch_s}")
        if self.slice_s == 0 and self.switch_s > 0:
            raise ValueError("switch_s must be 0 with fluid sharing (slice_s = 0), which switches infinitely often")


@dataclass(frozen=True, slots=True)
class Layout:
    """Windows of the lanes within a period, as fractions of it, in the order given."""

    lane_ids: tuple[int, ...]
    edges: tuple[float, ...]  #: edges[i] .. edges[i+1] is the window of lane_ids[i]; the rest of the period is nobody's

    @staticmethod
    def of(shares: Mapping[int, float], slicing: Slicing) -> "Layout":
        """Lay out windows in the order of ``shares``; raise where a window is not longer than the switch cost."""
        edges = [0.0]
        for lane_id, share in shares.items():
            if share <= 0 or edges[-1] + share > 1 + 1e-9:
                raise ValueError(f"gpu_share of lane {lane_id} must be positive and all sum to at most 1, got {share}")
            if len(shares) > 1 and slicing.slice_s > 0 and share * slicing.slice_s <= slicing.switch_s:
                raise ValueError(
                    f"scheduling.switch_s must be below every window, got {slicing.switch_s} s for lane {lane_id} "
                    f"with a window of {share * slicing.slice_s:.6g} s; use a longer slice or a larger share"
                )
            edges.append(min(1.0, edges[-1] + share))
        return Layout(tuple(shares), tuple(edges))
