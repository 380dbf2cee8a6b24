"""The acceptance law ``iid``: every draft is kept with the request's rate, independently."""

from dataclasses import dataclass
from typing import ClassVar

from balancesim.core.request import Request
from balancesim.core.speculation import expected_tokens_per_round, kept_by_depth, tokens_per_round
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray, IntArray, Numeric


@dataclass(frozen=True, slots=True)
class Iid:
    """Every draft is kept with probability α, independently (Leviathan et al., arXiv 2211.17192)."""

    name: ClassVar[str] = "iid"

    def rounds(self, request: Request, draft_length: int, stream: KeyedStream) -> IntArray:
        """Return the tokens of each round, drawn from the request's own numbers."""
        uniforms = stream.uniforms(request.request_id, request.output_tokens - 1)
        return tokens_per_round(uniforms, request.acceptance_rate, draft_length)

    def kept_by_depth(self, request: Request, draft_length: int, stream: KeyedStream) -> FloatArray:
        """Return the drafts kept from every position, by the same numbers as `rounds`."""
        uniforms = stream.uniforms(request.request_id, request.output_tokens - 1)
        return kept_by_depth(uniforms < request.acceptance_rate, draft_length)

    def expected_tokens_per_round(self, acceptance_rate: Numeric, draft_length: int) -> Numeric:
        """Return ``(1 − α^(γ+1))/(1 − α)``."""
        return expected_tokens_per_round(acceptance_rate, draft_length)
