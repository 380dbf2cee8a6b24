"""Speed-up of speculative decoding against Spec-Bench (batch 1) and arXiv 2601.11580 (EAGLE, gain against the batch).

Spec-Bench, draft model Vicuna-68M ("SpS"), PyTorch of transformers. Speed-up from the published tokens per step E:

    E·(T + o) / ( g·(d + o) + V + o )

T, V: one decode step and one verification of the target from measured kernels; d: one draft pass; o: host time of a
model call; g: drafts a round. g = E [A]: a confidence threshold ends drafting at about the first token that will be
rejected, so of g drafts g − 1 = E − 1 are accepted. o is calibrated on Vicuna-13B, A100, and reported on 7B and 33B;
g matters little then, since o takes up the difference (with g = 5 the 7B errors are −15.5 % and −14.1 %).

EAGLE, k = 3, vLLM 0.10.1, H100: speed-up(B) = E·T(B) / (draft(B) + V(B)); the fall from B = 1 to 32 does not depend on
E. Draft time on 8B: the authors' component model (docs/facts.md §6); on 70B: their share of the target's forward at
batch 1, growing as on 8B. Nothing is calibrated here. The measured fall is steeper than ours: up to 128 rows the
kernels cost next to nothing more (below 2 µs a row on 8B), the authors' own linear fit of whole steps has 21 µs a row.
So what falls is not in kernel tables: host work for each row, sampling, larger all-reduces with several GPUs.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import pandas as pd

from analysis.validation import argonne
from analysis.validation.checks import DATA, Check, markdown
from balancesim import catalog
from balancesim.core.work import LatencyLaw, Phase, decode_pass, verify_pass
from balancesim.latency_laws import Profiled, Roofline

CONTEXT_TOKENS = 512.0  #: [A]; halving or doubling it moves the speed-up by less than 1 %
ENGINE_S = 1.207e-3  #: host time of a step of vLLM 0.10.1 (docs/facts.md §6)
DRAFTS = 3
SPEEDUP_LIMIT_PERCENT = 15.0
FALL_LIMIT_POINTS = 3.0
CALIBRATION = ("A100-80 SXM", "Vicuna-13B")
#: (section of the leaderboard, GPU, target, table: "" = the shipped one)
PAIRS = (
    ("A100", "Vicuna-13B-v1.3", "A100-80 SXM", "Vicuna-13B", "a100-80-sxm__Vicuna-13B.csv"),
    ("A100", "Vicuna-7B-v1.3", "A100-80 SXM", "Vicuna-7B", ""),
    ("3090", "", "RTX 3090", "Vicuna-7B", ""),
    ("A100", "Vicuna-33B-v1.3", "A100-80 SXM", "Vicuna-33B", "a100-80-sxm__Vicuna-33B.csv"),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One target on one GPU: published tokens per step and speed-up, kernel times in seconds."""

    gpu: str
    target: str
    tokens_per_step: float
    measured: float
    decode_s: float
    verify_s: float
    draft_s: float

    def speedup(self, host_s: float) -> float:
        """Return the speed-up with this host time of a call."""
        tokens = self.tokens_per_step
        return tokens * (self.decode_s + host_s) / (tokens * (self.draft_s + host_s) + self.verify_s + host_s)

    def host_s(self) -> float:
        """Return the host time of a call that gives the measured speed-up (the equation above solved for o)."""
        tokens, speedup = self.tokens_per_step, self.measured
        round_s = tokens * self.draft_s + self.verify_s
        return (tokens * self.decode_s - speedup * round_s) / (speedup * (tokens + 1) - tokens)


def leaderboard(device: str, section: str) -> tuple[float, float]:
    """Return tokens per step and overall speed-up of the method SpS in one section of the leaderboard."""
    text = (DATA / "spec_bench_leaderboard.md").read_text(encoding="utf-8")
    text = re.split(r"^## Leaderboard on ", text, flags=re.MULTILINE)[_index(text, device)]
    if section:
        text = text.split(f"### {section}", 1)[1].split("\n### ", 1)[0]
    row = next(line for line in text.splitlines() if line.startswith("| [SpS]"))
    cells = [cell.strip(" *x") for cell in row.strip("|").split("|")]
    return float(cells[-2]), float(cells[-1])


