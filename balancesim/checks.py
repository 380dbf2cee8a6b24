"""Checks of plug-in options. A message begins with the field's name, so that a scenario's reader can place it."""

import math


def positive(**fields: float) -> None:
    """Raise ValueError unless every field is finite and above 0."""
    for name, value in fields.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be finite and positive, got {value}")


def not_negative(**fields: float) -> None:
    """Raise ValueError unless every field is finite and at least 0."""
    for name, value in fields.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and at least 0, got {value}")


def at_least_one(**fields: int) -> None:
    """Raise ValueError unless every field is at least 1."""
    for name, value in fields.items():
        if not value >= 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def share(**fields: float) -> None:
    """Raise ValueError unless every field lies in [0, 1]."""
    for name, value in fields.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {value}")


def ordered(low_name: str, low: float, high_name: str, high: float) -> None:
    """Raise ValueError unless ``low`` does not exceed ``high``."""
    if low > high:
        raise ValueError(f"{high_name} must be at least {low_name} ({low}), got {high}")
