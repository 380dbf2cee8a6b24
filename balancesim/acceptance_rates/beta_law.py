"""The Beta law by mean and coefficient of variation."""

import numpy as np

from balancesim.units import FloatArray

#: Least a + b: below it a Beta law is all but a coin flip between 0 and 1.
LEAST_CONCENTRATION = 1.0


def concentration(mean: FloatArray, cv: float) -> FloatArray:
    """Return a + b = m(1−m)/(c·m)² − 1 = (1−m)/(m·c²) − 1, for means in (0, 1) and c > 0.

    Not positive where no Beta law has this CV: the standard deviation must stay below sqrt(m(1−m)).
    """
    return (1.0 - mean) / (mean * cv**2) - 1.0


def draw_beta(rng: np.random.Generator, mean: FloatArray, cv: float) -> FloatArray:
    """Return one value a mean from Beta(a, b), a = m·κ, b = (1−m)·κ, κ = `concentration`, at least 1.

    Where κ would fall below 1 (e.g. CV 0.3 at a mean above 0.848) the spread is held at κ = 1; the mean is always kept.
    Means 0 and 1 stay as they are.
    """
    inner = (mean > 0) & (mean < 1)
    safe = np.where(inner, mean, 0.5)
    if cv == 0:
        return np.array(mean, dtype=float)
    kappa = np.maximum(LEAST_CONCENTRATION, concentration(safe, cv))
    return np.where(inner, rng.beta(safe * kappa, (1.0 - safe) * kappa), mean)
