"""The plug-in families by name, imported only when one of them is asked for."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """Where a family's classes are listed, and what one of them is called in an error."""

    module: str
    attribute: str
    what: str


FAMILIES = {
    "policies": Family("balancesim.policies", "POLICIES", "policy"),
    "channels": Family("balancesim.channels", "CHANNELS", "channel"),
    "fading": Family("balancesim.fading", "FADINGS", "fading"),
    "rate_laws": Family("balancesim.rate_laws", "RATE_LAWS", "rate law"),
    "allocators": Family("balancesim.allocators", "ALLOCATORS", "bandwidth allocator"),
    "latency_laws": Family("balancesim.latency_laws", "LATENCY_LAWS", "cost law"),
    "acceptance": Family("balancesim.acceptance", "ACCEPTANCE_LAWS", "acceptance law"),
    "arrivals": Family("balancesim.arrivals", "ARRIVALS", "arrival process"),
    "lengths": Family("balancesim.lengths", "LENGTHS", "length law"),
    "deadlines": Family("balancesim.deadlines", "DEADLINES", "deadline law"),
    "acceptance_rates": Family("balancesim.acceptance_rates", "ACCEPTANCE_RATES", "law of acceptance rates"),
    "predictors": Family("balancesim.predictors", "PREDICTORS", "predictor"),
    "disciplines": Family("balancesim.core.lane_models", "LANE_MODELS", "discipline"),
    "metrics": Family("balancesim.metrics", "METRICS", "metric"),
    "trace_formats": Family("balancesim.trace_formats", "TRACE_FORMATS", "trace format"),
}


@cache
def classes_of(family: str) -> tuple[type[Any], ...]:
    """Return the classes of a family."""
    entry = FAMILIES[family]
    classes: tuple[type[Any], ...] = getattr(import_module(entry.module), entry.attribute)
    return classes
