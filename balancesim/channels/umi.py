"""The channel ``umi``: urban micro (street canyon) of TR 38.901."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.channels.tr38901 import Geometry, Slopes, street_los, two_slope_db
from balancesim.core.radio import RadioLinks
from balancesim.units import BoolArray, FloatArray

_LOS = Slopes(32.4, 21.0, 40.0, 9.5)


@dataclass(frozen=True, slots=True)
class Umi:
    """Urban micro, street canyon, of TR 38.901 (Tables 7.4.1-1, 7.4.2-1): sites of 10 m, users of 1.5 to 22.5 m."""

    name: ClassVar[str] = "umi"

    def los_probability(self, links: RadioLinks) -> FloatArray:
        """Return street_los(36 m)."""
        return street_los(links.distance_2d_m, 36.0)

    def pathloss_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:
        """NLOS: max(LOS, 35.3 lg d3D + 22.4 + 21.3 lg fc − 0.3·(h_UT − 1.5))."""
        g = Geometry.of(links)
        los = two_slope_db(g, _LOS)
        nlos = 35.3 * np.log10(g.d3_m) + 22.4 + 21.3 * np.log10(g.fc_ghz) - 0.3 * (g.user_m - 1.5)
        return np.where(is_los, los, np.maximum(los, nlos))

    def shadowing_sigma_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:  # noqa: ARG002
        """4 dB in line of sight, 7.82 dB without."""
        return np.where(is_los, 4.0, 7.82)
