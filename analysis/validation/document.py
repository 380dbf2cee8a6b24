"""``docs/validation.md`` and its figures: every check with reference, ours, error, limit, and what was calibrated."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from analysis.validation import argonne, figures, specbench, vllm_run
from analysis.validation.checks import COLUMNS, Check, markdown
from analysis.validation.specbench import published

_HEAD = """# Validation

Published measurements beside balancesim, written by `make validate` with [validation.csv](validation.csv); sources and
licences: `analysis/validation/data/SOURCES.md`, `balancesim/data/profiles/SOURCES.md`. No constant is fitted to what it
is judged on; each section says what was calibrated, and on what. Missed checks stand in the tables as they are."""

_ARGONNE = """Latency of batches of 1 to 64 equal requests, as many tokens in as out, from 128 to 2,048; vLLM on
one GPU, two models. Kernel times are other people's tables (law `profiled`).

**Calibrated:** the host time for each sequence, on the *other* model's rows on the same GPU where all requests fit in
memory at once. The host time of a step, 1.207 ms, is another publication's. The A100's tables are the 80 GB card's,
scaled by bandwidth, 1,555 for 2,039 GB/s: the benchmark's jumps say that its card had 40 GB.

The roofline has the measured efficiencies of the GPU table and the same 1.207 ms, no host time for each sequence."""

_SPEC_BENCH = """Speed-up of a drafting Vicuna-68M at batch 1 from the published tokens per step (PyTorch).

**Calibrated:** the host time of a model call, {host_ms:.2f} ms, on Vicuna-13B on the A100, which is not judged."""

_EAGLE = """EAGLE with 3 drafts in vLLM 0.10.1, arXiv 2601.11580.

**Calibrated:** nothing; the draft's time is the authors' component model.

What is known of the reasons for a fall of the gain from batch 1 to 32:

- Kernels: up to 128 rows a pass costs next to nothing more, so verifying 4 rows a sequence at batch 32 is nearly as
  cheap as at batch 1. The tables have this from measurements; the 70B table has the all-reduces of its 4 GPUs.
- Sampling kernels: 25 µs for one row and 109 µs for 128 on an RTX 4090 (LLMServingSim), below 1 % of a step.
- The draft's growth with the batch is in: 0.84 µs a drafted token and 2.4 ns a cached token.
- Host work for each token that a step emits (sampling, stop conditions, detokenising): an autoregressive step emits
  one token a sequence, a speculative one {tokens:.2f}. vLLM of 2024 spent {host_us:.0f} µs on it, as Argonne's whole
  requests on the H100 say. With that the change is {with_small:.1f} % on 8B and {with_large:.1f} % on 70B, and
  {with_gsm:.2f}× is left at batch 128 on GSM8K (published: {small:.1f} %, {large:.1f} %, {gsm:.2f}×).

So host work is the likely reason, kernels are not. The host time of vLLM 0.10.1 is published nowhere independently of
the judged numbers, and 2024's is too much for 8B at batch 32: the judged law stays without it."""

_VLLM = """300 ShareGPT requests within 29 s on one RTX 4090: an overload in which memory is the limit. Lengths and
arrivals of each request, the run's settings, LLMServingSim's kernel profile.

**Calibrated:** nothing.

In an overload the TTFT says which wave a request got into: one that is admitted a wave later moves by seconds to tens
of seconds, so a quantile that falls into a gap between waves can be far off while totals and most requests agree."""


@dataclass(frozen=True, slots=True)
class Results:
    """What the checks were made from."""

    checks: Sequence[Check]
    rows: Sequence[argonne.Row]
    measured: vllm_run.Requests
    simulated: vllm_run.Requests


def write(results: Results, path: Path) -> None:
    """Write the document to ``path`` and its figures beside it, into the folder of its stem."""
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in _figures(results).items():
        figure.savefig(folder / f"{name}.png", dpi=110)
    path.write_text(_text(results, folder.name), encoding="utf-8")


def _figures(results: Results) -> dict[str, Figure]:
    kernels, host = specbench.eagles(), specbench.eagles(specbench.token_host_s(results.rows))
    falls = [published("fall_1_to_32_sharegpt", eagle.target) for eagle in kernels]
    context = published("context_sharegpt", "both")
    return {
        "argonne_parity": figures.argonne_parity(results.rows),
        "argonne_errors": figures.argonne_errors(results.rows),
        "spec_bench": figures.spec_bench(specbench.pairs(), specbench.host_s()),
        "eagle": figures.eagle(kernels, host, specbench.linear_gain, context, falls),
        "vllm_run": figures.vllm(results.measured, results.simulated),
    }


def _text(results: Results, folder: str) -> str:
    missed = [check for check in results.checks if not check.ok]
    count = f"**{len(results.checks) - len(missed)} of {len(results.checks)} checks are within their limit.**"
    host = specbench.eagles(specbench.token_host_s(results.rows))
    eagle = _EAGLE.format(
        tokens=published("tokens_per_step_sharegpt", "Llama-3.1-8B"),
        host_us=1e6 * specbench.token_host_s(results.rows),
        with_small=specbench.fall_percent(host[0].gain),
        with_large=specbench.fall_percent(host[1].gain),
        with_gsm=specbench.gsm8k_speedup(host[0].gain),
        small=published("fall_1_to_32_sharegpt", "Llama-3.1-8B"),
        large=published("fall_1_to_32_sharegpt", "Llama-3-70B"),
        gsm=published("speedup_128_gsm8k", "Llama-3.1-8B"),
    )
    spec_bench = _SPEC_BENCH.format(host_ms=1e3 * specbench.host_s())
    sections = (
        ("Argonne", "Whole requests (Argonne LLM-Inference-Bench)", _ARGONNE, ("argonne_parity", "argonne_errors")),
        ("Spec-Bench", "Speculative decoding at batch 1 (Spec-Bench)", spec_bench, ("spec_bench",)),
        ("EAGLE", "Speculative decoding against the batch (EAGLE)", eagle, ("eagle",)),
        ("vLLM run", "A measured run of vLLM", _VLLM, ("vllm_run",)),
    )
    parts = [_HEAD, count]
    for prefix, title, text, names in sections:
        table = markdown(COLUMNS, (check.row() for check in results.checks if check.name.startswith(prefix)))
        parts += [f"## {title}", text, table, *(f"![{title}]({folder}/{name}.png)" for name in names)]
        if prefix == "Argonne":
            parts.append(f"Mean absolute error, %:\n\n{argonne.summary(list(results.rows))}")
    return "\n\n".join(parts) + "\n"
