"""The static study of Qu et al. (BALANCE, arXiv 2608.05926 v2, called [P1]): its world and what it does not declare.

Declared by [P1]: RTX 4090 with 24 GB, Llama-2-7B with TinyLlama-1.1B in fp16 and two other pairs, K = 20–70 users, T =
0.5–13 s, s and n = 1–1000 tokens, γ = 1–8, α = 0.6–0.95, radius 250 m, 1 MHz up and 2 MHz down for each user, −50 and
−29 dBm/Hz. Assumed [A]: all of them uniform, users uniform on the disk, path loss d^−4, Rayleigh fading constant over
the round, noise −174 dBm/Hz, 32 bit a token, one set of defaults for all sweeps.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from balancesim.catalog import gpu, llm
from balancesim.channels import LogDistance
from balancesim.core.candidates import Candidates
from balancesim.core.lane_models import CostForm, PerUserLanes, StaticLanes
from balancesim.core.padded import padded_batch, per_user_batch
from balancesim.core.problem import LaneModel, Problem
from balancesim.core.radio import RadioLinks
from balancesim.core.server import ServerSpec
from balancesim.core.work import LatencyLaw
from balancesim.latency_laws import Flops, Profiled, Roofline
from balancesim.lengths.sizes import Sizes
from balancesim.predictors import Exact, Predictor
from balancesim.rate_laws import Shannon
from balancesim.streams import Streams
from balancesim.units import GB, FloatArray, IntArray, db_to_linear

#: draft and target of the paper's pairs
PAIRS = {
    "TinyLlama/Llama-2-7B": ("TinyLlama-1.1B", "Llama-2-7B"),
    "TinyLlama/Llama-3.2-3B": ("TinyLlama-1.1B", "Llama-3.2-3B"),
    "Llama-3.2-3B/Llama-2-7B": ("Llama-3.2-3B", "Llama-2-7B"),
}
PAIR = "TinyLlama/Llama-2-7B"
RADIUS_M = 250.0
UPLINK_HZ, DOWNLINK_HZ = 1e6, 2e6
#: transmitted over noise power density, dB: −50 and −29 dBm/Hz over −174 dBm/Hz
UPLINK_DB, DOWNLINK_DB = 124.0, 145.0
BITS_PER_TOKEN = 32.0
T_MIN_S = 0.5
ALPHA_MIN = 0.6
MOST_USERS = 70  #: all draws are made for so many; a point with fewer takes the first
#: host time of one pass under `roofline` [A]; `profiled` tables have their own
LAUNCH_S = 5e-4


@dataclass(frozen=True)
class Coefficients:
    """κ of the law `flops`, seconds per FLOP: for each phase of the target, and the draft's decoding."""

    prefill_s_per_flop: float
    decode_s_per_flop: float
    verify_s_per_flop: float
    draft_s_per_flop: float  #: decoding; the draft's prefill has the target's κ


@dataclass(frozen=True)
class Setting:
    """One point of a sweep: everything that the study varies. Defaults: the ends of the declared ranges."""

    coefficients: Coefficients
    pair: str = PAIR
    users: int = MOST_USERS
    t_max_s: float = 13.0
    max_input: int = 1000
    max_output: int = 1000
    memory_gb: float = 24.0
    utilisation: float = 1.0
    max_acceptance: float = 0.95
    draft_length: int = 4
    law: str = "flops"  #: key of `LAWS`
    cost_form: str = "padded"  #: key of `COST_FORMS`
    predictor: Predictor = field(default_factory=Exact)


#: the two readings of the paper's batch cost (docs/model.md §5): lane model, and the time of a batch from its members
COST_FORMS: dict[str, tuple[LaneModel, CostForm]] = {
    "padded": (StaticLanes(), padded_batch),
    "per_user": (PerUserLanes(), per_user_batch),
}


def _flops(setting: Setting) -> tuple[LatencyLaw, LatencyLaw]:
    c = setting.coefficients
    target = Flops(c.prefill_s_per_flop, c.decode_s_per_flop, c.verify_s_per_flop)
    return target, Flops(c.prefill_s_per_flop, c.draft_s_per_flop, c.draft_s_per_flop)


