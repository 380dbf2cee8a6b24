"""The electrical power of a GPU by what it does.

    P(t) = P_idle + Σ over the passes under way (P_phase − P_idle),    P_phase = share_phase · P_peak

P_peak is the data sheet's power (W). Time slicing runs one pass at a time, so at every instant P is one of the three.
Shares of P_peak, from measurements:

- prefill 1.0: peaks of 1.00 to 1.09 of the data sheet's power, reached in the prompt phase (A100-80, Llama-2-70B on 2
  GPUs, prompts of 512 and more); kept at 1.0, since a power cap holds the mean there.
- decoding 0.71: (mean power · time − peak · prompt time) / decoding time of the same runs, median over prompts of 128
  to 2,048 tokens and batches of 1 to 16 (0.68 to 0.73; it hardly moves with the batch). With 4 and 8 GPUs it falls to
  0.59 and 0.43 as they wait for one another: not this model's case. Source of both: P. Patel et al., "Splitwise", ISCA
  2024, ``data/perf_model.csv`` of Mutinifni/splitwise-sim, columns peak_power and average_power.
- drafting and verification as decoding [A]: they too are bound by memory below some 100 rows.
- idle: measured watts where the GPU table has them (``idle_w``), else 0.155, the A100's 62 of 400 W. With a model
  loaded a GPU may idle higher: a CUDA context was seen to add 26 to 66 W (arXiv 2605.23918, abstract).

Other measurements, of whole runs with mixed phases: 0.73-0.91 (A100-80), 0.87-0.94 (RTX 6000 Ada) and 0.96 (RTX 3090)
of the data sheet, models of 3 to 20 billion parameters (chuyishang/inference-energy, ``results_paste.md``), so decoding
on one GPU may draw up to a quarter more than 0.71. Left out: host, memory and cooling of the server, the radio, clock
and temperature.
"""

import math
from dataclasses import dataclass

from balancesim.core.gpu import GpuSpec

IDLE_SHARE = 0.155
PREFILL_SHARE = 1.0
DECODE_SHARE = 0.71


@dataclass(frozen=True, slots=True)
class GpuPower:
    """Watts of one GPU while idle, in prefill passes, and in all others."""

    idle_w: float
    prefill_w: float
    decode_w: float

    def __post_init__(self) -> None:
        if not (0 <= self.idle_w <= self.decode_w < math.inf and self.idle_w <= self.prefill_w < math.inf):
            raise ValueError(
                f"idle_w must be at least 0 and at most decode_w and prefill_w, got {self.idle_w} W beside "
                f"{self.decode_w} and {self.prefill_w} W"
            )


def gpu_power(gpu: GpuSpec) -> GpuPower:
    """Return the power of a GPU from its data sheet value, module docstring.

    Raises:
        ValueError: the GPU has no power on record.
    """
    if math.isnan(gpu.power_w):
        raise ValueError(f"gpu {gpu.name}: power_w must be given, it is not in the GPU table")
    idle_w = IDLE_SHARE * gpu.power_w if math.isnan(gpu.idle_w) else gpu.idle_w
    return GpuPower(idle_w, PREFILL_SHARE * gpu.power_w, DECODE_SHARE * gpu.power_w)
