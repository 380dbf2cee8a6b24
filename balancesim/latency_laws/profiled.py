"""The cost law ``profiled``: interpolation in tables of times measured on a real GPU."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.work import ForwardPass, Phase, merged
from balancesim.profiles.table import ProfileTable, pair_table, read_table
from balancesim.units import Numeric


@dataclass(frozen=True, slots=True)
class Profiled:
    """Time = layers · (dense + attention) + LM head + host overhead, interpolated in measured tables."""

    name: ClassVar[str] = "profiled"

    table: str = ""  #: CSV file of own measurements; empty = the shipped table of the GPU and the model
    step_overhead_s: float | None = None  #: host time of a pass; None = what the table has (0 if it has none)
    sequence_overhead_s: float = 0.0  #: further host time of a pass for each sequence (sampling, detokenising)

    def __post_init__(self) -> None:
        for field in ("step_overhead_s", "sequence_overhead_s"):
            value = getattr(self, field)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{field} must be finite and at least 0, got {value}; use 0 for an ideal host")

    def forward_s(self, llm: LlmSpec, gpu: GpuSpec, phase: Phase, work: ForwardPass) -> Numeric:
        """Return the time of a pass, J·(dense(n) + attention) + head(rows) + overhead, in seconds.

        dense(n): one layer without attention for n = Σ q rows. Attention of one layer: prefill a(Σ s, Σ s²); decoding
        a(b, Σ c), b sequences over Σ c cached tokens. Between nodes linear; beyond the table in proportion to the size
        of the batch (`balancesim.profiles.grid`), with one `ExtrapolationWarning` for each axis; below the smallest
        node the time is held (launch bound).

        Verification of γ drafts [A]: dense and head take b·(γ+1) rows; attention reads the cache once, so it costs
        what a decode step of b sequences over the same cached tokens does (memory bound; γ+1 ≪ the 64–128 rows at
        which attention turns compute bound). Structure as in Vidur (Agrawal et al., MLSys 2024, §4). Tables hold one
        number format (fp16/bf16); quantised weights need a table of their own.

        Args:
            llm: names the table, with ``gpu``, unless ``table`` is set; gives the number of layers J.
            gpu: see ``llm``.
            phase: chooses the attention table.
            work: sums over the rows of the pass; arrays stand for many passes.

        Raises:
            ValueError: no table for this pair, or a bad table.
        """
        profile = read_table(self.table) if self.table else pair_table(gpu.name, llm.name)
        if phase is Phase.PREFILL:
            attention = profile.prefill_s(work.new_tokens, work.attention_pairs)
        else:
            attention = profile.decode_s(work.sequences, work.kv_tokens)
        return llm.layers * attention + self._rest(profile, llm, work)

    def mixed_s(self, llm: LlmSpec, gpu: GpuSpec, chunk: ForwardPass, phase: Phase, work: ForwardPass) -> Numeric:
        """Return J·(dense(all rows) + attention of the chunks + attention of the rest) + head + overhead.

        The two attentions are added, as two kernels in turn [A]; the rest of the pass has all rows at once.
        Verification reads the cache as decoding does.
        """
        del phase
        profile = read_table(self.table) if self.table else pair_table(gpu.name, llm.name)
        attention = profile.prefill_s(chunk.new_tokens, chunk.attention_pairs)
        if np.any(np.asarray(work.sequences) > 0):
            attention = attention + profile.decode_s(work.sequences, work.kv_tokens)
        return llm.layers * attention + self._rest(profile, llm, merged(chunk, work))

    def _rest(self, profile: ProfileTable, llm: LlmSpec, work: ForwardPass) -> Numeric:
        """Return the time of a pass without attention."""
        once = profile.head_s(work.head_rows) + self.sequence_overhead_s * work.sequences
        step = profile.overhead_s(work.sequences) if self.step_overhead_s is None else self.step_overhead_s
        # Constants of a batch of fixed size are added first: only contexts are arrays in the simulator's inner loop.
        return llm.layers * profile.dense_s(work.new_tokens) + (once + step)
