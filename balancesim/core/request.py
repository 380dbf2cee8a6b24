"""A request and what can become of it."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum


class Mode(StrEnum):
    """How a request's tokens are produced."""

    AD = "AD"  #: autoregressive decoding: one target pass per token
    SD = "SD"  #: speculative decoding: draft passes, then one target pass that verifies them


class Outcome(StrEnum):
    """What became of a request; every generated request has exactly one (model.md §10)."""

    COMPLETED = "completed"  #: answered within the deadline
    LATE = "late"  #: admitted and answered after the deadline, cut short, or stopped at it
    REJECTED = "rejected"  #: by the policy, or because it can never fit
    EXPIRED = "expired"  #: deadline passed while waiting or uploading
    UNFINISHED = "unfinished"  #: still inside when the simulation ended


class RejectReason(StrEnum):
    """Why a request was rejected."""

    POLICY = "policy"  #: the policy's decision
    CONTEXT = "context_length"  #: prompt and answer exceed the model's context
    MEMORY = "kv_memory"  #: its KV cache exceeds the memory of the empty server


#: Tokens of one block of ``prefix_blocks``, as in Mooncake's traces (Qin et al., FAST 2025).
PREFIX_BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt of one user. ``output_tokens`` and ``acceptance_rate`` are the truth; policies see the predictions."""

    request_id: int  #: index in order of arrival, unique within a replication
    user_id: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    deadline_s: float = math.inf  #: end to end, counted from the arrival
    acceptance_rate: float = 0.0
    payload_bits: float = 0.0  #: image or audio sent beside the prompt's tokens
    predicted_output_tokens: int = 0  #: 0 stands for the true value
    predicted_acceptance_rate: float = math.nan  #: NaN stands for the true value
    task: str = ""
    prefix_blocks: tuple[int, ...] = ()  #: hashes of the prompt's blocks of `PREFIX_BLOCK_TOKENS`; () = not known

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError(
                f"request {self.request_id}: prompt_tokens and output_tokens must be at least 1, "
                f"got {self.prompt_tokens} and {self.output_tokens}"
            )
        if self.predicted_output_tokens == 0:
            object.__setattr__(self, "predicted_output_tokens", self.output_tokens)
        if math.isnan(self.predicted_acceptance_rate):
            object.__setattr__(self, "predicted_acceptance_rate", self.acceptance_rate)

    def foreseen(self) -> "Request":
        """Return the same request with the truth in place of its predictions."""
        return replace(
            self,
            predicted_output_tokens=self.output_tokens,
            predicted_acceptance_rate=self.acceptance_rate,
        )
