"""Compiled search for batches with additive cost and padded memory (`core.solver_per_user`)."""

from typing import NamedTuple

import numba
import numpy as np

from balancesim.units import BoolArray, FloatArray, IntArray

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


class Users(NamedTuple):
    """Candidates of one lane by falling slack, and what they cost."""

    prompt: IntArray
    output: IntArray
    start_s: FloatArray
    slack_s: FloatArray
    cost_s: FloatArray  #: own contribution C(1, s, n, I) at the whole GPU
    prompts: IntArray  #: distinct values, ascending
    starts_s: FloatArray  #: distinct values, ascending
    extra_tokens: int  #: γ of the memory formula
    token_bytes: float


class Bounds(NamedTuple):
    """Bounds within which the cheapest users make a batch; size 0 = none."""

    size: int
    prompt: int
    output: int
    start_s: float
    slack_s: float


_NONE = Bounds(0, 0, 0, 0.0, 0.0)


@_jit
def _keep_cheapest(kept: FloatArray, count: int, cost: float, size: int) -> tuple[int, float]:
    """Insert a cost into the ``count`` ascending ones, keep the ``size`` smallest; return their number and the change
    of their sum."""
    if count == size and cost >= kept[size - 1]:
        return count, 0.0
    change, place = cost, count
    if count == size:
        change -= kept[size - 1]
        place = size - 1
    while place > 0 and kept[place - 1] > cost:
        kept[place] = kept[place - 1]
        place -= 1
    kept[place] = cost
    return min(count + 1, size), change


@_jit
def _within(
    users: Users, available: BoolArray, size: int, limits: tuple[float, float], start: float, relaxed: bool
) -> Bounds:
    """Return bounds with a batch of ``size`` users of upload ≤ start; ``relaxed``: as if all uploads took that long
    only.

    For every S the answers may be as long as memory for ``size`` padded sequences leaves. Users join by falling slack,
    so that D is the slack of the last one; of those inside the cheapest ``size`` are the best choice.
    """
    share, memory = limits
    tokens = memory / (size * users.token_bytes) * (1.0 + 1e-12) - users.extra_tokens
    kept = np.empty(size)
    for prompt in users.prompts:
        longest = int(np.floor(tokens - prompt))
        if longest < 1:
            break
        count, total = 0, 0.0
        for j in range(len(available)):
            if not available[j] or users.prompt[j] > prompt or users.output[j] > longest:
                continue
            if not relaxed and users.start_s[j] > start:
                continue
            count, change = _keep_cheapest(kept, count, users.cost_s[j], size)
            total += change
            if count == size and start + total / share <= users.slack_s[j]:
                return Bounds(size, prompt, longest, start, users.slack_s[j])
    return _NONE


@_jit
def _of_size(users: Users, available: BoolArray, size: int, limits: tuple[float, float]) -> Bounds:
    """Return bounds with a batch of this size, or none."""
    shortest, longest = np.inf, -np.inf
    for j in range(len(available)):
        if available[j]:
            shortest, longest = min(shortest, users.start_s[j]), max(longest, users.start_s[j])
    if _within(users, available, size, limits, shortest, True).size == 0:
        return _NONE
    found = _within(users, available, size, limits, longest, False)
    if found.size > 0:
        return found
    for start in users.starts_s:
        if start >= longest:
            break
        found = _within(users, available, size, limits, start, False)
        if found.size > 0:
            return found
    return _NONE


@_jit
def largest(users: Users, available: BoolArray, limits: tuple[float, float], at_least: int) -> Bounds:
    """Return bounds of the largest batch for (share, memory), or size 0 if it is smaller than ``at_least``.

    A batch without one of its members is feasible, too, so that sizes are tried upwards.
    """
    best = _NONE
    if not limits[0] > 0.0:
        return best
    most = available.sum()
    size = max(1, at_least)
    while size <= most:
        found = _of_size(users, available, size, limits)
        if found.size == 0:
            break
        best = found
        size += 1
    return best


@_jit
def members(users: Users, available: BoolArray, bounds: Bounds, order: IntArray) -> BoolArray:
    """Return the first users within the bounds in this order (ascending contribution), as many as the batch counts."""
    chosen = np.zeros(len(available), np.bool_)
    missing = bounds.size
    for j in order:
        if missing == 0:
            break
        if (
            available[j]
            and users.prompt[j] <= bounds.prompt
            and users.output[j] <= bounds.output
            and users.start_s[j] <= bounds.start_s
            and users.slack_s[j] >= bounds.slack_s
        ):
            chosen[j] = True
            missing -= 1
    return chosen
