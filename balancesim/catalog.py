"""Published models, GPUs and acceptance values by name (tables and sources: ``balancesim/data``)."""

import csv
import math
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files

from balancesim.acceptance_rates.published import AcceptanceRecord, acceptance_records, published_rate
from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec

__all__ = [
    "AcceptanceRecord",
    "acceptance_records",
    "gpu",
    "gpu_names",
    "llm",
    "llm_names",
    "nearest_names",
    "published_rate",
]

MIB = 2.0**20

#: Bytes of one number. Formats change bytes only: compute stays at the fp16 peak (weight-only quantisation, values are
#: converted as they are read), and the scales of int8 and int4 groups (below 4 % of the weights) are left out.
BYTES_PER_NUMBER = {"fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}


def llm(name: str, weights: str = "fp16", kv: str = "fp16") -> LlmSpec:
    """Return the model called ``name`` with these number formats of weights and KV cache.

    Raises:
        ValueError: unknown name or format; the message has the nearest names.
    """
    row = _row("model", _models(), name)
    return LlmSpec(
        name=name,
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        kv_heads=int(row["kv_heads"]),
        head_dim=int(row["head_dim"]),
        ffn=int(row["ffn"]),
        ffn_matrices=int(row["ffn_matrices"]),
        vocab=int(row["vocab"]),
        tied_embeddings=row["tied_embeddings"] == "yes",
        parameters=float(row["parameters"]),
        nonembedding_parameters=float(row["nonembedding_parameters"]),
        context_tokens=int(row["context_tokens"]),
        vocab_family=row["vocab_family"],
        weight_bytes_per_parameter=_bytes_per_number("weights", weights),
        kv_bytes_per_value=_bytes_per_number("kv", kv),
    )


def gpu(name: str) -> GpuSpec:
    """Return the GPU called ``name``. What was not measured or published is NaN.

    Raises:
        ValueError: unknown name; the message has the nearest names.
    """
    row = _row("GPU", _gpus(), name)
    return GpuSpec(
        name=name,
        peak_flops=float(row["tflops_fp16"]) * 1e12,
        bandwidth_bytes_s=float(row["bandwidth_gb_s"]) * 1e9,
        memory_bytes=float(row["memory_mib"]) * MIB,
        power_w=_number(row["power_w"]),
        bandwidth_efficiency=_number(row["bandwidth_efficiency"]),
        compute_efficiency=_number(row["compute_efficiency"]),
        pcie_bytes_s=_number(row["pcie_gb_s"]) * 1e9,
        idle_w=_number(row["idle_w"]),
    )


def llm_names() -> tuple[str, ...]:
    """Return the names of all models, in the order of the table."""
    return tuple(_models())


def gpu_names() -> tuple[str, ...]:
    """Return the names of all GPUs, in the order of the table."""
    return tuple(_gpus())


def nearest_names(name: str, choices: tuple[str, ...], count: int = 3) -> tuple[str, ...]:
    """Return the choices most like ``name``, best first; case, spaces and punctuation do not count.

    A choice that begins with the name stands before others ("H100": "H100 SXM"), ties in the order given.
    """
    wanted = _letters(name)

    def likeness(choice: str) -> tuple[bool, float]:
        letters = _letters(choice)
        return letters.startswith(wanted), SequenceMatcher(None, wanted, letters).ratio()

    return tuple(sorted(choices, key=likeness, reverse=True)[:count])


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _row(what: str, table: dict[str, dict[str, str]], name: str) -> dict[str, str]:
    if name not in table:
        nearest, *others = nearest_names(name, tuple(table))
        raise ValueError(f"unknown {what} {name!r}; did you mean {nearest!r}? (also near: {', '.join(others)})")
    return table[name]


def _bytes_per_number(field: str, number_format: str) -> float:
    if number_format not in BYTES_PER_NUMBER:
        choices = ", ".join(BYTES_PER_NUMBER)
        raise ValueError(f"{field} must be one of {choices}, got {number_format!r}")
    return BYTES_PER_NUMBER[number_format]


def _number(text: str) -> float:
    return float(text) if text else math.nan


def _read(file: str) -> list[dict[str, str]]:
    text = (files("balancesim") / "data" / file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def _models() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in _read("models.csv")}


@cache
def _gpus() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in _read("gpus.csv")}
