"""A tiny scenario in a folder of its own, and what loading a changed one says."""

from pathlib import Path

import pytest

from balancesim.scenario import ScenarioError, load
from balancesim.scenario.settings import Scenario

#: Two cells with a server each, some forty short requests: a run takes a fraction of a second.
TINY = """
description = "Two cells, a few requests"
[run]
horizon_s = 10
warmup_s = 1
replications = 2
policies = ["balance", "ad_only", "sd_only"]
[requests]
arrivals = {kind = "poisson", rate_hz = 4.0}
lengths = {kind = "fixed", prompt_tokens = 100, output_tokens = 20}
deadline = {kind = "fixed", deadline_s = 4}
acceptance_rate = {kind = "fixed", acceptance_rate = 0.8}
[radio]
carrier_ghz = 3.5
channel = {kind = "fixed", loss_db = 100}
shadowing = false
fading = "none"
coherence_ms = 10
rate = "shannon"
bits_per_token = 32
[radio.uplink]
bandwidth_mhz = 1
sharing = "per_request"
power_dbm = 23
noise_figure_db = 5
[radio.downlink]
bandwidth_mhz = 2
sharing = "per_request"
power_dbm = 43
noise_figure_db = 9
delivery = "at_end"
[network]
cells = 2
radius_m = 250
users_per_cell = 10
servers = "per_cell"
backhaul_ms = 1
[server]
gpu = "RTX 4090"
target = "Llama-2-7B"
draft = "TinyLlama-1.1B"
weights = "fp16"
kv = "fp16"
utilisation = 0.9
reserve_gib = 1
law = {kind = "roofline", launch_s = 0.0001}
draft_law = {kind = "roofline", launch_s = 0.0001}
draft_length = 4
[scheduling]
discipline = "continuous"
epoch_ms = 100
slice_ms = 20
switch_ms = 0.1
"""


def write(folder: Path, text: str = TINY, name: str = "tiny") -> Path:
    """Write a scenario file and return its path."""
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def changed(folder: Path, *overrides: str) -> Scenario:
    """Return the tiny scenario with overrides."""
    return load(write(folder), overrides)


def complaints(folder: Path, *overrides: str) -> list[str]:
    """Return what loading the tiny scenario with overrides complains about, without the origin of the key."""
    with pytest.raises(ScenarioError) as caught:
        changed(folder, *overrides)
    return [line.partition(": ")[2] for line in caught.value.lines]
