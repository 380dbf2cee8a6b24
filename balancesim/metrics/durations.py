"""Durations of a request, defined once by its timestamps (docs/metrics.md has the symbols).

    server_ttft = t_s1 − t_arr          user_ttft = t_u1 − t_arr          e2e = t_un − t_arr
    tpot = (t_sn − t_s1) / (tokens_out − 1),  null for one token

    e2e = upload + wait + prefill + decode + downlink:
    upload  = t_ue − t_us                       prefill  = t_s1 − t_pf
    wait    = (t_us − t_arr) + (t_pf − t_ue)    decode   = t_sn − t_s1      downlink = t_un − t_sn

A duration is null (NaN) when one of its timestamps is. The five parts are what the user waits for, not GPU time:
prefill and decode contain the slices that the other lanes had meanwhile. The downlink of a static batch contains the
wait for the end of the batch.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class Phase(StrEnum):
    """A part of the time between a request's arrival and its whole answer, in order."""

    UPLOAD = "upload"
    WAIT = "wait"
    PREFILL = "prefill"
    DECODE = "decode"
    DOWNLINK = "downlink"


def server_ttft_s(requests: "pd.DataFrame") -> "pd.Series[float]":
    """Return arrival to first token at the server, in seconds."""
    return requests["server_first_token_s"] - requests["arrival_s"]


def user_ttft_s(requests: "pd.DataFrame") -> "pd.Series[float]":
    """Return arrival to first token at the user, in seconds."""
    return requests["user_first_token_s"] - requests["arrival_s"]


def e2e_s(requests: "pd.DataFrame") -> "pd.Series[float]":
    """Return arrival to the whole answer at the user, in seconds."""
    return requests["user_last_token_s"] - requests["arrival_s"]


def tpot_s(requests: "pd.DataFrame") -> "pd.Series[float]":
    """Return the mean time between tokens at the server, in seconds; null for answers of one token."""
    gaps = requests["tokens_out"] - 1
    decode_s = requests["server_last_token_s"] - requests["server_first_token_s"]
    return decode_s / gaps.where(gaps > 0)


def phase_s(requests: "pd.DataFrame", phase: Phase) -> "pd.Series[float]":
    """Return the time that each request spent in a phase, in seconds."""
    r = requests
    match phase:
        case Phase.UPLOAD:
            return r["upload_end_s"] - r["upload_start_s"]
        case Phase.WAIT:
            return (r["upload_start_s"] - r["arrival_s"]) + (r["prefill_start_s"] - r["upload_end_s"])
        case Phase.PREFILL:
            return r["server_first_token_s"] - r["prefill_start_s"]
        case Phase.DECODE:
            return r["server_last_token_s"] - r["server_first_token_s"]
        case Phase.DOWNLINK:
            return r["user_last_token_s"] - r["server_last_token_s"]
