"""Measured times of one GPU and one model: canonical tables (``balancesim/data/profiles``) and their interpolation."""

from balancesim.profiles.grid import Curve, Surface
from balancesim.profiles.table import (
    AXES,
    ExtrapolationWarning,
    ProfileTable,
    pair_table,
    pairs,
    read_table,
    table_from_rows,
)

__all__ = [
    "AXES",
    "Curve",
    "ExtrapolationWarning",
    "ProfileTable",
    "Surface",
    "pair_table",
    "pairs",
    "read_table",
    "table_from_rows",
]
