"""KV memory that a batch or a request reserves, in bytes (model.md §5 [P1])."""

from collections.abc import Iterable

from balancesim.core.decision import Lane
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from balancesim.units import Numeric


def speculates(mode: Mode, draft_length: int) -> bool:
    """Return whether a lane runs the draft model: SD with γ ≥ 1. SD with γ = 0 is AD: no draft cost, no draft
    memory."""
    return mode is Mode.SD and draft_length > 0


def any_speculates(lanes: Iterable[Lane]) -> bool:
    """Return whether one of the lanes runs the draft model."""
    for lane in lanes:  # noqa: SIM110  # a plain loop: asked several times a decision
        if speculates(lane.mode, lane.draft_length):
            return True
    return False


def kv_bytes_per_token(server: ServerSpec, mode: Mode, draft_length: int) -> float:
    """Return the KV cache of one token of a lane: kv_L, or kv_L + kv_S when it speculates."""
    return server.kv_bytes_per_token(Mode.SD if speculates(mode, draft_length) else Mode.AD)


def padded_kv_bytes(server: ServerSpec, mode: Mode, draft_length: int, padded_tokens: Numeric) -> Numeric:
    """Return the reservation of one sequence of a padded batch whose S + N is ``padded_tokens``; times b for the batch.

    M^A = b·(S+N)·kv_L and M^S = b·(S+N+γ)·(kv_L+kv_S).
    """
    drafted = draft_length if speculates(mode, draft_length) else 0
    return (padded_tokens + drafted) * kv_bytes_per_token(server, mode, draft_length)


def request_kv_bytes(server: ServerSpec, mode: Mode, draft_length: int, tokens: Numeric) -> Numeric:
    """Return the reservation of one request of a continuous batch with s + n_pred = ``tokens``.

    (s+n_pred)·kv_L for AD, (s+n_pred+γ)·(kv_L+kv_S) for SD: the formula of the padded batch without the padding.
    """
    return padded_kv_bytes(server, mode, draft_length, tokens)


def batch_kv_bytes(server: ServerSpec, mode: Mode, draft_length: int, requests: int, tokens: float) -> float:
    """Return Σ of `request_kv_bytes` over so many requests whose s + n_pred sum to ``tokens``."""
    drafted = requests * draft_length if speculates(mode, draft_length) else 0
    return (tokens + drafted) * kv_bytes_per_token(server, mode, draft_length)
