"""The channel ``fixed``: the same gain for everybody."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.radio import RadioLinks
from balancesim.units import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Fixed:
    """One path loss for every link, wherever it is."""

    name: ClassVar[str] = "fixed"
    loss_db: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.loss_db):
            raise ValueError(f"loss_db must be finite, got {self.loss_db}")

    def los_probability(self, links: RadioLinks) -> FloatArray:
        """Return 1: there is nothing in the way."""
        return np.ones(len(links))

    def pathloss_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:  # noqa: ARG002  # same for all
        """Return the given loss."""
        return np.full(len(links), self.loss_db)

    def shadowing_sigma_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:  # noqa: ARG002
        """Return 0: no shadowing."""
        return np.zeros(len(links))
