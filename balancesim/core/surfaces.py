"""Step and prefill times of a server as tables, for compiled searches that cannot call a cost law.

``step_s[b, k]`` is the time of a step (AD) or round (SD) of b requests with a mean context of k·width tokens;
``prefill_s[b, i, j]`` that of a pass over b prompts of mean length i·width and weighted mean length Σs²/Σs = j·width.
Linear interpolation between the nodes is exact for laws that are linear in Σ context, Σ s and Σ s² (`flops`, `affine`)
and never too small for convex ones (`roofline`).
"""

import numpy as np

from balancesim.core.latency import decode_steps_s, prefill_s, rounds_s
from balancesim.core.request import Mode
from balancesim.core.server import ServerSpec
from balancesim.units import FloatArray

_STEP_NODES = 65
_PREFILL_NODES = 17
_SMALLEST = (16, 512.0)  # requests, tokens


class Surfaces:
    """The tables of one server for AD (γ = 0) or SD, grown on demand in powers of two."""

    def __init__(self, server: ServerSpec, draft_length: int) -> None:
        self._server = server
        self._draft_length = draft_length
        self.requests = 0
        self.tokens = 0.0
        self.step_s: FloatArray = np.zeros((0, _STEP_NODES))
        self.prefill_s: FloatArray = np.zeros((0, _PREFILL_NODES, _PREFILL_NODES))

    def cover(self, requests: int, tokens: float) -> None:
        """Make the tables valid up to this many requests and this mean context or prompt length."""
        if requests <= self.requests and tokens <= self.tokens:
            return
        rows, length = max(self.requests, _SMALLEST[0]), max(self.tokens, _SMALLEST[1])
        while rows < requests:
            rows *= 2
        while length < tokens:
            length *= 2
        self.requests, self.tokens = rows, length
        sequences = np.arange(1, rows + 1, dtype=float)
        self.step_s = self._steps(sequences[:, None] + np.zeros(_STEP_NODES), length)
        self.prefill_s = self._prefills(sequences, length)

    def _steps(self, sequences: FloatArray, length: float) -> FloatArray:
        contexts = sequences * np.linspace(0.0, length, _STEP_NODES)
        if self._draft_length:
            times = rounds_s(self._server, sequences, contexts, self._draft_length).total_s
        else:
            times = np.asarray(decode_steps_s(self._server, sequences, contexts), dtype=float)
        return np.ascontiguousarray(np.concatenate((times[:1], times)))  # row b is b requests

    def _prefills(self, sequences: FloatArray, length: float) -> FloatArray:
        mean = np.linspace(0.0, length, _PREFILL_NODES)
        count = sequences[:, None, None]
        tokens = count * mean[None, :, None] + 0.0 * mean
        squares = tokens * mean
        mode = Mode.SD if self._draft_length else Mode.AD
        times = np.asarray(prefill_s(self._server, mode, count + 0.0 * tokens, tokens, squares), dtype=float)
        return np.ascontiguousarray(np.concatenate((times[:1], times)))


def surfaces(server: ServerSpec, draft_length: int) -> Surfaces:
    """Return the server's tables for AD (γ = 0) or SD, made once per server."""
    made: Surfaces = server.tables.setdefault(("surfaces", draft_length), Surfaces(server, draft_length))
    return made
