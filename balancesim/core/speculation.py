"""Rounds of speculative decoding: how many tokens a round emits and how many rounds an answer takes (model.md §4).

A round drafts γ tokens and verifies them in one target pass; it emits the accepted prefix and one more token of the
target. Prefill emits the first token of the answer, so n tokens need rounds for n − 1.
"""

from functools import lru_cache

import numpy as np

from balancesim.units import BoolArray, FloatArray, IntArray, Numeric

# Rounding errors of E and of its multiples stay below 1e-12 (relative) for every γ up to 1000. A quotient is taken
# down by twice this before it is rounded up, so that an exact integer is not rounded to the next one.
ROUNDING = 1e-12


def expected_tokens_per_round(acceptance_rate: Numeric, draft_length: int | IntArray) -> Numeric:
    """Return ``E = 1 + α + … + α^γ = (1 − α^(γ+1))/(1 − α)``, the mean number of tokens of an uncut round.

    Leviathan et al., arXiv 2211.17192, eq. (1), i.i.d. acceptance. The sum is used because it is exact at its limits
    (α = 1: γ + 1, α = 0: 1, γ = 0: 1) and loses no digits near α = 1. Elementwise over arrays of either argument.
    """
    if isinstance(draft_length, int):
        tokens: Numeric = np.ones_like(acceptance_rate) if isinstance(acceptance_rate, np.ndarray) else 1.0
        for _ in range(draft_length):
            tokens = 1.0 + acceptance_rate * tokens
        return tokens
    depths = np.asarray(draft_length)
    tokens = np.ones(np.broadcast_shapes(np.shape(acceptance_rate), depths.shape))
    for depth in range(int(depths.max(initial=0))):
        tokens = np.where(depths > depth, 1.0 + acceptance_rate * tokens, tokens)
    return tokens


def rounds_at_rate(output_tokens: Numeric | IntArray, tokens_per_round: Numeric) -> int | IntArray:
    """Return ``ceil((n − 1)/E)`` for any mean E of tokens per round; an exact quotient is not rounded up."""
    rounds = np.ceil((output_tokens - 1) / tokens_per_round * (1.0 - 2.0 * ROUNDING))
    return rounds.astype(np.int64) if isinstance(rounds, np.ndarray) else int(rounds)


def planned_rounds(
    output_tokens: Numeric | IntArray, acceptance_rate: Numeric, draft_length: int | IntArray
) -> int | IntArray:
    """Return ``ceil((n − 1)/E)``, the rounds that a policy plans for an answer of n tokens.

    Qu et al., arXiv 2608.05926, up to the −1. γ = 0 gives n − 1, the decode steps of AD. An int for numbers,
    elementwise for arrays.
    """
    return rounds_at_rate(output_tokens, expected_tokens_per_round(acceptance_rate, draft_length))


def round_probabilities(conditional_acceptance: FloatArray) -> FloatArray:
    """Return P(a round emits j tokens), j = 1 … γ+1, from the conditional acceptance at depths 1 … γ.

    With a constant α these are α^(j−1)(1−α) for j ≤ γ and α^γ for j = γ+1 (Leviathan et al., arXiv 2211.17192).
    """
    survival = np.concatenate(([1.0], np.cumprod(conditional_acceptance), [0.0]))
    return survival[:-1] - survival[1:]


def quantile_rounds(output_tokens: int, probabilities: FloatArray, level: float) -> int:
    """Return the smallest number of rounds that emits n − 1 tokens with probability ``level`` or more.

    Rounds are independent, ``probabilities[j−1]`` = P(j tokens). The distribution of the tokens still missing is
    carried from round to round (exact convolution, cut where nothing is missing). ``level`` in [0, 1); 1 gives the
    smallest number that suffices surely, n − 1 when a round may emit a single token.
    """
    missing = output_tokens - 1
    certain = -(-missing // (int(np.flatnonzero(probabilities)[0]) + 1))
    emitted = np.zeros(missing)  # P(j tokens are out), j = 0 … n−2: not done yet
    emitted[:1] = 1.0
    rounds = 0
    while rounds < certain and emitted.sum() > 1.0 - level:
        emitted = np.convolve(emitted, probabilities)[: missing - 1]
        emitted = np.concatenate(([0.0], emitted))  # probabilities[0] stands for one token
        rounds += 1
    return rounds


def planned_rounds_at(
    output_tokens: IntArray, acceptance_rate: FloatArray, draft_length: int, level: float
) -> IntArray:
    """Return, for each request, the rounds that suffice with probability ``level`` under i.i.d. acceptance.

    For a batch of b requests that end together, ``level^(1/b)`` for each gives ``level`` for the longest.
    """
    pairs = zip(output_tokens.tolist(), acceptance_rate.tolist(), strict=True)
    return np.array([_iid_quantile(tokens, rate, draft_length, level) for tokens, rate in pairs], dtype=np.int64)


@lru_cache(maxsize=65536)
def _iid_quantile(output_tokens: int, acceptance_rate: float, draft_length: int, level: float) -> int:
    """Waiting requests are planned again at every epoch, so answers are kept."""
    return quantile_rounds(output_tokens, round_probabilities(np.full(draft_length, acceptance_rate)), level)


def tokens_by_round(accepted: BoolArray, draft_length: int) -> IntArray:
    """Return the tokens that each round emits until every position is out; the last round is cut.

    ``accepted[p]``: whether a draft at output position p (0-based, after the first token) is kept. A round from p on
    keeps drafts while they are accepted, γ at most, and ends with one token of the target: at the first rejected
    position, or at position p + γ whatever stands there. So a rejected position always ends a round, and a stretch
    of length L up to a rejection splits into rounds of γ + 1 and a rest: no loop over rounds is needed.
    """
    last = len(accepted) - 1
    if last < 0:
        return np.empty(0, np.int64)
    stop = ~accepted
    stop[last] = True
    ends = stop.nonzero()[0]
    lengths = ends.copy()
    lengths[0] += 1
    lengths[1:] -= ends[:-1]
    size = draft_length + 1
    before = (lengths - 1) // size  # full rounds before the last one of each stretch
    places = (before + 1).cumsum()
    rounds = np.empty(places[-1], np.int64)
    rounds.fill(size)
    rounds[places - 1] = lengths - before * size
    return rounds


def tokens_per_round(uniforms: FloatArray, acceptance_rate: float, draft_length: int) -> IntArray:
    """Return the tokens of each round under i.i.d. acceptance, from one uniform on [0, 1) an output position.

    ``uniforms`` has n − 1 entries, entry p decides the draft at output position p: kept iff u < α. The result sums to
    n − 1. Positions, not rounds, are drawn, so that different γ meet the same luck.
    """
    return tokens_by_round(uniforms < acceptance_rate, draft_length)


def kept_by_depth(accepted: BoolArray, draft_length: int) -> FloatArray:
    """Return K[p, g], drafts that a round of g drafts from output position p keeps, g = 0 … γ: min(g, run from p)."""
    last = len(accepted)
    rejected = np.where(accepted, last, np.arange(last))
    run = np.minimum.accumulate(rejected[::-1])[::-1] - np.arange(last)
    return np.minimum(run[:, None], np.arange(draft_length + 1)).astype(float)
