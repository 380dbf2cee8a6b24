"""Draft lengths that maximise goodput, the expected accepted tokens per second (SmartSpec's idea).

Liu et al., "Optimizing Speculative Decoding for Serving Large Language Models Using Goodput", arXiv 2406.14066:

    goodput(γ) = Σ_k E_k(γ_k) / T(γ),   E_k = 1 + α_k + … + α_k^γ_k,   T: time of the fused step (`core.fused`)

The published method gives the whole batch one draft length. Here requests may also differ: the j-th draft of request k
is worth α_k^j tokens, and for every maximum depth D the most valuable drafts are taken first, one more each time. When
the time depends only on D and on the number of drafts (contexts alike, draft passes with a fixed and a linear part)
the best of these is the optimum; else it is a heuristic, never worse than the best common length.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from balancesim.core.fused import DepthSums, FusedMembers, depth_sums, fused_steps_s
from balancesim.core.server import ServerSpec
from balancesim.core.speculation import expected_tokens_per_round
from balancesim.units import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class GoodputRule:
    """The draft lengths of most goodput, at every step."""

    per_request: bool = True  #: False = one length for the whole batch, as published (each request up to its own limit)

    def lengths(self, server: ServerSpec, members: FusedMembers) -> IntArray:
        """Return γ_k; ties go to fewer drafts."""
        return goodput_lengths(server, members, per_request=self.per_request)


def goodput_tps(server: ServerSpec, members: FusedMembers, lengths: IntArray) -> float:
    """Return Σ_k E_k(γ_k) / T(γ) of one step, in tokens per second."""
    tokens = float(np.sum(expected_tokens_per_round(members.acceptance_rate, lengths)))
    return tokens / float(fused_steps_s(server, depth_sums(lengths, members.context_tokens)).total_s)


def goodput_lengths(server: ServerSpec, members: FusedMembers, *, per_request: bool = True) -> IntArray:
    """Return the draft lengths with the most goodput among those that the module describes."""
    count = len(members.context_tokens)
    if not members.longest_draft.any():
        return np.zeros(count, dtype=np.int64)
    chains = _chains(tuple(members.acceptance_rate.tolist()), tuple(members.longest_draft.tolist()))
    tried = np.arange(len(chains.tokens)) if per_request else chains.last
    goodput = chains.tokens[tried] / fused_steps_s(server, chains.sums(members.context_tokens, tried)).total_s
    place = int(tried[np.argmax(goodput)])
    taken = chains.request[chains.first[place] : place + 1] if place else chains.request[:0]
    return np.bincount(taken, minlength=count).astype(np.int64)


def exhaustive_lengths(server: ServerSpec, members: FusedMembers) -> IntArray:
    """Return the draft lengths with the most goodput of all, by trying every combination: for tiny batches."""
    ranges = [range(most + 1) for most in members.longest_draft.tolist()]
    choices = [np.array(choice, dtype=np.int64) for choice in product(*ranges)]
    return max(choices, key=lambda lengths: goodput_tps(server, members, lengths))


@dataclass(frozen=True)
class _Chains:
    """For every maximum depth D a chain of drafts (k, j), the most valuable first; place i stands for all up to i.

    A chain holds a request's drafts in the order of their depth, so that every place is a set of draft lengths. Place 0
    is a chain of its own: no draft at all.
    """

    request: IntArray  #: k
    first: IntArray  #: where the chain of each place begins
    last: IntArray  #: where each chain ends: everybody drafts up to D
    at_depth: FloatArray  #: (max D, places): 1 where j = row + 1
    sequences: FloatArray  #: (max D, places): b_j
    tokens: FloatArray  #: Σ E_k
    count: int

    def sums(self, context_tokens: FloatArray, places: IntArray) -> DepthSums:
        """Return the batch of several places at these contexts."""
        contexts = _within(self.at_depth * context_tokens[self.request], self.first)[:, places]
        everyone = float(context_tokens.sum())
        return DepthSums([float(self.count), *self.sequences[:, places]], [everyone, *contexts])


def _within(values: FloatArray, first: IntArray) -> FloatArray:
    """Return running sums along the last axis that begin anew with every chain."""
    total = np.cumsum(values, axis=-1)
    return np.asarray(total - (total - values)[..., first])


@lru_cache(maxsize=256)
def _chains(rates: tuple[float, ...], longest: tuple[int, ...]) -> _Chains:
    """Contexts grow at every step, but a batch keeps its chains until somebody joins or leaves."""
    rate, most = np.array(rates), np.array(longest)
    deepest = int(most.max())
    request, depth = (axis.ravel() for axis in np.meshgrid(np.arange(len(rates)), np.arange(1, deepest + 1)))
    allowed: BoolArray = depth <= most[request]
    request, depth = request[allowed], depth[allowed]
    order = np.lexsort((request, depth, -(rate[request] ** depth)))
    request, depth = request[order], depth[order]
    parts = [np.flatnonzero(depth <= limit) for limit in range(1, deepest + 1)]
    places = np.concatenate(parts)
    request, depth = (np.concatenate(([0], column[places])) for column in (request, depth))  # depth 0: place 0
    sizes = np.array([1, *(len(part) for part in parts)])
    ends = np.cumsum(sizes)
    first = np.repeat(ends - sizes, sizes)
    gain = np.where(depth > 0, rate[request] ** depth.astype(float), 0.0)
    at_depth = (depth == np.arange(1, deepest + 1)[:, None]).astype(float)
    tokens = len(rates) + _within(gain, first)
    return _Chains(request, first, ends - 1, at_depth, _within(at_depth, first), tokens, len(rates))
