"""Compiled branch and bound for the exact optimum of two padded lanes (`core.optimum_two_colour`).

A node is a box of bounds (S, N, I, U) for both lanes, for fixed sizes (b_A, b_S). Every user is charged with the larger
of its own values and the lower ends of the box, which gives the GPU share that the user needs in either lane. For a
share z the sets E_A(z) and E_S(1 − z) of users that get what they need hold disjoint batches of b_A and b_S users
exactly when |E_A| ≥ b_A, |E_S| ≥ b_S and |E_A ∪ E_S| ≥ b_A + b_S (Hall's condition for two colours). In a box this is
necessary; where all bounds are single values it is sufficient, too.
"""

from typing import NamedTuple

import numba
import numpy as np

from balancesim.core.solver_kernel import Users, gpu_s
from balancesim.units import BoolArray, FloatArray, IntArray

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")

_ROUNDING = 1e-12
_DIMENSIONS = 8  # S, N, I, U of AD, then of SD


class Shares(NamedTuple):
    """Which shares the first lane may have: the values of axes, or any where an axis is empty."""

    gpu: FloatArray
    memory: FloatArray
    free_bytes: float


class Search(NamedTuple):
    """What the search for one pair of sizes came to."""

    found: bool
    nodes: int
    gpu_share: float
    first: BoolArray
    second: BoolArray


@_jit
def _largest_share(axis: FloatArray, limit: float, complement: bool) -> float:
    """Return the largest share of the axis (of its complement) that is at most ``limit``; −1 if there is none."""
    if len(axis) == 0:
        return limit
    best = -1.0
    for value in axis:
        share = 1.0 - value if complement else value
        if share <= limit + _ROUNDING and share > best:
            best = share
    return best


@_jit
def _bytes(users: Users, size: int, tokens: float) -> float:
    return size * (tokens + users.extra_tokens) * users.token_bytes


@_jit
def _needs(users: Users, size: int, box: FloatArray, most_bytes: float, needs: FloatArray) -> None:
    """Fill in the GPU share that each user needs in a batch of this size within a box [(S, N, I, U), (low, high)]."""
    for j in range(len(needs)):
        needs[j] = np.inf
        if (
            users.prompt[j] > box[0, 1]
            or users.output[j] > box[1, 1]
            or (users.drafting and users.rounds[j] > box[2, 1])
            or users.start_s[j] > box[3, 1]
        ):
            continue
        prompt, output = int(max(users.prompt[j], box[0, 0])), int(max(users.output[j], box[1, 0]))
        if _bytes(users, size, prompt + output) > most_bytes * (1.0 + _ROUNDING):
            continue
        window = users.slack_s[j] - max(users.start_s[j], box[3, 0])
        if window > 0:
            fixed, each = gpu_s(users, size, prompt, output, 1.0)
            needs[j] = (fixed + each * max(users.rounds[j], box[2, 0])) / window


@_jit
def _hall(first: FloatArray, second: FloatArray, sizes: tuple[int, int], z: float) -> bool:
    one = two = union = 0
    for j in range(len(first)):
        in_first, in_second = first[j] <= z + _ROUNDING, second[j] <= 1.0 - z + _ROUNDING
        one += in_first
        two += in_second
        union += in_first or in_second
    return one >= sizes[0] and two >= sizes[1] and union >= sizes[0] + sizes[1]


@_jit
def _share(first: FloatArray, second: FloatArray, sizes: tuple[int, int], axis: FloatArray) -> float:
    """Return a share z of the first lane for which Hall's condition holds; NaN if there is none.

    Without an axis only the needs of the first lane's users have to be tried: between two of them E_A stays and
    E_S shrinks.
    """
    if len(axis) > 0:
        for z in axis:
            if _hall(first, second, sizes, z):
                return float(z)
        return np.nan
    if len(first) < max(sizes):
        return np.nan
    least, most = np.sort(first)[sizes[0] - 1], 1.0 - np.sort(second)[sizes[1] - 1]
    if not least <= most + _ROUNDING:
        return np.nan
    for z in first:
        if least <= z <= most + _ROUNDING and _hall(first, second, sizes, z):
            return float(z)
    return np.nan


@_jit
def _chosen(first: FloatArray, second: FloatArray, sizes: tuple[int, int], z: float) -> tuple[BoolArray, BoolArray]:
    """Return disjoint batches for a share that passes Hall's condition: users of only one lane first, small needs
    first."""
    count = len(first)
    one, two = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    missing = sizes[0]
    for shared in (False, True):
        for j in np.argsort(first):
            if missing > 0 and first[j] <= z + _ROUNDING and (second[j] <= 1.0 - z + _ROUNDING) == shared:
                one[j] = True
                missing -= 1
    missing = sizes[1]
    for j in np.argsort(second):
        if missing > 0 and not one[j] and second[j] <= 1.0 - z + _ROUNDING:
            two[j] = True
            missing -= 1
    return one, two


