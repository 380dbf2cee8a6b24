"""Compiled search for padded batches: branch and bound over the bounds (S, N), then over I and U (model.md §5).

One batch of b users is feasible inside bounds (S, N, I, U) when b users lie within them and have slack of at least
U + C(b, S, N, I)/share. For a rectangle of bounds (S, N) the search asks "can b = best + 1 be served?" with every user
charged only for the bounds that this user forces itself, and drops the rectangle when not. That is a necessary
condition,
since costs grow with every bound, so the result is the exact maximum.

Inside a rectangle and for SD, user j allows the bounds I in [I_j, (share·(slack − U) − prefill)/mean round]: b users
fit
when b such intervals overlap. U is relaxed to each user's own upload until a single (S, N, I) is left.
"""

from typing import NamedTuple

import numba
import numpy as np

from balancesim.units import BoolArray, FloatArray, IntArray

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


class Users(NamedTuple):
    """Candidates of one lane in order of preference, and what the lane costs."""

    prompt: IntArray
    output: IntArray
    rounds: IntArray
    start_s: FloatArray
    slack_s: FloatArray
    prompts: IntArray  #: distinct values, ascending
    outputs: IntArray  #: distinct values, ascending
    bounds: IntArray  #: distinct rounds, ascending: the only bounds I that matter
    rank: IntArray  #: of every user's rounds among them
    rank_within: IntArray  #: [r]: rank of the largest bound that is at most r
    prefill_s: FloatArray  #: [b, S]
    step_sums_s: FloatArray  #: [b, c]: Σ of step or round times over contexts 1 … c
    drafting: bool
    extra_tokens: int  #: γ of the memory formula
    token_bytes: float


class Batch(NamedTuple):
    """The largest batch found: its size and bounds; users within the bounds are interchangeable."""

    size: int
    prompt: int
    output: int
    rounds: int
    start_s: float  #: U
    need_s: float  #: C/share


@_jit
def gpu_s(users: Users, b: int, prompt: int, output: int, share: float) -> tuple[float, float]:
    """Return prefill/share (for AD: everything) and one round/share (for AD: 0) of b users padded to these bounds."""
    prefill = users.prefill_s[b, prompt]
    steps = users.step_sums_s[b, prompt + output - 1] - users.step_sums_s[b, prompt]
    if users.drafting:
        return prefill / share, (steps / (output - 1) if output > 1 else 0.0) / share
    return (prefill + steps) / share, 0.0


@_jit
def _promises(
    users: Users, available: BoolArray, b: int, rectangle: IntArray, limits: tuple[float, float], overlap: IntArray
) -> bool:
    """Return whether b users may fit somewhere in a rectangle of bounds (S, N); leaves Σ of intervals in
    ``overlap``."""
    share, memory = limits
    s_low, s_high = users.prompts[rectangle[0]], users.prompts[rectangle[1]]
    n_low, n_high = users.outputs[rectangle[2]], users.outputs[rectangle[3]]
    tokens = memory / (b * users.token_bytes) * (1.0 + 1e-12) - users.extra_tokens
    if s_low + n_low > tokens:
        return False
    if users.drafting:
        overlap[:] = 0
    count = 0
    last = len(overlap) - 2
    for j in range(len(available)):
        s, n = users.prompt[j], users.output[j]
        if not available[j] or s > s_high or n > n_high:
            continue
        s, n = max(s, s_low), max(n, n_low)
        if s + n > tokens:
            continue
        fixed, each = gpu_s(users, b, s, n, share)
        left = users.slack_s[j] - users.start_s[j] - fixed
        if left < each * users.rounds[j]:
            continue
        count += 1
        if users.drafting:
            most_rounds = len(users.rank_within) - 1
            end = most_rounds if each == 0.0 or left >= each * most_rounds else int(left / each * (1.0 + 1e-12))
            overlap[users.rank[j]] += 1
            overlap[users.rank_within[min(end, most_rounds)] + 1] -= 1
    if count < b or not users.drafting:
        return count >= b
    most = overlap[0]
    for i in range(1, last + 1):
        overlap[i] += overlap[i - 1]
        most = max(most, overlap[i])
    return bool(most >= b)


