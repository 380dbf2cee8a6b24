"""The measured vLLM run (LLMServingSim, RTX 4090, Llama-3.1-8B, 300 ShareGPT requests) beside the same in balancesim.

Nothing is fitted to the run: kernel times are LLMServingSim's profile, settings those of the run's own metadata (2,048
tokens a step, 256 sequences, 2,588 blocks of 16 tokens, prefix caching). Its host overlaps scheduling with the GPU
(``async_scheduling``), so that the step overhead is 0; what the profile's 1.2 ms of a synchronous host gives stands
beside it.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.validation.checks import DATA, Check, markdown
from balancesim.recorder import MemoryRecorder
from balancesim.scenario import load
from balancesim.simulate import run_world
from balancesim.units import FloatArray, IntArray

SCENARIO = Path(__file__).parent / "vllm_run.toml"
MEASURED = DATA / "vllm_rtx4090_llama-3.1-8b.csv"
SYNCHRONOUS = "server.law.step_overhead_s=0.001207"
_QUANTILES = (50, 90, 95, 99)
_LIMIT_PERCENT = 5.0


@dataclass(frozen=True)
class Requests:
    """One row per request, in order of arrival; times in s from the first arrival."""

    arrival_s: FloatArray
    output_tokens: IntArray
    first_token_s: FloatArray
    last_token_s: FloatArray

    def figures(self) -> dict[str, float]:
        """Return the figures that are compared: times in s, TPOT in ms, throughput in tokens a second."""
        ttft, e2e = self.first_token_s - self.arrival_s, self.last_token_s - self.arrival_s
        tpot = 1e3 * (self.last_token_s - self.first_token_s) / (self.output_tokens - 1)
        makespan = float(self.last_token_s.max())
        found = {"throughput, tokens/s": float(self.output_tokens.sum()) / makespan, "makespan, s": makespan}
        for name, column in (("TTFT, s", ttft), ("TPOT, ms", tpot), ("E2E, s", e2e)):
            found[f"mean {name}"] = float(column.mean())
            found |= {f"p{q} {name}": float(np.percentile(column, q)) for q in _QUANTILES}
        return found


def measured() -> Requests:
    """Return what was measured."""
    with MEASURED.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    times = {key: np.array([float(row[key]) for row in rows]) for key in ("arrival_s", "first_token_s", "last_token_s")}
    return Requests(output_tokens=np.array([int(row["output_tokens"]) for row in rows]), **times)


def simulated(*overrides: str) -> Requests:
    """Return the same requests as balancesim serves them."""
    recorder = MemoryRecorder()
    run_world(load(SCENARIO, overrides), "fcfs", 0, recorder)
    rows = sorted(recorder.requests, key=lambda row: row.request_id)
    if any(row.server_last_token_s is None for row in rows):
        raise RuntimeError("vllm run: every request must be answered")
    first, last = ([getattr(row, name) for row in rows] for name in ("server_first_token_s", "server_last_token_s"))
    arrivals, outputs = [row.arrival_s for row in rows], [row.output_tokens for row in rows]
    return Requests(np.array(arrivals), np.array(outputs), np.array(first, dtype=float), np.array(last, dtype=float))


def median_error_percent(reference: Requests, ours: Requests) -> float:
    """Return the median over requests of the absolute relative error of the end-to-end time."""
    e2e = [table.last_token_s - table.arrival_s for table in (reference, ours)]
    return 100.0 * float(np.median(np.abs(e2e[1] / e2e[0] - 1.0)))


def checks(reference: Requests, ours: Requests) -> list[Check]:
    """Return all checks of the run: `measured` beside `simulated`."""
    if len(reference.arrival_s) != len(ours.arrival_s):
        raise RuntimeError(f"vllm run: {len(reference.arrival_s)} requests measured, {len(ours.arrival_s)} simulated")
    theirs, found = reference.figures(), ours.figures()
    result = [Check(f"vLLM run, {name}", theirs[name], found[name], _LIMIT_PERCENT) for name in theirs]
    error = median_error_percent(reference, ours)
    return [*result, Check("vLLM run, median error of a request's E2E", 0.0, error, _LIMIT_PERCENT, error)]


def report(reference: Requests, ours: Requests) -> str:
    """Return the figures measured, simulated, and with the overhead of a synchronous host."""
    slower = simulated(SYNCHRONOUS)
    theirs, found, other = reference.figures(), ours.figures(), slower.figures()
    rows: list[tuple[str, ...]] = [
        (
            name,
            f"{theirs[name]:.4g}",
            f"{found[name]:.4g}",
            f"{100 * (found[name] / theirs[name] - 1):+.1f}",
            f"{100 * (other[name] / theirs[name] - 1):+.1f}",
        )
        for name in theirs
    ]
    errors = (f"{median_error_percent(reference, table):.1f}" for table in (ours, slower))
    rows.append(("median error of a request's E2E, %", "", "", *errors))
    return markdown(("figure", "measured", "ours", "error %", "error % with 1.2 ms a step"), rows)