@_jit
def needed(users: Users, chosen: BoolArray) -> tuple[float, float]:
    """Return the GPU share and the bytes that a batch needs: C/(min d − U) and b·(S+N+γ)·kv; (0, 0) when empty."""
    size = chosen.sum()
    if size == 0:
        return 0.0, 0.0
    prompt = output = rounds = 0
    start, slack = -np.inf, np.inf
    for j in range(len(chosen)):
        if chosen[j]:
            prompt, output = max(prompt, users.prompt[j]), max(output, users.output[j])
            rounds = max(rounds, users.rounds[j])
            start, slack = max(start, users.start_s[j]), min(slack, users.slack_s[j])
    fixed, each = gpu_s(users, size, prompt, output, 1.0)
    share = (fixed + each * rounds) / (slack - start) if slack > start else np.inf
    return share, _bytes(users, size, prompt + output)


@_jit
def _settled(lanes: tuple[Users, Users], batches: tuple[BoolArray, BoolArray], shares: Shares) -> float:
    """Return a share z under which the two batches are feasible as they are; NaN if there is none."""
    one, first_bytes = needed(lanes[0], batches[0])
    two, second_bytes = needed(lanes[1], batches[1])
    z = one if len(shares.gpu) == 0 else _largest_share(shares.gpu, 1.0 - two, False)
    if not (one <= z + _ROUNDING and two <= 1.0 - z + _ROUNDING):
        return np.nan
    room = _largest_share(shares.memory, 1.0 - second_bytes / shares.free_bytes, False)
    return z if first_bytes <= room * shares.free_bytes * (1.0 + _ROUNDING) else np.nan


@_jit
def _box(values: tuple[FloatArray, ...], node: IntArray, lane: int) -> FloatArray:
    box = np.empty((4, 2))
    for dimension in range(4):
        for end in range(2):
            box[dimension, end] = values[4 * lane + dimension][node[4 * lane + dimension, end]]
    return box


@_jit
def _widest(
    lanes: tuple[Users, Users],
    sizes: tuple[int, int],
    boxes: tuple[FloatArray, FloatArray],
    node: IntArray,
    shares: Shares,
) -> int:
    """Return the dimension of the node whose width changes most of GPU and memory; −1 if all are single values."""
    best, best_width = -1, -1.0
    for lane in range(2):
        users, size, box = lanes[lane], sizes[lane], boxes[lane]
        window = 1.0
        for j in range(len(users.slack_s)):
            if users.slack_s[j] < np.inf:
                window = max(window, users.slack_s[j])
        for dimension in range(4):
            if node[4 * lane + dimension, 0] == node[4 * lane + dimension, 1]:
                continue
            s, n, rounds = int(box[0, 0]), int(box[1, 0]), box[2, 0]
            fixed, each = gpu_s(users, size, s, n, 1.0)
            before = fixed + each * rounds
            if dimension == 0:
                s = int(box[0, 1])
            elif dimension == 1:
                n = int(box[1, 1])
            elif dimension == 2:
                rounds = box[2, 1]
            fixed, each = gpu_s(users, size, s, n, 1.0)
            width = abs(fixed + each * rounds - before) / window
            if dimension == 3:
                width = (box[3, 1] - box[3, 0]) / window
            width += (_bytes(users, size, s + n) - _bytes(users, size, box[0, 0] + box[1, 0])) / shares.free_bytes
            if width > best_width:
                best, best_width = 4 * lane + dimension, width
    return best


@_jit
def search(
    lanes: tuple[Users, Users],
    values: tuple[FloatArray, ...],
    sizes: tuple[int, int],
    shares: Shares,
    node_limit: int,
) -> Search:
    """Return disjoint feasible batches of exactly these sizes, if there are any.

    ``values``: the distinct values, ascending, of S, N, I, U of either lane. Users of both lanes are in the same order.
    When more than ``node_limit`` nodes would be looked at, ``nodes`` exceeds it and nothing is proved.
    """
    count = len(lanes[0].prompt)
    none = np.zeros(count, np.bool_)
    needs = (np.empty(count), np.empty(count))
    stack = np.empty((1024, _DIMENSIONS, 2), np.int64)
    for dimension in range(_DIMENSIONS):
        stack[0, dimension] = (0, len(values[dimension]) - 1)
    top, nodes = 1, 0
    while top > 0:
        top -= 1
        nodes += 1
        if nodes > node_limit:
            break
        node = stack[top].copy()
        boxes = (_box(values, node, 0), _box(values, node, 1))
        for lane in range(2):
            other = 1 - lane
            least = _bytes(lanes[other], sizes[other], boxes[other][0, 0] + boxes[other][1, 0])
            room = _largest_share(shares.memory, 1.0 - least / shares.free_bytes, lane == 1)
            _needs(lanes[lane], sizes[lane], boxes[lane], room * shares.free_bytes, needs[lane])
        z = _share(needs[0], needs[1], sizes, shares.gpu)
        if np.isnan(z):
            continue
        batches = _chosen(needs[0], needs[1], sizes, z)
        settled = _settled(lanes, batches, shares)
        if not np.isnan(settled):
            return Search(True, nodes, settled, batches[0], batches[1])
        dimension = _widest(lanes, sizes, boxes, node, shares)
        if dimension < 0:
            continue  # single values: what passed the test is feasible, so that rounding alone leads here
        low, high = node[dimension]
        middle = (low + high) // 2
        stack[top], stack[top + 1] = node, node
        stack[top, dimension, 0] = middle + 1
        stack[top + 1, dimension, 1] = middle
        top += 2
    return Search(False, nodes, np.nan, none, none)
