"""What the scenarios of TR 38.901 share (Tables 7.4.1-1 and 7.4.2-1). d in m, fc in GHz, loss in dB, lg = log10.

The formulas of UMa, UMi and RMa hold from 10 m in the plane, InH's from 1 m in space; nearer links have the loss there.
"""

from dataclasses import dataclass

import numpy as np

from balancesim.core.radio import RadioLinks
from balancesim.units import SPEED_OF_LIGHT_M_S, FloatArray


@dataclass(frozen=True, slots=True)
class Geometry:
    """Distances and heights of links as the formulas take them."""

    d2_m: FloatArray
    d3_m: FloatArray
    site_m: float
    user_m: float
    fc_ghz: float

    @staticmethod
    def of(links: RadioLinks, nearest_m: float = 10.0) -> "Geometry":
        """Read the links; nearer ones are set to ``nearest_m``."""
        site_m, user_m = links.heights_m()
        d2_m = np.maximum(links.distance_2d_m, nearest_m)
        return Geometry(d2_m, np.hypot(d2_m, site_m - user_m), site_m, user_m, links.carrier_ghz())

    def breakpoint_m(self) -> float:
        """d'_BP = 4·h'_BS·h'_UT·fc/c with h' = h − 1 m (Table 7.4.1-1 note 1); raise where a height leaves nothing."""
        for name, height_m in (("site_height_m", self.site_m), ("user_height_m", self.user_m)):
            if not height_m > 1.0:
                raise ValueError(f"network.{name} must be above 1 m for the channels uma and umi, got {height_m}")
        return 4.0 * (self.site_m - 1.0) * (self.user_m - 1.0) * self.fc_ghz * 1e9 / SPEED_OF_LIGHT_M_S


@dataclass(frozen=True, slots=True)
class Slopes:
    """Coefficients of the two-slope line-of-sight loss of UMa and UMi."""

    offset_db: float
    near: float
    far: float
    breakpoint: float


def two_slope_db(geometry: Geometry, slopes: Slopes) -> FloatArray:
    """Return offset + near·lg d3D + 20 lg fc, and beyond d'_BP offset + far·lg d3D + 20 lg fc − bp·lg(d'_BP² + Δh²)."""
    g, bp = geometry, geometry.breakpoint_m()
    common = slopes.offset_db + 20.0 * np.log10(g.fc_ghz)
    near = common + slopes.near * np.log10(g.d3_m)
    edge = slopes.breakpoint * np.log10(bp**2 + (g.site_m - g.user_m) ** 2)
    far = common + slopes.far * np.log10(g.d3_m) - edge
    loss: FloatArray = np.where(g.d2_m <= bp, near, far)
    return loss


def street_los(distance_2d_m: FloatArray, decay_m: float) -> FloatArray:
    """Return 1 up to 18 m, then 18/d + exp(−d/decay)·(1 − 18/d) (Table 7.4.2-1, UMi and UMa)."""
    d = np.maximum(distance_2d_m, 18.0)
    probability: FloatArray = 18.0 / d + np.exp(-d / decay_m) * (1.0 - 18.0 / d)
    return probability
