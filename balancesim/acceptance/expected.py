"""The acceptance law ``expected``: exactly the planned number of rounds, without luck."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.request import Request
from balancesim.core.speculation import ROUNDING, expected_tokens_per_round, rounds_at_rate
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray, IntArray, Numeric


@dataclass(frozen=True, slots=True)
class Expected:
    """No luck: i rounds emit floor(i·E) tokens, so an answer takes exactly its planned rounds."""

    name: ClassVar[str] = "expected"

    def rounds(self, request: Request, draft_length: int, stream: KeyedStream) -> IntArray:  # noqa: ARG002
        """Return differences of ``min(floor(i·E), n − 1)``, i = 0 … ceil((n − 1)/E); nothing is drawn."""
        tokens_per_round = expected_tokens_per_round(request.acceptance_rate, draft_length)
        tokens = request.output_tokens - 1
        rounds = int(rounds_at_rate(request.output_tokens, tokens_per_round))
        emitted = np.arange(rounds + 1) * (tokens_per_round * (1.0 + ROUNDING))
        whole = emitted.astype(np.int64)
        whole[rounds] = tokens
        return whole[1:] - whole[:-1]

    def kept_by_depth(self, request: Request, draft_length: int, stream: KeyedStream) -> FloatArray:  # noqa: ARG002
        """Return ``E(g) − 1`` for g = 0 … γ, alike for all positions."""
        depths = np.arange(draft_length + 1)
        return np.asarray(expected_tokens_per_round(request.acceptance_rate, depths), dtype=float)[None, :] - 1.0

    def expected_tokens_per_round(self, acceptance_rate: Numeric, draft_length: int) -> Numeric:
        """Return ``(1 − α^(γ+1))/(1 − α)``."""
        return expected_tokens_per_round(acceptance_rate, draft_length)
