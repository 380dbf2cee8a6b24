"""One request alone on the GPU: latency and memory of SD against AD (arXiv 2608.05926 v2, 500 input tokens)."""

from dataclasses import dataclass

import numpy as np

from analysis.reproduce.balance_study import ALPHA_MIN, Setting, server
from balancesim.core.memory import padded_kv_bytes
from balancesim.core.padded import Members, padded_batch
from balancesim.core.request import Mode
from balancesim.core.speculation import planned_rounds

INPUT_TOKENS = 500
OUTPUT_TOKENS = 200  #: [A]: the paper does not say; latency hardly depends on it where decoding rules


@dataclass(frozen=True)
class SingleRequest:
    """Seconds and bytes of both modes: weights and KV cache, no other buffers."""

    ad_s: float
    sd_s: float
    ad_bytes: float
    sd_bytes: float

    @property
    def latency_percent(self) -> float:
        """SD's latency over AD's, less 1."""
        return 100 * (self.sd_s / self.ad_s - 1)

    @property
    def memory_percent(self) -> float:
        """SD's memory over AD's, less 1."""
        return 100 * (self.sd_bytes / self.ad_bytes - 1)


def single_request(setting: Setting) -> SingleRequest:
    """Return both modes at the mean acceptance rate of the setting."""
    spec, gamma = server(setting), setting.draft_length
    rate = (ALPHA_MIN + setting.max_acceptance) / 2
    prompt, output = np.array([INPUT_TOKENS]), np.array([OUTPUT_TOKENS])
    rounds = np.asarray(planned_rounds(output, np.array([rate]), gamma), dtype=np.int64)
    members = Members(prompt, output, rounds)
    tokens = float(INPUT_TOKENS + OUTPUT_TOKENS)
    draft_bytes = 0.0 if spec.draft is None else spec.draft.weight_bytes
    return SingleRequest(
        ad_s=float(padded_batch(spec, Mode.AD, 0, members).total_s),
        sd_s=float(padded_batch(spec, Mode.SD, gamma, members).total_s),
        ad_bytes=spec.target.weight_bytes + float(padded_kv_bytes(spec, Mode.AD, 0, tokens)),
        sd_bytes=spec.target.weight_bytes + draft_bytes + float(padded_kv_bytes(spec, Mode.SD, gamma, tokens)),
    )