@_jit
def _upload_bound(users: Users, inside: BoolArray, b: int, need: float) -> float:
    """Return an upload bound U with b users inside of upload ≤ U and slack ≥ U + need; NaN if there is none."""
    bound, count = -1.0, 0
    for j in range(len(inside)):
        if inside[j] and users.slack_s[j] - users.start_s[j] >= need:
            bound = max(bound, users.start_s[j])
            count += 1
    if count < b:
        return np.nan
    if _in_time(users, inside, bound, need) >= b:
        return bound
    best = np.nan
    for i in range(len(inside)):
        u = users.start_s[i]
        if inside[i] and not u >= best and _in_time(users, inside, u, need) >= b:
            best = u
    return best


@_jit
def _in_time(users: Users, inside: BoolArray, bound: float, need: float) -> int:
    count = 0
    for j in range(len(inside)):
        if inside[j] and users.start_s[j] <= bound and users.slack_s[j] >= bound + need:
            count += 1
    return count


@_jit
def _settle(
    users: Users, available: BoolArray, b: int, bounds: tuple[int, int], share: float, overlap: IntArray
) -> Batch:
    """Return a batch of b users within bounds (S, N), the smallest I that has one; count 0 if there is none."""
    prompt, output = bounds
    fixed, each = gpu_s(users, b, prompt, output, share)
    inside = available & (users.prompt <= prompt) & (users.output <= output)
    if not users.drafting:
        u = _upload_bound(users, inside, b, fixed)
        return Batch(0 if np.isnan(u) else b, prompt, output, output - 1, u, fixed)
    for place in range(len(users.bounds)):
        if overlap[place] >= b:
            bound = users.bounds[place]
            need = fixed + each * bound
            u = _upload_bound(users, inside & (users.rounds <= bound), b, need)
            if not np.isnan(u):
                return Batch(b, prompt, output, bound, u, need)
    return Batch(0, prompt, output, 0, 0.0, 0.0)


@_jit
def largest(
    users: Users, available: BoolArray, limits: tuple[float, float], between: tuple[int, int], overlap: IntArray
) -> Batch:
    """Return the largest batch for (share, memory) of more than between[0] users; count 0 if there is none.

    between[1] is known not to be exceeded. Among batches of that size it is the first in the order of the search, small
    S and N first, whatever is known before. ``overlap`` is scratch, longer than the bounds by 1.
    """
    found = Batch(0, 0, 0, 0, 0.0, 0.0)
    if len(users.prompt) == 0 or not limits[0] > 0.0:
        return found
    best = between[0]
    most = min(between[1], available.sum())
    stack = np.empty((128, 4), np.int64)
    stack[0] = (0, len(users.prompts) - 1, 0, len(users.outputs) - 1)
    top = 1
    while top > 0 and best < most:
        top -= 1
        s_low, s_high, n_low, n_high = stack[top]
        if not _promises(users, available, best + 1, stack[top], limits, overlap):
            continue
        if s_low == s_high and n_low == n_high:
            batch = _settle(
                users, available, best + 1, (users.prompts[s_low], users.outputs[n_low]), limits[0], overlap
            )
            if batch.size > 0:
                best, found = batch.size, batch
                top += 1  # the same bounds may hold more
        elif s_high - s_low >= n_high - n_low:
            middle = (s_low + s_high) // 2
            stack[top] = (middle + 1, s_high, n_low, n_high)
            stack[top + 1] = (s_low, middle, n_low, n_high)
            top += 2
        else:
            middle = (n_low + n_high) // 2
            stack[top] = (s_low, s_high, middle + 1, n_high)
            stack[top + 1] = (s_low, s_high, n_low, middle)
            top += 2
    return found


