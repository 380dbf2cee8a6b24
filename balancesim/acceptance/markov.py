"""The acceptance law ``markov``: easy and hard stretches of text, a two-state chain over output positions."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.request import Request
from balancesim.core.speculation import kept_by_depth, tokens_by_round
from balancesim.streams import KeyedStream
from balancesim.units import BoolArray, FloatArray, IntArray, Numeric


@dataclass(frozen=True, slots=True)
class Markov:
    """Acceptance is a two-state chain over output positions, with mean α and correlation ρ between neighbours."""

    name: ClassVar[str] = "markov"

    persistence: float  #: ρ: correlation of neighbouring positions; 0 is iid

    def __post_init__(self) -> None:
        if not 0 <= self.persistence < 1:
            raise ValueError(
                f"persistence must be at least 0 and below 1, got {self.persistence}; 0 makes positions independent"
            )

    def rounds(self, request: Request, draft_length: int, stream: KeyedStream) -> IntArray:
        """Return the tokens of each round for one path of the chain, started in its stationary law [A].

        P(kept | the position before would be kept) = h = α + ρ(1−α), P(kept | not) = l = α(1−ρ), so every position is
        kept with probability α. u < l keeps and u ≥ h rejects whatever came before; in between the state persists, so
        a position's state is that of the last position where it was decided.
        """
        return tokens_by_round(self._path(request, stream), draft_length)

    def kept_by_depth(self, request: Request, draft_length: int, stream: KeyedStream) -> FloatArray:
        """Return the drafts kept from every position, along the same path as `rounds`."""
        return kept_by_depth(self._path(request, stream), draft_length)

    def _path(self, request: Request, stream: KeyedStream) -> BoolArray:
        uniforms = stream.uniforms(request.request_id, request.output_tokens - 1)
        if not len(uniforms):
            return np.empty(0, np.bool_)
        low = request.acceptance_rate * (1.0 - self.persistence)
        kept = uniforms < low
        decided = kept | (uniforms >= low + self.persistence)
        kept[0] = uniforms[0] < request.acceptance_rate
        decided[0] = True
        source = np.maximum.accumulate(decided * np.arange(len(uniforms)))
        return np.asarray(kept[source])

    def expected_tokens_per_round(self, acceptance_rate: Numeric, draft_length: int) -> Numeric:
        """Return the long-run mean ``1 + (π·h + (1−π)·l)·(1 + h + … + h^(γ−1))``.

        π is the chance that the position before a round would be kept. It is not α: a rejection ends a round. After a
        kept (not kept) position the round keeps all γ drafts and the target's own position would be kept too with
        probability h^(γ+1) (l·h^γ), and only then the next round starts after a kept position; so
        π = π·h^(γ+1) + (1−π)·l·h^γ. With ρ = 0, h = l = α and this is the i.i.d. mean.
        """
        low = acceptance_rate * (1.0 - self.persistence)
        high = low + self.persistence
        after_full = low * high**draft_length
        start_kept = after_full / (1.0 - high ** (draft_length + 1) + after_full)
        first = start_kept * high + (1.0 - start_kept) * low
        tokens = 0.0 * first
        for _ in range(draft_length):
            tokens = 1.0 + high * tokens
        return 1.0 + first * tokens