def _index(text: str, device: str) -> int:
    devices = re.findall(r"^## Leaderboard on (\S+)", text, flags=re.MULTILINE)
    return 1 + devices.index(device)


@cache
def pairs() -> tuple[Pair, ...]:
    """Return the published pairs with our kernel times, the calibration pair first."""
    draft, draft_law = catalog.llm("Llama-68M"), Roofline(0.0, bandwidth_efficiency=0.68, compute_efficiency=0.64)
    found = []
    for device, section, gpu_name, target, table in PAIRS:
        tokens, measured = leaderboard(device, section)
        gpu, llm, law = catalog.gpu(gpu_name), catalog.llm(target), _law(table, 0.0)
        verify = verify_pass(1.0, CONTEXT_TOKENS, round(tokens))
        decode = decode_pass(1.0, CONTEXT_TOKENS)
        found.append(
            Pair(
                *(gpu_name, target, tokens, measured),
                decode_s=float(law.forward_s(llm, gpu, Phase.DECODE, decode)),
                verify_s=float(law.forward_s(llm, gpu, Phase.VERIFY, verify)),
                draft_s=float(draft_law.forward_s(draft, gpu, Phase.DECODE, decode)),
            )
        )
    return tuple(found)


def _law(table: str, overhead_s: float) -> LatencyLaw:
    return Profiled(table=str(DATA / table) if table else "", step_overhead_s=overhead_s)


@dataclass(frozen=True, slots=True)
class Eagle:
    """EAGLE with k = 3 on one target."""

    target: str
    table: str
    draft_s: Callable[[float, float], float]  #: (sequences, cached tokens) -> seconds of a round's drafts
    host_s: float = 0.0  #: host time of each token that a step emits; not in the judged law
    tokens: float = 1.0  #: that a verification emits for a sequence; matters only beside a host time

    def gain(self, batch: float, context: float) -> float:
        """Return T(B) / (draft(B) + V(B)): the speed-up over autoregressive decoding for each token of a step."""
        law, gpu, llm = _law(self.table, ENGINE_S), catalog.gpu("H100 SXM"), catalog.llm(self.target)
        cached = batch * context
        decode = float(law.forward_s(llm, gpu, Phase.DECODE, decode_pass(batch, cached)))
        verify = float(law.forward_s(llm, gpu, Phase.VERIFY, verify_pass(batch, cached, DRAFTS)))
        decode, verify = decode + self.host_s * batch, verify + self.host_s * self.tokens * batch
        return decode / (verify + self.draft_s(batch, cached))

    def forward_s(self) -> float:
        """Return the target's forward time at batch 1 without host time."""
        law, gpu, llm = _law(self.table, 0.0), catalog.gpu("H100 SXM"), catalog.llm(self.target)
        return float(law.forward_s(llm, gpu, Phase.DECODE, decode_pass(1.0, CONTEXT_TOKENS)))


def published(quantity: str, model: str) -> float:
    """Return a value of ``eagle_published.csv``."""
    frame = pd.read_csv(DATA / "eagle_published.csv")
    return float(frame.loc[(frame["quantity"] == quantity) & (frame["model"] == model), "value"].item())


def draft_growth_s(sequences: float, cached: float) -> float:
    """Return the authors' growth of EAGLE's draft time: 0.841 µs a drafted token + 2.378 ns a cached token."""
    return 0.841e-6 * DRAFTS * sequences + 2.378e-9 * cached


def linear_gain(batch: float, context: float) -> float:
    """Return the gain by the authors' own linear model of a step (docs/facts.md §6), for comparison only."""

    def forward_s(rows: float) -> float:
        return 5.886e-3 + 21.01e-6 * rows + 39.26e-9 * batch * context + ENGINE_S

    draft_s = 2.135e-3 + draft_growth_s(batch, batch * context)
    return forward_s(batch) / (forward_s(batch * (DRAFTS + 1)) + draft_s)


def token_host_s(rows: Sequence[argonne.Row]) -> float:
    """Return the host time of an emitted token that Argonne's rows on the H100, both models, give (vLLM of 2024)."""
    return argonne.sequence_overhead_s([row for row in rows if row.gpu == "H100 SXM"])


