"""What a workload asks of the system, from a sample of its requests; no `Request` is made."""

from dataclasses import dataclass

import numpy as np

from balancesim.streams import Streams
from balancesim.units import FloatArray
from balancesim.workload import RequestColumns, Workload

QUANTILES = (0.05, 0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Spread:
    """Mean, largest value and the quantiles named in `QUANTILES` of one property over the sampled requests."""

    mean: float
    quantiles: tuple[float, ...]
    largest: float

    @staticmethod
    def of(values: FloatArray) -> "Spread":
        """Return the spread of at least one value; infinite deadlines give an infinite mean."""
        # "lower" takes values that occur: no interpolation between a finite deadline and none
        quantiles = np.quantile(values, QUANTILES, method="lower")
        return Spread(float(np.mean(values)), tuple(float(q) for q in quantiles), float(np.max(values)))


@dataclass(frozen=True)
class WorkloadSummary:
    """Load and sizes of a workload, as the capacity estimate needs them."""

    requests: int  #: sampled
    rate_hz: float  #: of the sample: requests over the horizon, or over the time that the sample covers
    cut: int  #: of the sampled, cut to the model's context
    prompt_tokens: Spread
    output_tokens: Spread
    total_tokens: Spread
    deadline_s: Spread
    acceptance_rate: Spread
    payload_bits: Spread


def summarise(workload: Workload, streams: Streams, most: int = 100_000) -> WorkloadSummary:
    """Return the summary of the first ``most`` requests of one replication.

    Raises:
        ValueError: no request arrives before the horizon.
    """
    chunks: list[RequestColumns] = []
    count = 0
    for chunk in workload.columns(streams, np.zeros(1, dtype=np.int64)):
        chunks.append(chunk)
        count += len(chunk)
        if count >= most:
            break
    if not chunks:
        raise ValueError(f"requests must arrive before the horizon of {workload.horizon_s:g} s, got none")

    def column(name: str) -> FloatArray:
        return np.concatenate([getattr(chunk, name) for chunk in chunks])[:most].astype(float)

    covered_s = workload.horizon_s if count < most else float(column("arrival_s")[-1])
    prompt, output = column("prompt_tokens"), column("output_tokens")
    return WorkloadSummary(
        requests=len(prompt),
        rate_hz=len(prompt) / covered_s if covered_s > 0 else float("inf"),
        cut=int(np.sum(column("cut"))),
        prompt_tokens=Spread.of(prompt),
        output_tokens=Spread.of(output),
        total_tokens=Spread.of(prompt + output),
        deadline_s=Spread.of(column("deadline_s")),
        acceptance_rate=Spread.of(column("acceptance_rate")),
        payload_bits=Spread.of(column("payload_bits")),
    )
