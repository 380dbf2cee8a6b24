"""The acceptance law ``by_depth``: the chance to keep a draft depends on its depth in the round."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.request import Request
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray, IntArray, Numeric


@dataclass(frozen=True, slots=True)
class ByDepth:
    """Conditional acceptance changes with depth (measured: it rises), scaled around the request's rate."""

    name: ClassVar[str] = "by_depth"

    #: measured chance to keep the draft at depth 1, 2, …, its predecessors kept; the last one holds for deeper drafts
    conditional_acceptance: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.conditional_acceptance:
            raise ValueError("conditional_acceptance must have at least one entry, got none; give one for each depth")
        for value in self.conditional_acceptance:
            if not 0 < value < 1:
                raise ValueError(
                    f"conditional_acceptance must lie strictly between 0 and 1, got {value}; "
                    "divide each survival by the one before it"
                )

    def exponents(self, draft_length: int) -> FloatArray:
        """Return w_1 … w_γ with ``w_d = ln c_d / mean(ln c)``; their mean over the listed depths is 1."""
        logs = [math.log(value) for value in self.conditional_acceptance]
        mean = sum(logs) / len(logs)
        deeper = max(0, draft_length - len(logs))
        return np.array((logs + logs[-1:] * deeper)[:draft_length]) / mean

    def rounds(self, request: Request, draft_length: int, stream: KeyedStream) -> IntArray:
        """Return the tokens of each round: position p, at depth d of its round, is kept iff u_p < α^(w_d) [A].

        The power keeps the measured shape at the listed values' geometric mean and stays in [0, 1] for every α; over
        all listed depths the chance to keep every draft is α^γ, as under ``iid``.
        """
        tokens = request.output_tokens - 1
        emitted = []
        steps = (self._kept(request, draft_length, stream) + 1).tolist()
        position = 0
        while position < tokens:
            emitted.append(steps[position])
            position += steps[position]
        if emitted:
            emitted[-1] -= position - tokens
        return np.array(emitted, dtype=np.int64)

    def kept_by_depth(self, request: Request, draft_length: int, stream: KeyedStream) -> FloatArray:
        """Return the drafts kept from every position: thresholds belong to depths, so a shorter round keeps fewer."""
        kept = self._kept(request, draft_length, stream)
        return np.minimum(kept[:, None], np.arange(draft_length + 1)).astype(float)

    def _kept(self, request: Request, draft_length: int, stream: KeyedStream) -> IntArray:
        """Return how many drafts a round starting at each position would keep."""
        tokens = request.output_tokens - 1
        uniforms = np.ones(tokens + draft_length)
        uniforms[:tokens] = stream.uniforms(request.request_id, tokens)
        thresholds = request.acceptance_rate ** self.exponents(draft_length)
        kept = np.zeros(tokens, np.int64)
        for depth in range(draft_length - 1, -1, -1):
            kept = (kept + 1) * (uniforms[depth : depth + tokens] < thresholds[depth])
        return kept

    def expected_tokens_per_round(self, acceptance_rate: Numeric, draft_length: int) -> Numeric:
        """Return ``1 + Σ_{j=1..γ} α^(w_1 + … + w_j)``: one plus the chances to keep the first j drafts."""
        survival = np.power.outer(np.asarray(acceptance_rate, dtype=float), np.cumsum(self.exponents(draft_length)))
        tokens = 1.0 + survival.sum(axis=-1)
        return tokens if isinstance(acceptance_rate, np.ndarray) else float(tokens)
