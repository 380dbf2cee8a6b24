"""The requests of a run: arrivals, lengths, deadlines, acceptance rates, predictions and payload, each from its stream.

Requests are made lazily, a few thousand at a time, and are the same for every policy. Every property is drawn from a
stream of its own name, so that changing one law leaves all other properties as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from balancesim.acceptance_rates import AcceptanceRates
from balancesim.arrivals import Arrivals, BoundArrivals, PerReplication
from balancesim.arrivals.chunks import CHUNK
from balancesim.checks import not_negative, positive, share
from balancesim.core.request import Request
from balancesim.deadlines import Deadlines
from balancesim.lengths import BesideArrivals, Lengths, LengthSource, Sizes
from balancesim.predictors import Forecast, Predictor
from balancesim.streams import Streams
from balancesim.units import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Payload:
    """What requests upload beside the prompt's tokens: a fixed part, and an image in a share of them."""

    fixed_bits: float = 0.0
    image_bits: float = 0.0
    image_share: float = 0.0

    def __post_init__(self) -> None:
        not_negative(fixed_bits=self.fixed_bits, image_bits=self.image_bits)
        share(image_share=self.image_share)

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Return the bits of each request."""
        images = (rng.random(count) < self.image_share).astype(float)
        return self.fixed_bits + self.image_bits * images


@dataclass(slots=True)
class Tally:
    """Counts of what was generated so far; filled by `Workload.requests` as it goes."""

    generated: int = 0
    cut: int = 0  #: requests whose lengths were cut to the model's context


@dataclass(frozen=True)
class RequestColumns:
    """Consecutive requests as columns, in the order of `Request`'s fields."""

    request_id: IntArray
    user_id: IntArray
    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    deadline_s: FloatArray
    acceptance_rate: FloatArray
    payload_bits: FloatArray
    predicted_output_tokens: IntArray
    predicted_acceptance_rate: FloatArray
    task: NDArray[np.object_]
    prefix_blocks: NDArray[np.object_]
    cut: NDArray[np.bool_]  #: not a field of a request

    def __len__(self) -> int:
        return len(self.request_id)


_REQUEST_FIELDS = tuple(field.name for field in fields(Request))


@dataclass(frozen=True)
class Workload:
    """Where requests come from."""

    horizon_s: float  #: arrivals stop here
    arrivals: Arrivals
    lengths: Lengths
    deadline: Deadlines
    acceptance_rate: AcceptanceRates
    prediction: Predictor
    payload: Payload = Payload()
    #: cut requests to this many tokens of prompt and answer (``context_overflow = "cut"``); None = leave them as drawn,
    #: and the simulator rejects those that never fit
    cut_to_tokens: int | None = None

    def __post_init__(self) -> None:
        positive(horizon_s=self.horizon_s)
        if self.cut_to_tokens is not None and self.cut_to_tokens < 2:
            raise ValueError(f"cut_to_tokens must be at least 2, got {self.cut_to_tokens}")

    def check(self, replications: int) -> None:
        """Raise ValueError when a part cannot serve that many replications (a trace that is missing or too short)."""
        for replication in sorted({0, replications - 1}):
            arrivals, lengths = self._bound(Streams(0, replication))
            next(lengths.batches(Streams(0, replication).sequential("lengths"), 1))
            next(iter(arrivals.interarrivals_s(Streams(0, replication).sequential("arrivals"))))

    def requests(self, streams: Streams, users: IntArray, tally: Tally | None = None) -> Iterator[Request]:
        """Return the requests of one replication in order of arrival, for users drawn uniformly from ``users``.

        Lazy: a few thousand are in memory at once. ``tally`` is kept up to date as chunks are made.
        """
        for columns in self.columns(streams, users):
            if tally is not None:
                tally.generated += len(columns)
                tally.cut += int(np.count_nonzero(columns.cut))
            yield from map(Request, *(getattr(columns, name).tolist() for name in _REQUEST_FIELDS))

    def columns(self, streams: Streams, users: IntArray) -> Iterator[RequestColumns]:
        """Return the same requests as arrays, a few thousand at a time."""
        if len(users) == 0:
            raise ValueError("users must have at least one id, got none")
        arrivals, lengths = self._bound(streams)
        times = self._times(arrivals.interarrivals_s(streams.sequential("arrivals")))
        batches = lengths.batches(streams.sequential("lengths"), CHUNK)
        draws = _Draws(self, streams, users)
        first = 0
        for arrival_s, sizes in zip(times, batches, strict=False):
            # laws draw for a whole chunk even where the horizon cuts it: a longer horizon only adds requests
            columns = draws.columns(first, arrival_s, sizes)
            if len(columns):
                yield columns
            first += len(arrival_s)

    def _bound(self, streams: Streams) -> tuple[BoundArrivals, LengthSource]:
        arrivals: BoundArrivals = self.arrivals
        if isinstance(self.arrivals, PerReplication):
            arrivals = self.arrivals.for_replication(streams, self.horizon_s)
        recorded = self.lengths.beside(arrivals) if isinstance(self.lengths, BesideArrivals) else None
        return arrivals, recorded or self.lengths

    def _times(self, gaps_s: Iterator[float]) -> Iterator[FloatArray]:
        now_s = 0.0
        while True:
            times_s = np.fromiter(islice(gaps_s, CHUNK), dtype=float)
            if not len(times_s):
                return
            times_s[0] += now_s
            np.cumsum(times_s, out=times_s)
            now_s = float(times_s[-1])
            yield times_s[: np.searchsorted(times_s, self.horizon_s)]
            if now_s >= self.horizon_s:
                return


