"""Unit conversions. SI inside the program; decibels and friendly units only at its edges."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Numeric = float | FloatArray

GIB = 2.0**30
GB = 1e9
MHZ = 1e6
MS = 1e-3
SPEED_OF_LIGHT_M_S = 299_792_458.0


def db_to_linear(value_db: Numeric) -> Numeric:
    """Return ``10^(x/10)``: a power ratio from decibels."""
    return 10.0 ** (np.asarray(value_db, dtype=float) / 10.0) if np.ndim(value_db) else 10.0 ** (value_db / 10.0)


def linear_to_db(value: Numeric) -> Numeric:
    """Return ``10·log10(x)``: decibels from a power ratio; ``-inf`` for zero."""
    with np.errstate(divide="ignore"):
        result = 10.0 * np.log10(value)
    return result if np.ndim(value) else float(result)


def dbm_to_w(power_dbm: Numeric) -> Numeric:
    """Return watts from decibels over one milliwatt."""
    return db_to_linear(power_dbm) * 1e-3


def w_to_dbm(power_w: Numeric) -> Numeric:
    """Return decibels over one milliwatt from watts."""
    return linear_to_db(np.multiply(power_w, 1e3))
