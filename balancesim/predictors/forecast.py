"""Truth and prediction of one quantity, side by side."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from balancesim.units import FloatArray, IntArray

Values = TypeVar("Values", IntArray, FloatArray)


@dataclass(frozen=True)
class Forecast(Generic[Values]):
    """What happens and what the policy is told, request by request."""

    true: Values
    predicted: Values