def eagles(host_s: float = 0.0) -> tuple[Eagle, Eagle]:
    """Return the 8B and the 70B target, with a host time for each token emitted where it is given.

    Tokens per step of the 70B target are not published: those of 8B on ShareGPT [A].
    """
    tokens = published("tokens_per_step_sharegpt", "Llama-3.1-8B")
    base_s = 2.135e-3
    small = Eagle("Llama-3.1-8B", "", lambda batch, cached: base_s + draft_growth_s(batch, cached), host_s, tokens)
    table = "h100-sxm-tp4__Llama-3-70B.csv"
    large_s = published("draft_share", "Llama-3-70B") * Eagle("Llama-3-70B", table, draft_growth_s).forward_s()
    return small, Eagle(
        "Llama-3-70B", table, lambda batch, cached: large_s + draft_growth_s(batch, cached), host_s, tokens
    )


def fall_percent(gain: Callable[[float, float], float]) -> float:
    """Return the change of the speed-up from batch 1 to 32 on ShareGPT, in per cent (negative: it falls)."""
    context = published("context_sharegpt", "both")
    return 100.0 * (gain(32.0, context) / gain(1.0, context) - 1.0)


def gsm8k_speedup(gain: Callable[[float, float], float]) -> float:
    """Return the speed-up at batch 128 on GSM8K, 8B."""
    tokens = published("tokens_per_step_gsm8k", "Llama-3.1-8B")
    return tokens * gain(128.0, published("context_gsm8k", "Llama-3.1-8B"))


def host_s() -> float:
    """Return the host time of a call, calibrated on the first pair."""
    return pairs()[0].host_s()


def checks() -> list[Check]:
    """Return the judged checks: the calibration pair is not among them."""
    host = host_s()
    found = [
        Check(
            f"Spec-Bench speed-up, Vicuna-68M/{pair.target}, {pair.gpu}",
            *(pair.measured, pair.speedup(host), SPEEDUP_LIMIT_PERCENT),
        )
        for pair in pairs()[1:]
    ]
    for eagle in eagles():
        reference, ours = published("fall_1_to_32_sharegpt", eagle.target), fall_percent(eagle.gain)
        label = (
            f"EAGLE k=3, H100, {eagle.target}, ShareGPT: change of the speed-up from batch 1 to 32, %, error in points"
        )
        found.append(Check(label, reference, ours, FALL_LIMIT_POINTS, ours - reference))
    reference = published("speedup_128_gsm8k", "Llama-3.1-8B")
    label = "EAGLE k=3, H100, Llama-3.1-8B, GSM8K: speed-up at batch 128"
    found.append(Check(label, reference, gsm8k_speedup(eagles()[0].gain), SPEEDUP_LIMIT_PERCENT))
    return found


def report() -> str:
    """Return the tables of both parts."""
    host = host_s()
    head = ("GPU", "target", "tokens/step", "T ms", "V ms", "d ms", "measured", "ours", "error %", "no calibration")
    body = [
        (
            *(pair.gpu, pair.target, f"{pair.tokens_per_step:.2f}"),
            *(f"{1e3 * seconds:.2f}" for seconds in (pair.decode_s, pair.verify_s, pair.draft_s)),
            *(f"{pair.measured:.2f}", f"{pair.speedup(host):.2f}"),
            "calibrated" if index == 0 else f"{100 * (pair.speedup(host) / pair.measured - 1):+.1f}",
            f"{pair.speedup(ENGINE_S):.2f}",
        )
        for index, pair in enumerate(pairs())
    ]
    small, large = eagles()
    eagle_rows = [
        (
            "8B, change from batch 1 to 32, %",
            "-4.3",
            f"{fall_percent(small.gain):.1f}",
            f"{fall_percent(linear_gain):.1f}",
        ),
        ("70B TP 4, change from batch 1 to 32, %", "-14.0", f"{fall_percent(large.gain):.1f}", ""),
        ("8B, speed-up at batch 128", "1.21", f"{gsm8k_speedup(small.gain):.2f}", f"{gsm8k_speedup(linear_gain):.2f}"),
    ]
    eagle = markdown(("EAGLE, k = 3, H100", "published", "profiled", "authors' linear model"), eagle_rows)
    return f"Host time of a model call: {host * 1e3:.2f} ms\n\n{markdown(head, body)}\n\n{eagle}"