#: GPU and the laws of target and draft. Measured tables of the paper's target: the RTX 3090, as large as the paper's
#: card; no draft model is measured on it.
LAWS = {
    "flops": ("RTX 4090", _flops),
    "roofline": ("RTX 4090", lambda _: (Roofline(LAUNCH_S), Roofline(LAUNCH_S))),
    "profiled": ("RTX 3090", lambda _: (Profiled(), Roofline(LAUNCH_S, 0.68, 0.64))),
}


@lru_cache(maxsize=16)
def _server(laws: tuple[str, str, str, LatencyLaw, LatencyLaw], usable_bytes: float, draft_length: int) -> ServerSpec:
    """Return the server, one for equal arguments, since it keeps its tables of step times."""
    card, draft, target, target_law, draft_law = laws
    return ServerSpec(gpu(card), llm(target), target_law, usable_bytes, llm(draft), draft_law, draft_length)


def server(setting: Setting) -> ServerSpec:
    """Return the edge server of a setting."""
    card, make = LAWS[setting.law]
    usable_bytes = setting.memory_gb * GB * setting.utilisation
    return _server((card, *PAIRS[setting.pair], *make(setting)), usable_bytes, setting.draft_length)


def weight_bytes(pair: str) -> float:
    """Return the weights of both models of a pair."""
    return sum(llm(name).weight_bytes for name in PAIRS[pair])


@dataclass(frozen=True)
class Round:
    """One round of K users at time 0: what the policy is told, and what is true."""

    setting: Setting
    predicted: Problem
    true: Problem  #: the same with the true answer lengths and acceptance rates


def one_round(setting: Setting, replication: int) -> Round:
    """Return the round of a replication: the same users, ranks and fading in every setting."""
    streams = Streams(1, replication)
    ranks = streams.sequential("requests").random((MOST_USERS, 4))[: setting.users]
    prompt, output = (
        1 + np.floor(ranks[:, column] * most).astype(np.int64)
        for column, most in ((0, setting.max_input), (1, setting.max_output))
    )
    deadline_s = T_MIN_S + ranks[:, 2] * (setting.t_max_s - T_MIN_S)
    rates = ALPHA_MIN + ranks[:, 3] * (setting.max_acceptance - ALPHA_MIN)
    uplink, downlink = (efficiency[: setting.users] for efficiency in _efficiencies(streams))
    sizes = Sizes(prompt, output)
    tokens = setting.predictor.output_tokens(streams.sequential("predicted_lengths"), sizes)
    alphas = setting.predictor.acceptance_rate(streams.sequential("predicted_acceptance"), rates, sizes)

    def problem(output: IntArray, rates: FloatArray) -> Problem:
        candidates = Candidates(
            request_id=np.arange(setting.users),
            prompt_tokens=prompt,
            output_tokens=output,
            acceptance_rate=rates,
            slack_s=deadline_s - output * BITS_PER_TOKEN / (DOWNLINK_HZ * downlink),
            upload_s=prompt * BITS_PER_TOKEN / (UPLINK_HZ * uplink),
            waited_s=np.zeros(setting.users),
            prompt_bits=prompt.astype(np.float64) * BITS_PER_TOKEN,
            spectral_efficiency_bps_hz=uplink,
        )
        return Problem(0.0, 0, server(setting), COST_FORMS[setting.cost_form][0], candidates)

    return Round(setting, problem(tokens.predicted, alphas.predicted), problem(tokens.true, alphas.true))


def _efficiencies(streams: Streams) -> tuple[FloatArray, FloatArray]:
    """Return η = log2(1 + SNR) up and down of users uniform on the disk, d^−4, one Rayleigh power each."""
    distance_m = RADIUS_M * np.sqrt(streams.sequential("placement").random(MOST_USERS))
    links = RadioLinks(np.arange(MOST_USERS), distance_m)
    loss_db = LogDistance(0.0, 4.0).pathloss_db(links, np.ones(MOST_USERS, dtype=np.bool_))
    fading = streams.sequential("fading").exponential(size=(2, MOST_USERS))
    snr = (fading[row] * db_to_linear(level - loss_db) for row, level in enumerate((UPLINK_DB, DOWNLINK_DB)))
    up, down = (np.asarray(Shannon().spectral_efficiency_bps_hz(ratio)) for ratio in snr)
    return up, down
