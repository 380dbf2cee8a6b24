"""The channel ``rma``: rural macro of TR 38.901."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.channels.tr38901 import Geometry
from balancesim.checks import positive
from balancesim.core.radio import RadioLinks
from balancesim.units import SPEED_OF_LIGHT_M_S, BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Rma:
    """Rural macro of TR 38.901 (Tables 7.4.1-1, 7.4.2-1): sites of 35 m, users of 1.5 m."""

    name: ClassVar[str] = "rma"
    street_width_m: float = 20.0  #: W, the table's default
    building_height_m: float = 5.0  #: h, the table's default

    def __post_init__(self) -> None:
        positive(street_width_m=self.street_width_m, building_height_m=self.building_height_m)

    def los_probability(self, links: RadioLinks) -> FloatArray:
        """Return 1 up to 10 m, then exp(−(d − 10)/1000)."""
        return np.exp(-np.maximum(links.distance_2d_m - 10.0, 0.0) / 1000.0)

    def pathloss_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:
        """Return PL1 up to d_BP = 2π·h_BS·h_UT·fc/c and PL1(d_BP) + 40 lg(d3D/d_BP) beyond; NLOS at least that.

        PL1 = 20 lg(40π·d3D·fc/3) + min(0.03 h^1.72, 10) lg d3D − min(0.044 h^1.72, 14.77) + 0.002 lg(h)·d3D.
        NLOS = 161.04 − 7.1 lg W + 7.5 lg h − (24.37 − 3.7 (h/h_BS)²) lg h_BS + (43.42 − 3.1 lg h_BS)(lg d3D − 3)
        + 20 lg fc − (3.2 (lg 11.75 h_UT)² − 4.97).
        """
        g, h = Geometry.of(links), self.building_height_m
        edge_m = self._breakpoint_m(g)
        far = self._near_db(np.array(edge_m), g.fc_ghz) + 40.0 * np.log10(g.d3_m / edge_m)
        los = np.where(g.d2_m <= edge_m, self._near_db(g.d3_m, g.fc_ghz), far)
        site = math.log10(g.site_m)
        nlos = (
            161.04
            - 7.1 * math.log10(self.street_width_m)
            + 7.5 * math.log10(h)
            - (24.37 - 3.7 * (h / g.site_m) ** 2) * site
            + (43.42 - 3.1 * site) * (np.log10(g.d3_m) - 3.0)
            + 20.0 * math.log10(g.fc_ghz)
            - (3.2 * math.log10(11.75 * g.user_m) ** 2 - 4.97)
        )
        return np.where(is_los, los, np.maximum(los, nlos))

    def shadowing_sigma_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:
        """4 dB in line of sight, 6 dB beyond the breakpoint; 8 dB without."""
        g = Geometry.of(links)
        return np.where(is_los, np.where(g.d2_m <= self._breakpoint_m(g), 4.0, 6.0), 8.0)

    def _breakpoint_m(self, g: Geometry) -> float:
        return 2.0 * math.pi * g.site_m * g.user_m * g.fc_ghz * 1e9 / SPEED_OF_LIGHT_M_S

    def _near_db(self, d3_m: FloatArray, fc_ghz: float) -> FloatArray:
        h = self.building_height_m
        slope, offset = min(0.03 * h**1.72, 10.0), min(0.044 * h**1.72, 14.77)
        distance = 20.0 * np.log10(40.0 * math.pi * d3_m * fc_ghz / 3.0)
        loss: FloatArray = distance + slope * np.log10(d3_m) - offset + 0.002 * math.log10(h) * d3_m
        return loss
