"""The channel ``inh``: indoor office of TR 38.901."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.channels.tr38901 import Geometry
from balancesim.core.radio import RadioLinks
from balancesim.units import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Inh:
    """Indoor office of TR 38.901 (Tables 7.4.1-1, 7.4.2-1): sites of 3 m, users of 1 m; mixed or open office."""

    name: ClassVar[str] = "inh"
    open_office: bool = False  #: False = mixed office

    def los_probability(self, links: RadioLinks) -> FloatArray:
        """Mixed: 1, exp(−(d−1.2)/4.7), 0.32·exp(−(d−6.5)/32.6); open: 1, exp(−(d−5)/70.8), 0.54·exp(−(d−49)/211.7)."""
        d = links.distance_2d_m
        if self.open_office:
            near, far = np.exp(-(d - 5.0) / 70.8), 0.54 * np.exp(-(d - 49.0) / 211.7)
            return np.where(d <= 5.0, 1.0, np.where(d <= 49.0, near, far))
        near, far = np.exp(-(d - 1.2) / 4.7), 0.32 * np.exp(-(d - 6.5) / 32.6)
        return np.where(d <= 1.2, 1.0, np.where(d < 6.5, near, far))

    def pathloss_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:
        """LOS 32.4 + 17.3 lg d3D + 20 lg fc; NLOS max(LOS, 17.30 + 38.3 lg d3D + 24.9 lg fc)."""
        g = Geometry.of(links, nearest_m=0.0)
        lg = np.log10(np.maximum(g.d3_m, 1.0))
        los = 32.4 + 17.3 * lg + 20.0 * np.log10(g.fc_ghz)
        nlos = 17.3 + 38.3 * lg + 24.9 * np.log10(g.fc_ghz)
        loss: FloatArray = np.where(is_los, los, np.maximum(los, nlos))
        return loss

    def shadowing_sigma_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:  # noqa: ARG002
        """3 dB in line of sight, 8.03 dB without."""
        return np.where(is_los, 3.0, 8.03)