@_jit
def members(users: Users, available: BoolArray, batch: Batch) -> BoolArray:
    """Return the first users in order of preference that fit the batch's bounds, as many as it counts."""
    chosen = np.zeros(len(available), np.bool_)
    missing = batch.size
    for j in range(len(available)):
        if missing == 0:
            break
        if (
            available[j]
            and users.prompt[j] <= batch.prompt
            and users.output[j] <= batch.output
            and (not users.drafting or users.rounds[j] <= batch.rounds)
            and users.start_s[j] <= batch.start_s
            and users.slack_s[j] >= batch.start_s + batch.need_s
        ):
            chosen[j] = True
            missing -= 1
    return chosen


class Grid(NamedTuple):
    """Shares of two lanes: [i, j] is the first lane's GPU share gpu[0][i] and memory memory[0][j]; gpu[1][i] and ..."""

    first_gpu: FloatArray  #: ascending
    second_gpu: FloatArray  #: descending
    first_bytes: FloatArray  #: ascending
    second_bytes: FloatArray  #: descending
    order: IntArray  #: [i, j]: place of a cell in the order of preference


@_jit
def counts_over_all(users: Users, gpu: FloatArray, memory: FloatArray) -> IntArray:
    """Return the most users that each cell of ascending axes can serve, over all users, (gpu, memory).

    Counts only grow along the axes: a stretch of cells between two equal counts is filled without a search, and every
    search starts between what its neighbours allow.
    """
    rows, columns = len(gpu), len(memory)
    counts = np.zeros((rows, columns), np.int64)
    everyone = np.ones(len(users.prompt), np.bool_)
    overlap = np.zeros(len(users.bounds) + 1, np.int64)
    stack = np.empty((64, 2), np.int64)
    for j in range(columns):  # by memory alone: the largest share
        low = counts[rows - 1, j - 1] if j else 0
        found = largest(users, everyone, (gpu[rows - 1], memory[j]), (low, len(everyone)), overlap).size
        counts[rows - 1, j] = max(low, found)
    for i in range(rows - 1):
        for j in (columns - 1, 0):
            low = counts[i - 1, j] if i else 0
            high = counts[rows - 1, j] if j == columns - 1 else min(counts[i, columns - 1], counts[rows - 1, 0])
            counts[i, j] = _between(users, everyone, (gpu[i], memory[j]), (low, high), overlap)
        stack[0] = (0, columns - 1)
        top = 1
        while top > 0:
            top -= 1
            left, right = stack[top]
            if counts[i, left] == counts[i, right]:
                counts[i, left:right] = counts[i, right]
            elif right - left > 1:
                middle = (left + right) // 2
                low = max(counts[i, left], counts[i - 1, middle] if i else 0)
                high = min(counts[i, right], counts[rows - 1, middle])
                counts[i, middle] = _between(users, everyone, (gpu[i], memory[middle]), (low, high), overlap)
                stack[top] = (left, middle)
                stack[top + 1] = (middle, right)
                top += 2
    return counts


@_jit
def _between(
    users: Users, available: BoolArray, limits: tuple[float, float], between: tuple[int, int], overlap: IntArray
) -> int:
    low, high = between
    return low if low >= high else max(low, largest(users, available, limits, between, overlap).size)


class Kept(NamedTuple):
    """The first lane's last batch for every GPU share [i], and what is known of the second lane beside it."""

    size: IntArray  #: −1 = none yet
    tokens: IntArray  #: S + N of its bounds
    most_bytes: FloatArray  #: memory with which it was found: with more, another may be first
    members: BoolArray  #: [i, user]
    missed_bytes: FloatArray  #: memory with which the second lane could not serve ``missed_least``; −1 = none yet
    missed_least: IntArray


@_jit
def _fits(users: Users, size: int, tokens: int, memory: float) -> bool:
    return size == 0 or tokens <= memory / (size * users.token_bytes) * (1.0 + 1e-12) - users.extra_tokens


