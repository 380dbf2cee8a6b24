"""Acceptance laws: which drafted tokens the target keeps (model.md §4)."""

from typing import ClassVar, Protocol

from balancesim.acceptance.by_depth import ByDepth
from balancesim.acceptance.by_task import ByTask
from balancesim.acceptance.expected import Expected
from balancesim.acceptance.iid import Iid
from balancesim.acceptance.markov import Markov
from balancesim.core.request import Request
from balancesim.streams import KeyedStream
from balancesim.units import FloatArray, IntArray, Numeric

__all__ = ["ACCEPTANCE_LAWS", "AcceptanceLaw", "ByDepth", "ByTask", "Expected", "Iid", "Markov"]


class AcceptanceLaw(Protocol):
    """How drafts of a request are accepted, around its mean acceptance rate.

    Luck belongs to (request, output position): one uniform each, from the keyed stream with the request's id as key.
    """

    name: ClassVar[str]

    def rounds(self, request: Request, draft_length: int, stream: KeyedStream) -> IntArray:
        """Return the tokens emitted by each round of γ drafts; they sum to output_tokens − 1, the last round is cut."""
        ...

    def kept_by_depth(self, request: Request, draft_length: int, stream: KeyedStream) -> FloatArray:
        """Return K[p, g]: drafts that a round of g ≤ γ drafts from output position p keeps; for rounds of any lengths.

        Row p is of the answer's position p after its first token, n − 1 rows; one row where all are alike. A round
        emits 1 + K[p, g] tokens (a mean adds up from round to round), which leads to position p + 1 + K[p, g].
        """
        ...

    def expected_tokens_per_round(self, acceptance_rate: Numeric, draft_length: int) -> Numeric:
        """Return this law's long-run mean of tokens per uncut round; γ = 0 gives 1. Elementwise over rates."""
        ...


#: every acceptance law a scenario can name
ACCEPTANCE_LAWS: tuple[type[AcceptanceLaw], ...] = (Iid, Expected, ByDepth, ByTask, Markov)
