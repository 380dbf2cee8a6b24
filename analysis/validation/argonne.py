"""Whole-request latency against Argonne's LLM-Inference-Bench: vLLM on one GPU, batch 1-64, in = out = 128-2,048.

No constant comes from the rows it is judged on. The tables are other people's kernel measurements; the host time of a
step is that of another vLLM and model (docs/facts.md §6); the host time for each sequence (vLLM of 2024 sampled and
detokenised in Python) is calibrated on the *other* model on the same GPU, on rows where all requests fit at once.

The A100 of the benchmark is taken to be the 40 GB card: memory 40 GiB and bandwidth 1,555 GB/s for the 2,039 of the
profiles (`balancesim.profile_formats.rescale`). KV memory: 90 % of the card less weights less 1.5 GiB for activations
and the CUDA context [A].
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.validation.checks import DATA, Check, markdown
from analysis.validation.whole_batch import Engine, Run, run_batch
from balancesim import catalog
from balancesim.core.work import LatencyLaw
from balancesim.latency_laws import Profiled, Roofline
from balancesim.units import GIB

UTILISATION = 0.9
RESERVE_BYTES = 1.5 * GIB
STEP_OVERHEAD_S = 1.207e-3
#: vLLM's default without chunked prefill: the longest context of the model
MODELS = {"meta-llama/Llama-2-7b-hf": ("Llama-2-7B", 4096), "meta-llama/Meta-Llama-3-8B": ("Llama-3-8B", 8192)}
GPUS = {"Nvidia H100 GPU": ("H100 SXM", 10.0), "Nvidia A100 GPU": ("A100-40 SXM", 15.0)}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement and our times for it."""

    gpu: str
    model: str
    length: int
    batch: int
    measured_s: float
    kernels: Run  #: profiled, host time of a step only
    roofline: Run
    sequence_s: float = 0.0  #: calibrated host time for each sequence and step

    @property
    def ours_s(self) -> float:
        """Profiled with the host time for each sequence."""
        return self.kernels.seconds + self.sequence_s * self.kernels.sequence_steps

    def error(self, seconds: float) -> float:
        """Return the relative error of ``seconds`` in per cent."""
        return 100.0 * (seconds / self.measured_s - 1.0)


def measurements() -> pd.DataFrame:
    """Return the benchmark's rows; repeated ones are averaged."""
    frame = pd.read_csv(DATA / "argonne_vllm_1gpu.csv")
    keys = ["Hardware", "Model", "Input Output Length", "Batch Size"]
    return frame.groupby(keys)["Latency"].mean().reset_index()


def engine(gpu_name: str, model: str, token_budget: int, law: LatencyLaw) -> Engine:
    """Return the engine on a card."""
    gpu, llm = catalog.gpu(gpu_name), catalog.llm(model)
    kv_bytes = UTILISATION * gpu.memory_bytes - llm.weight_bytes - RESERVE_BYTES
    return Engine(llm, gpu, law, int(kv_bytes // llm.kv_bytes_per_token), token_budget)


def rows() -> list[Row]:
    """Return all measurements with our times, the host time for each sequence calibrated on the other model."""
    profiled, roofline = Profiled(step_overhead_s=STEP_OVERHEAD_S), Roofline(launch_s=STEP_OVERHEAD_S)
    result = []
    for hardware, hf_model, length, batch, latency in measurements().itertuples(index=False):
        (gpu, _), (model, budget) = GPUS[hardware], MODELS[hf_model]
        runs = [run_batch(engine(gpu, model, budget, law), batch, length) for law in (profiled, roofline)]
        result.append(Row(gpu, model, length, batch, latency, runs[0], runs[1]))
    return [replace(row, sequence_s=sequence_overhead_s(_others(result, row))) for row in result]


def _others(result: Iterable[Row], row: Row) -> list[Row]:
    return [other for other in result if other.gpu == row.gpu and other.model != row.model]


def sequence_overhead_s(calibration: Iterable[Row]) -> float:
    """Return the c ≥ 0 that minimises Σ ((t + c·n − measured)/measured)² over rows where all requests fit at once."""
    used = [row for row in calibration if row.kernels.at_once]
    measured = np.array([row.measured_s for row in used])
    kernels = np.array([row.kernels.seconds for row in used])
    steps = np.array([row.kernels.sequence_steps for row in used]) / measured
    return max(float(np.sum((1.0 - kernels / measured) * steps) / np.sum(steps**2)), 0.0)


def mean_error(errors: Iterable[float]) -> float:
    """Return the mean absolute error in per cent."""
    return float(np.mean(np.abs(list(errors))))


def checks(result: list[Row]) -> list[Check]:
    """Return the mean absolute error of each GPU (the goal) and of each model on it."""
    found = []
    for name, limit in GPUS.values():
        groups = {"both models": [row for row in result if row.gpu == name]}
        groups |= {model: [row for row in groups["both models"] if row.model == model] for model, _ in MODELS.values()}
        for group, members in groups.items():
            reference = float(np.mean([row.measured_s for row in members]))
            ours = float(np.mean([row.ours_s for row in members]))
            error = mean_error(row.error(row.ours_s) for row in members)
            label = f"Argonne whole request, {name}, {group}: mean s, mean absolute error"
            found.append(Check(label, reference, ours, limit, error))
    return found


def report(result: list[Row]) -> str:
    """Return the tables: every measurement, then the mean errors of each variant."""
    lines = ("GPU", "model", "in = out", "batch", "measured s", "profiled s", "error %", "roofline error %", "memory")
    body = [
        (
            *(row.gpu, row.model, f"{row.length:,}", str(row.batch), f"{row.measured_s:.2f}", f"{row.ours_s:.2f}"),
            *(f"{row.error(row.ours_s):+.1f}", f"{row.error(row.roofline.seconds):+.1f}"),
            "at once" if row.kernels.at_once else "waves",
        )
        for row in result
    ]
    return "\n\n".join((markdown(lines, body), "Mean absolute error, %:", summary(result)))


def summary(result: list[Row]) -> str:
    """Return the table of mean errors of each variant."""
    head = ("GPU", "model", "profiled", "without sequence overhead", "roofline", "at once", "waves", "µs a sequence")
    body = []
    for gpu, model in dict.fromkeys((row.gpu, row.model) for row in result):
        members = [row for row in result if (row.gpu, row.model) == (gpu, model)]
        queued = [row for row in members if not row.kernels.at_once]
        together = [row for row in members if row.kernels.at_once]
        errors = (
            mean_error(row.error(row.ours_s) for row in members),
            mean_error(row.error(row.kernels.seconds) for row in members),
            mean_error(row.error(row.roofline.seconds) for row in members),
            mean_error(row.error(row.ours_s) for row in together),
        )
        waves = f"{mean_error(row.error(row.ours_s) for row in queued):.1f}" if queued else "none"
        body.append((gpu, model, *(f"{e:.1f}" for e in errors), waves, f"{members[0].sequence_s * 1e6:.0f}"))
    return markdown(head, body)
