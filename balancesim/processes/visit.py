"""One request's way through the world: what has happened to it so far."""

from dataclasses import dataclass, field

from balancesim.columns import RequestRow
from balancesim.core.request import Mode, Outcome, RejectReason, Request


@dataclass(slots=True, eq=False)
class Visit:
    """A request in flight. Times are absolute; None = has not happened."""

    request: Request
    cell_id: int
    server_id: int
    deadline_at_s: float = field(init=False)
    mode: Mode | None = None
    lane_id: int | None = None
    draft_length: int | None = None
    outcome: Outcome | None = None
    reject_reason: RejectReason | None = None
    upload_start_s: float | None = None
    upload_end_s: float | None = None
    admitted_s: float | None = None
    prefill_start_s: float | None = None
    server_first_token_s: float | None = None
    server_last_token_s: float | None = None
    user_first_token_s: float | None = None
    user_last_token_s: float | None = None
    tokens_out: int = 0
    draft_rounds: int = 0
    drafted_tokens: int | None = None  #: where draft lengths changed from round to round; None = rounds times length
    prefill_tokens: int = 1  #: what its prefill emits before the first round; 0 where round 1 holds the prefill
    truncated: bool = False
    preemptions: int = 0
    cached_tokens: int = 0
    uplink_sinr: float | None = None
    downlink_sinr: float | None = None
    reserved_bytes: float = 0.0
    bandwidth_weight: float | None = None  #: the policy's, for its upload over a shared band
    epoch: int = -1  #: of the decision that admitted it; only read once admitted

    def __post_init__(self) -> None:
        self.deadline_at_s = self.request.arrival_s + self.request.deadline_s

    def row(self) -> RequestRow:
        """Return the finished record."""
        request, rounds, gamma = self.request, self.draft_rounds, self.draft_length or 0
        if self.outcome is None:
            raise RuntimeError(f"request {request.request_id} has no outcome")
        return RequestRow(
            request_id=request.request_id,
            user_id=request.user_id,
            cell_id=self.cell_id,
            server_id=self.server_id,
            task=request.task,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            predicted_output_tokens=request.predicted_output_tokens,
            acceptance_rate=request.acceptance_rate,
            predicted_acceptance_rate=request.predicted_acceptance_rate,
            payload_bits=request.payload_bits,
            deadline_s=request.deadline_s,
            mode=self.mode,
            lane_id=self.lane_id,
            draft_length=self.draft_length,
            outcome=self.outcome,
            reject_reason=self.reject_reason,
            arrival_s=request.arrival_s,
            upload_start_s=self.upload_start_s,
            upload_end_s=self.upload_end_s,
            admitted_s=self.admitted_s,
            prefill_start_s=self.prefill_start_s,
            server_first_token_s=self.server_first_token_s,
            server_last_token_s=self.server_last_token_s,
            user_first_token_s=self.user_first_token_s,
            user_last_token_s=self.user_last_token_s,
            tokens_out=self.tokens_out,
            draft_rounds=rounds,
            drafted_tokens=rounds * gamma if self.drafted_tokens is None else self.drafted_tokens,
            accepted_tokens=max(0, self.tokens_out - self.prefill_tokens - rounds) if rounds else 0,
            truncated=self.truncated,
            preemptions=self.preemptions,
            cached_tokens=self.cached_tokens,
            uplink_sinr=self.uplink_sinr,
            downlink_sinr=self.downlink_sinr,
        )

    def slack_s(self, now_s: float, downlink_s: float) -> float:
        """Return d_k: the time left until the deadline, less the downlink; inf without a deadline."""
        return self.deadline_at_s - now_s - downlink_s
