"""Compiled insertion into a continuous lane (`core.solver_continuous`); times from `core.surfaces`."""

from typing import NamedTuple

import numba
import numpy as np

from balancesim.units import BoolArray, FloatArray, IntArray

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


class Lane(NamedTuple):
    """Possible members, residents and candidates, by steps ascending: the order in which they leave."""

    steps: IntArray
    context: FloatArray  #: at the first step
    growth: FloatArray  #: tokens a step
    prefill: FloatArray  #: tokens to prefill; 0 = none
    window_s: FloatArray  #: slack less start
    reserved_bytes: FloatArray  #: that admission would add; 0 for residents
    candidate: IntArray  #: row of the candidate; −1 = resident
    step_s: FloatArray
    prefill_s: FloatArray
    tokens: float  #: length that the last node of the tables stands for


@_jit
def _step(lane: Lane, batch: int, context: float) -> float:
    nodes = lane.step_s.shape[1] - 1
    place = context / batch * nodes / lane.tokens
    node = min(int(place), nodes - 1)
    part = place - node
    return float(lane.step_s[batch, node] * (1.0 - part) + lane.step_s[batch, node + 1] * part)


@_jit
def _prefill(lane: Lane, count: int, tokens: float, squares: float) -> float:
    if count == 0:
        return 0.0
    nodes = lane.prefill_s.shape[1] - 1
    x, y = tokens / count * nodes / lane.tokens, squares / tokens * nodes / lane.tokens
    i, j = min(int(x), nodes - 1), min(int(y), nodes - 1)
    u, v = x - i, y - j
    low = lane.prefill_s[count, i, j] * (1.0 - v) + lane.prefill_s[count, i, j + 1] * v
    high = lane.prefill_s[count, i + 1, j] * (1.0 - v) + lane.prefill_s[count, i + 1, j + 1] * v
    return float(low * (1.0 - u) + high * u)


@_jit
def in_time(lane: Lane, present: BoolArray, share: float) -> bool:
    """Return whether all present members meet their deadlines when the lane has this share of the GPU."""
    active, waiting = 0, 0
    context = growth = tokens = squares = 0.0
    for k in range(len(present)):
        if present[k]:
            active += 1
            context += lane.context[k]
            growth += lane.growth[k]
            if lane.prefill[k] > 0:
                waiting += 1
                tokens += lane.prefill[k]
                squares += lane.prefill[k] ** 2
    work = _prefill(lane, waiting, tokens, squares)
    done = 0
    for k in range(len(present)):
        if not present[k]:
            continue
        steps = lane.steps[k]
        if steps > done:
            first, last = (
                _step(lane, active, context + done * growth),
                _step(lane, active, context + (steps - 1) * growth),
            )
            work += 0.5 * (steps - done) * (first + last)
            done = steps
        if not work <= share * lane.window_s[k]:
            return False
        active -= 1
        context -= lane.context[k]
        growth -= lane.growth[k]
    return True


@_jit
def _insert(lane: Lane, present: BoolArray, order: IntArray, limits: tuple[float, float]) -> int:
    """Insert members in this order wherever all stay in time and memory lasts; return how many. Changes ``present``."""
    share, free = limits
    low, high, used = 0, 0, 0.0
    while high < len(order) and used + lane.reserved_bytes[order[high]] <= free:
        used += lane.reserved_bytes[order[high]]
        high += 1
    trial = present.copy()
    while low < high:  # the longest prefix that fits, by bisection: costs only grow with members
        middle = (low + high + 1) // 2
        trial[:] = present
        for place in range(middle):
            trial[order[place]] = True
        if in_time(lane, trial, share):
            low = middle
        else:
            high = middle - 1
    used = 0.0
    for place in range(low):
        present[order[place]] = True
        used += lane.reserved_bytes[order[place]]
    count = low
    for place in range(low, len(order)):
        k = order[place]
        if used + lane.reserved_bytes[k] <= free:
            present[k] = True
            if in_time(lane, present, share):
                used += lane.reserved_bytes[k]
                count += 1
            else:
                present[k] = False
    return count


@_jit
def _exchange(lane: Lane, present: BoolArray, orders: IntArray, limits: tuple[float, float]) -> int:
    """Take one new member out and insert in every order, until no more are served; return how many were won."""
    won = 0
    improved = True
    trial = present.copy()
    while improved:
        improved = False
        for out in range(len(present)):
            if not present[out] or lane.candidate[out] < 0:
                continue
            used = 0.0
            for k in range(len(present)):
                if present[k] and k != out:
                    used += lane.reserved_bytes[k]
            for row in range(len(orders)):
                trial[:] = present
                trial[out] = False
                rest = orders[row][~present[orders[row]]]
                gain = _insert(lane, trial, rest, (limits[0], limits[1] - used))
                if gain > 1:
                    present[:] = trial
                    won += gain - 1
                    improved = True
                    break
            if improved:
                break
    return won


@_jit
def admit(
    lane: Lane, orders: IntArray, available: BoolArray, budgets: tuple[FloatArray, FloatArray], exchange: bool
) -> tuple[BoolArray, BoolArray]:
    """Return the members (alternatives, candidates) and whether the residents can be kept, for each (share, free
    bytes).

    ``orders`` are rows of the lane, one insertion order each.
    """
    members = np.zeros_like(available)
    feasible = np.ones(len(available), np.bool_)
    residents = lane.candidate < 0
    kept = residents.any()
    for g in range(len(available)):
        share, free = budgets[0][g], budgets[1][g]
        if kept and not (share > 0.0 and in_time(lane, residents, share)):
            feasible[g] = False
            continue
        if not share > 0.0:
            continue
        best, chosen = 0, residents
        wanted = available[g].sum()
        for row in range(len(orders)):
            order = orders[row]
            present = residents.copy()
            count = _insert(lane, present, order[available[g][lane.candidate[order]]], (share, free))
            if count > best:
                best, chosen = count, present
            if best == wanted:
                break
        if exchange and 0 < best < wanted:
            allowed = np.zeros((len(orders), wanted), np.int64)
            for row in range(len(orders)):
                allowed[row] = orders[row][available[g][lane.candidate[orders[row]]]]
            chosen = chosen.copy()
            _exchange(lane, chosen, allowed, (share, free))
        for k in range(len(chosen)):
            if chosen[k] and lane.candidate[k] >= 0:
                members[g, lane.candidate[k]] = True
    return members, feasible