@_jit
def _keep(kept: Kept, users: Users, cell: tuple[int, int], counts: IntArray, grid: Grid, scratch: IntArray) -> None:
    """Find the first lane's batch of a cell, and keep it for the other cells of the row where it is the same.

    The search takes the first batch in its order that is feasible. If that of the most memory with the same count fits
    less memory, it is the first one there, too.
    """
    i, j = cell
    size, everyone = counts[i, j], np.ones(len(users.prompt), np.bool_)
    most = j
    while most + 1 < counts.shape[1] and counts[i, most + 1] == size:
        most += 1
    for column in (most, j):
        limits = (grid.first_gpu[i], grid.first_bytes[column])
        # one less than known: the batch must be the one that a search without this knowledge finds
        batch = largest(users, everyone, limits, (max(0, size - 1), size), scratch)
        if _fits(users, size, batch.prompt + batch.output, grid.first_bytes[j]):
            break
    kept.size[i], kept.tokens[i], kept.most_bytes[i] = size, batch.prompt + batch.output, grid.first_bytes[column]
    kept.members[i] = members(users, everyone, batch)
    kept.missed_bytes[i] = -1.0


@_jit
def best_pair(
    lanes: tuple[Users, Users],
    candidates: tuple[IntArray, IntArray],
    grid: Grid,
    counts: tuple[IntArray, IntArray],
    known: tuple[int, int],
) -> tuple[int, int, int, BoolArray, BoolArray]:
    """Return the best cell when the first lane is solved over all users and the second over the rest.

    Cells are looked at by falling bound |first| + |second over all|, then by preference; the answer is that of a scan
    of
    all cells: most users, then the most preferred cell. ``candidates`` numbers the users of both lanes alike;
    ``known`` is (floor, number of candidates). The answer is (users served, i, j, first lane's members, second's), with
    the floor as users served when no cell serves more.
    """
    first, second = lanes
    floor, count = known
    taken = np.zeros(count, np.bool_)
    taken[candidates[0]] = True
    taken[candidates[1]] = True
    possible = taken.sum()
    sums = np.minimum(counts[0] + counts[1], possible)
    turn = np.argsort((grid.order - sums * grid.order.size).ravel(), kind="mergesort")
    overlap = np.zeros(len(second.bounds) + 1, np.int64)
    scratch = np.zeros(len(first.bounds) + 1, np.int64)
    rows, users = len(grid.first_gpu), len(first.prompt)
    tokens, chosen = np.zeros(rows, np.int64), np.zeros((rows, users), np.bool_)
    kept = Kept(np.full(rows, -1), tokens, np.zeros(rows), chosen, np.full(rows, -1.0), np.zeros(rows, np.int64))
    best, best_place, row, column = floor, -1, -1, -1
    one, two = np.ones(users, np.bool_), np.zeros(len(second.prompt), np.bool_)
    for flat in turn:
        i, j = flat // grid.order.shape[1], flat % grid.order.shape[1]
        place = grid.order[i, j]
        if sums[i, j] < best or best == possible:
            break
        least = best - counts[0][i, j] + (1 if place > best_place else 0)
        if counts[1][i, j] < least:
            continue
        size = counts[0][i, j]
        mine = grid.first_bytes[j]
        if kept.size[i] != size or mine > kept.most_bytes[i] or not _fits(first, size, kept.tokens[i], mine):
            _keep(kept, first, (i, j), counts[0], grid, scratch)
        if least >= kept.missed_least[i] and grid.second_bytes[j] <= kept.missed_bytes[i]:
            continue
        chosen = kept.members[i]
        taken[:] = False
        taken[candidates[0][chosen]] = True
        rest = ~taken[candidates[1]]
        limits = (grid.second_gpu[i], grid.second_bytes[j])
        batch = largest(second, rest, limits, (max(0, least - 1), counts[1][i, j]), overlap)
        if batch.size >= least:
            best, best_place, row, column = size + batch.size, place, i, j
            one, two = chosen.copy(), members(second, rest, batch)
        elif kept.missed_bytes[i] < grid.second_bytes[j]:
            kept.missed_bytes[i], kept.missed_least[i] = grid.second_bytes[j], least
    return best, row, column, one, two