class _Draws:
    """The streams of one replication, read chunk after chunk."""

    def __init__(self, workload: Workload, streams: Streams, users: IntArray) -> None:
        self._workload = workload
        self._users = _users(users, getattr(workload.arrivals, "distinct_users", False), streams.sequential("users"))
        self._deadlines = streams.sequential("deadlines")
        self._rates = streams.sequential("acceptance_rates")
        self._payload = streams.sequential("payload")
        self._predicted_lengths = streams.sequential("prediction_lengths")
        self._predicted_rates = streams.sequential("prediction_acceptance")

    def columns(self, first: int, arrival_s: FloatArray, sizes: Sizes) -> RequestColumns:
        """Return the requests from number ``first`` on; rows of ``sizes`` beyond the arrivals are dropped."""
        workload, count = self._workload, len(arrival_s)
        users = next(self._users)
        deadline_s = workload.deadline.draw(self._deadlines, sizes)
        drawn_rates = workload.acceptance_rate.draw(self._rates, sizes)
        payload_bits = workload.payload.draw(self._payload, len(sizes))
        tokens = workload.prediction.output_tokens(self._predicted_lengths, sizes)
        rates = workload.prediction.acceptance_rate(self._predicted_rates, drawn_rates, sizes)
        prompt, tokens, cut = _cut(sizes.prompt_tokens, tokens, workload.cut_to_tokens)
        task = np.full(len(sizes), "", dtype=object) if sizes.task is None else sizes.task
        return RequestColumns(
            request_id=np.arange(first, first + count),
            user_id=users[:count],
            arrival_s=arrival_s,
            prompt_tokens=prompt[:count],
            output_tokens=tokens.true[:count],
            deadline_s=deadline_s[:count],
            acceptance_rate=rates.true[:count],
            payload_bits=payload_bits[:count],
            predicted_output_tokens=tokens.predicted[:count],
            predicted_acceptance_rate=rates.predicted[:count],
            task=task[:count],
            prefix_blocks=_blocks(sizes, cut)[:count],
            cut=cut[:count],
        )


def _blocks(sizes: Sizes, cut: NDArray[np.bool_]) -> NDArray[np.object_]:
    """Return the hashes of the prompts' blocks: none where they are unknown, or a cut has dropped the first turns."""
    known = sizes.prefix_blocks
    blocks = np.empty(len(sizes), dtype=object)
    blocks[:] = [()] * len(sizes) if known is None else [() if gone else b for b, gone in zip(known, cut, strict=True)]
    return blocks


def _cut(
    prompt: IntArray, tokens: Forecast[IntArray], most: int | None
) -> tuple[IntArray, Forecast[IntArray], NDArray[np.bool_]]:
    """Cut prompt + answer to ``most`` tokens: the prompt first (a chat drops its oldest turns), never below 1 token."""
    if most is None:
        return prompt, tokens, np.zeros(len(prompt), dtype=bool)
    too_long = prompt + tokens.true > most
    kept = np.where(too_long, np.maximum(1, np.minimum(prompt, most - tokens.true)), prompt)
    room = most - kept
    return kept, Forecast(np.minimum(tokens.true, room), np.minimum(tokens.predicted, room)), too_long


def _users(users: IntArray, distinct: bool, rng: np.random.Generator) -> Iterator[IntArray]:
    """Return user ids, a chunk at a time: uniform, or in random rounds that name every user once."""
    ids = np.asarray(users, dtype=np.int64)
    rounds = -(-CHUNK // len(ids))
    left = ids[:0]
    while True:
        if not distinct:
            yield ids[rng.integers(0, len(ids), CHUNK)]
            continue
        more = [rng.permutation(ids) for _ in range(rounds)]
        left = np.concatenate([left, *more])
        yield left[:CHUNK]
        left = left[CHUNK:]
