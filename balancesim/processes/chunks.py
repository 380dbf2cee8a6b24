"""Chunked prefill: how the token budget of one step is divided among the prompts that wait (Sarathi-Serve's scheme)."""

from collections.abc import Callable, Iterable

from balancesim.core.work import ForwardPass, chunk_pass
from balancesim.processes.resident import Resident

#: a request and the prompt tokens of it that a step prefills
Chunk = tuple[Resident, int]


def divided(pending: Iterable[Resident], budget: int, begin: Callable[[Resident], None]) -> list[Chunk]:
    """Return the chunks of one step: prompts in order, each as far as the budget goes; ``begin`` is called before."""
    chunks: list[Chunk] = []
    for resident in pending:
        if budget <= 0:
            break
        begin(resident)
        tokens = min(budget, resident.context_tokens - resident.chunked_tokens)
        chunks.append((resident, tokens))
        budget -= tokens
    return chunks


def work_of(chunks: list[Chunk]) -> ForwardPass:
    """Return the pass over the chunks alone."""
    new = sum(tokens for _, tokens in chunks)
    cached = sum(resident.chunked_tokens for resident, _ in chunks)
    pairs = sum(tokens * (2 * resident.chunked_tokens + tokens) for resident, tokens in chunks)
    return chunk_pass(float(len(chunks)), float(new), float(pairs), float(cached))
