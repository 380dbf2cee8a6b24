"""The channel ``log_distance``: path loss with one exponent."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.checks import not_negative, positive
from balancesim.core.radio import RadioLinks
from balancesim.units import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class LogDistance:
    """PL = reference_loss_db + 10·exponent·log10(d/reference_m); [P1]'s d^−4 is exponent 4 and 0 dB at 1 m."""

    name: ClassVar[str] = "log_distance"
    reference_loss_db: float
    exponent: float
    reference_m: float = 1.0  #: distance of the reference loss; nearer links have the reference loss
    sigma_db: float = 0.0  #: standard deviation of shadowing

    def __post_init__(self) -> None:
        positive(exponent=self.exponent, reference_m=self.reference_m)
        not_negative(sigma_db=self.sigma_db)

    def los_probability(self, links: RadioLinks) -> FloatArray:
        """Return 1: the model does not tell line of sight apart."""
        return np.ones(len(links))

    def pathloss_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:  # noqa: ARG002  # same for both
        """Return the path loss at the distance in the plane."""
        distance = np.maximum(links.distance_2d_m, self.reference_m) / self.reference_m
        return self.reference_loss_db + 10.0 * self.exponent * np.log10(distance)

    def shadowing_sigma_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:  # noqa: ARG002
        """Return the given deviation."""
        return np.full(len(links), self.sigma_db)
