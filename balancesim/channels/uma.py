"""The channel ``uma``: urban macro of TR 38.901."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.channels.tr38901 import Geometry, Slopes, street_los, two_slope_db
from balancesim.core.radio import RadioLinks
from balancesim.units import BoolArray, FloatArray

_LOS = Slopes(28.0, 22.0, 40.0, 9.0)


@dataclass(frozen=True, slots=True)
class Uma:
    """Urban macro of TR 38.901 (Tables 7.4.1-1, 7.4.2-1): sites of 25 m, users of 1.5 to 22.5 m, outdoors.

    Users above 13 m keep the environment height of 1 m in the breakpoint; TR 38.901 draws it for them.
    """

    name: ClassVar[str] = "uma"

    def los_probability(self, links: RadioLinks) -> FloatArray:
        """Return street_los(63 m), raised for users above 13 m by 1 + C'·5/4·(d/100)³·exp(−d/150)."""
        d, user_m = links.distance_2d_m, links.heights_m()[1]
        higher = (min(user_m, 23.0) - 13.0) / 10.0
        raised = 1.0 + max(higher, 0.0) ** 1.5 * 1.25 * (d / 100.0) ** 3 * np.exp(-d / 150.0)
        return np.where(d <= 18.0, 1.0, street_los(d, 63.0) * raised)

    def pathloss_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:
        """NLOS: max(LOS, 13.54 + 39.08 lg d3D + 20 lg fc − 0.6·(h_UT − 1.5))."""
        g = Geometry.of(links)
        los = two_slope_db(g, _LOS)
        nlos = 13.54 + 39.08 * np.log10(g.d3_m) + 20.0 * np.log10(g.fc_ghz) - 0.6 * (g.user_m - 1.5)
        return np.where(is_los, los, np.maximum(los, nlos))

    def shadowing_sigma_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:  # noqa: ARG002
        """4 dB in line of sight, 6 dB without."""
        return np.where(is_los, 4.0, 6.0)
