"""Electrical energy of the servers' GPUs, and its attribution to requests (power: `balancesim.core.power`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from balancesim.core.power import GpuPower
from balancesim.core.request import Outcome
from balancesim.metrics.window import Window
from balancesim.units import FloatArray

if TYPE_CHECKING:
    import pandas as pd

_MEMORY_BOUND = ["decode_s", "draft_s", "verify_s"]


def _check(powers: Sequence[GpuPower]) -> None:
    if not powers:
        raise ValueError("powers must have one entry a server, got none")


def dynamic_j(gpu: "pd.DataFrame", powers: Sequence[GpuPower]) -> FloatArray:
    """Return each span's energy above idle: prefill_s·(P_prefill − P_idle) + (other work)·(P_decode − P_idle).

    Switching between lanes runs no kernel: idle power.
    """
    server = gpu["server_id"].to_numpy(int)
    prefill_w = np.array([power.prefill_w - power.idle_w for power in powers])[server]
    decode_w = np.array([power.decode_w - power.idle_w for power in powers])[server]
    other_s = gpu[_MEMORY_BOUND].to_numpy().sum(axis=1)
    energy_j: FloatArray = gpu["prefill_s"].to_numpy() * prefill_w + other_s * decode_w
    return energy_j


def window_j(window: Window, gpu: "pd.DataFrame", powers: Sequence[GpuPower]) -> float:
    """Return the energy of all servers in the window: idle power over its length and the dynamic part of the spans."""
    idle_j = window.length_s * sum(power.idle_w for power in powers)
    return idle_j + float(dynamic_j(gpu, powers) @ window.overlap(gpu))


@dataclass(frozen=True)
class Energy:
    """Joules that the servers' GPUs drew in the window, idle ones included."""

    name: ClassVar[str] = "energy_j"
    unit: ClassVar[str] = "J"
    window: Window
    powers: tuple[GpuPower, ...]  #: by server_id

    def __post_init__(self) -> None:
        _check(self.powers)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return the joules."""
        return window_j(self.window, gpu, self.powers)


@dataclass(frozen=True)
class EnergyPerRequest:
    """Joules of the servers for each answer that reached its user in the window, in time or late."""

    name: ClassVar[str] = "energy_j_per_request"
    unit: ClassVar[str] = "J"
    window: Window
    powers: tuple[GpuPower, ...]

    def __post_init__(self) -> None:
        _check(self.powers)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return energy / answers; NaN without an answer."""
        return _ratio(window_j(self.window, gpu, self.powers), len(self.window.answered_within(requests)))


@dataclass(frozen=True)
class EnergyPerToken:
    """Joules of the servers for each token of the answers that reached their users in the window."""

    name: ClassVar[str] = "energy_j_per_token"
    unit: ClassVar[str] = "J/token"
    window: Window
    powers: tuple[GpuPower, ...]

    def __post_init__(self) -> None:
        _check(self.powers)

    @property
    def label(self) -> str:
        """Column name of the value."""
        return self.name

    def compute(self, requests: "pd.DataFrame", epochs: "pd.DataFrame", gpu: "pd.DataFrame") -> float:  # noqa: ARG002
        """Return energy / tokens; NaN without a token."""
        tokens = float(self.window.answered_within(requests)["tokens_out"].sum())
        return _ratio(window_j(self.window, gpu, self.powers), tokens)


def _ratio(energy_j: float, count: float) -> float:
    return energy_j / count if count else math.nan


def request_energy_j(
    requests: "pd.DataFrame", gpu: "pd.DataFrame", powers: Sequence[GpuPower], end_s: float
) -> "pd.Series[float]":
    """Return the joules of each request, in the order of the rows; they sum to what the GPUs drew from 0 to ``end_s``.

    Dynamic energy by share of the batch time: at every instant the power of a lane is split equally among the requests
    in it, from their first prefill to their last token at the server (a preempted one waits inside; one that was
    stopped without a token until its deadline). A GPU that no request names, an MBS of the discipline ``pipeline``,
    works for all that are inside anywhere. What is left, idle power and work for nobody, is spread over all requests
    in proportion to their dynamic energy. Without any dynamic energy it belongs to nobody: zeros.
    """
    energy_j = np.zeros(len(requests))
    spans_j, total_j = dynamic_j(gpu, powers), end_s * sum(power.idle_w for power in powers)
    total_j += float(spans_j.sum())
    inside = requests["prefill_start_s"].notna().to_numpy()
    owner, lane = requests["server_id"].to_numpy(int), requests["lane_id"].fillna(-1).to_numpy(int)
    stay = _stay_s(requests, end_s)
    times = gpu[["start_s", "end_s"]].to_numpy(float)
    of_server, of_lane = gpu["server_id"].to_numpy(int), gpu["lane_id"].to_numpy(int)
    for server_id, lane_id in sorted(set(zip(of_server.tolist(), of_lane.tolist(), strict=True))):
        rows = (of_server == server_id) & (of_lane == lane_id)
        members = inside & (owner == server_id) & (lane == lane_id)
        if server_id not in owner:
            members = inside
        energy_j[members] += _shared(times[rows], spans_j[rows], stay[members])
    dynamic = energy_j.sum()
    return requests["arrival_s"].mul(0.0) + (energy_j * (total_j / dynamic) if dynamic > 0 else energy_j)


def _stay_s(requests: "pd.DataFrame", end_s: float) -> FloatArray:
    """Return when each request began and ended to be in its lane, shape (n, 2)."""
    late = (requests["outcome"] == Outcome.LATE).to_numpy()
    stopped_s = (requests["arrival_s"] + requests["deadline_s"]).where(late, end_s)
    left_s = requests["server_last_token_s"].fillna(stopped_s).clip(upper=end_s)
    return np.stack([requests["prefill_start_s"].to_numpy(float), left_s.to_numpy(float)], axis=1)


def _shared(spans_s: FloatArray, spans_j: FloatArray, stay_s: FloatArray) -> FloatArray:
    """Return ∫ power(t)/inside(t) dt over each stay; power = Σ of spans' mean powers; (k, 2), (k,), (n, 2)."""
    instants = np.unique(np.concatenate([spans_s.ravel(), stay_s.ravel()]))
    power_w, inside = np.zeros(len(instants)), np.zeros(len(instants))
    length_s = spans_s[:, 1] - spans_s[:, 0]
    span_w = np.divide(spans_j, length_s, out=np.zeros_like(spans_j), where=length_s > 0)
    for sign, edge in ((1.0, 0), (-1.0, 1)):
        np.add.at(power_w, np.searchsorted(instants, spans_s[:, edge]), sign * span_w)
        np.add.at(inside, np.searchsorted(instants, stay_s[:, edge]), sign)
    power_w, inside = np.cumsum(power_w)[:-1], np.cumsum(inside)[:-1]
    each_w = np.divide(power_w, inside, out=np.zeros_like(power_w), where=inside > 0.5)
    given_j = np.concatenate([[0.0], np.cumsum(each_w * np.diff(instants))])
    place = np.searchsorted(instants, stay_s)
    share: FloatArray = given_j[place[:, 1]] - given_j[place[:, 0]]
    return share
