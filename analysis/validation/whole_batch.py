"""Time of a batch of identical requests on one GPU, as a vLLM-like engine runs it: enough to check a cost law.

Rules (vLLM 0.5, the version of the benchmark's year): waiting prompts go first, as many a pass as the token budget
takes; a request is admitted when the memory left holds its tokens and a watermark of 1 %; when the cache is full the
youngest request gives up its memory, waits at the front and is computed again from its prompt and the tokens it had
(recompute). So requests that do not fit at once run in waves. Blocks of 16 tokens are not modelled.
"""

from dataclasses import dataclass, field

import numpy as np

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.work import LatencyLaw, Phase, decode_pass, prefill_pass

WATERMARK = 0.01


@dataclass(frozen=True, slots=True)
class Engine:
    """One GPU, one model, one law, and the engine's limits."""

    llm: LlmSpec
    gpu: GpuSpec
    law: LatencyLaw
    kv_tokens: int  #: tokens that the KV memory holds
    token_budget: int  #: prompt tokens of one pass


@dataclass(frozen=True, slots=True)
class Run:
    """What a batch took."""

    seconds: float
    sequence_steps: int  #: Σ over passes of the sequences in it: host work for each sequence is proportional to it
    at_once: bool  #: no request waited for memory or was computed again


@dataclass(slots=True)
class _State:
    """Tokens out so far by request, in order of admission."""

    waiting: list[int]
    running: list[int] = field(default_factory=list)
    seconds: float = 0.0
    sequence_steps: int = 0
    queued: bool = False


def run_batch(engine: Engine, batch: int, length: int) -> Run:
    """Return the time until ``batch`` requests of ``length`` prompt and ``length`` output tokens are all answered.

    Raises:
        ValueError: one request alone exceeds the KV memory.
    """
    if 2 * length > engine.kv_tokens:
        raise ValueError(f"a request of {2 * length} tokens must fit in the KV memory of {engine.kv_tokens} tokens")
    state = _State(waiting=[0] * batch)
    while state.waiting or state.running:
        if not _prefill(engine, state, length):
            _decode(engine, state, length)
    return Run(state.seconds, state.sequence_steps, not state.queued)


def _prefill(engine: Engine, state: _State, length: int) -> bool:
    """Admit what fits and compute it in one pass; return whether there was anything."""
    free = engine.kv_tokens - sum(length + out for out in state.running)
    admitted: list[int] = []
    budget = engine.token_budget
    while state.waiting:
        need = length + state.waiting[0]
        if free - need < WATERMARK * engine.kv_tokens and (state.running or admitted):
            state.queued = True
            break
        if need > budget and admitted:
            break
        free, budget = free - need, budget - need
        admitted.append(state.waiting.pop(0))
    if not admitted:
        return False
    tokens = np.array([length + out for out in admitted], dtype=float)
    work = prefill_pass(float(tokens.sum()), float(np.square(tokens).sum()), float(len(admitted)))
    state.seconds += float(engine.law.forward_s(engine.llm, engine.gpu, Phase.PREFILL, work))
    state.sequence_steps += len(admitted)
    state.running += [out + 1 for out in admitted]
    state.running = [out for out in state.running if out < length]
    return True


def _decode(engine: Engine, state: _State, length: int) -> None:
    """Decode until a request is done or the memory is full, all steps in one call of the law."""
    count = len(state.running)
    held = sum(length + out for out in state.running)
    room = (engine.kv_tokens - held) // count
    if room < 1:
        state.waiting.insert(0, state.running.pop())
        state.queued = True
        return
    steps = min(room, length - max(state.running))
    contexts = held + count * np.arange(steps, dtype=float)
    times = engine.law.forward_s(engine.llm, engine.gpu, Phase.DECODE, decode_pass(float(count), contexts))
    state.seconds += float(np.sum(times))
    state.sequence_steps += count * steps
    state.running = [out + steps for out in state.running if out + steps < length]
