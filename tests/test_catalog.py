"""The tables of models, GPUs and acceptance values."""

import math

import pytest

from balancesim import catalog
from balancesim.core.speculation import expected_tokens_per_round


@pytest.mark.parametrize("name", catalog.llm_names())
def test_every_model_builds(name: str) -> None:
    """Every listed model builds under its own name and shares its vocabulary size's family."""
    spec = catalog.llm(name)
    assert spec.name == name
    assert 0 < spec.nonembedding_parameters < spec.parameters
    families = {"llama-2": 32000, "llama-3": 128256, "qwen": 151936, "opt": 50272, "gemma-2": 256000}
    padded = {"qwen": 152064}
    assert spec.vocab in (families[spec.vocab_family], padded.get(spec.vocab_family))


@pytest.mark.parametrize("name", catalog.gpu_names())
def test_every_gpu_builds(name: str) -> None:
    """Every listed GPU builds; measured efficiencies are shares, and both or neither are known."""
    spec = catalog.gpu(name)
    assert spec.name == name
    shares = (spec.bandwidth_efficiency, spec.compute_efficiency)
    assert all(math.isnan(share) for share in shares) or all(0 < share <= 1 for share in shares)
    assert spec.power_w > 0


def test_names_are_unique() -> None:
    """No name occurs twice in a table (a later row would hide an earlier one)."""
    for file in ("models.csv", "gpus.csv"):
        names = [row["name"] for row in catalog._read(file)]
        assert len(set(names)) == len(names)


def test_two_names_of_one_architecture() -> None:
    """Llama-2-7B and Vicuna-7B are one architecture; Llama-3-8B and Llama-3.1-8B differ in context only."""
    llama, vicuna = catalog.llm("Llama-2-7B"), catalog.llm("Vicuna-7B")
    assert (vicuna.layers, vicuna.hidden, vicuna.ffn, vicuna.vocab) == (llama.layers, llama.hidden, llama.ffn, 32000)
    assert catalog.llm("Llama-3-8B").parameters == catalog.llm("Llama-3.1-8B").parameters
    assert (catalog.llm("Llama-3-8B").context_tokens, catalog.llm("Llama-3.1-8B").context_tokens) == (8192, 131072)


def test_rtx_4090_data_sheet() -> None:
    """The RTX 4090 has 165.2 TFLOPS, 1,008 GB/s, 24 GiB, PCIe 4.0 x16, and its measured efficiencies."""
    spec = catalog.gpu("RTX 4090")
    assert (spec.peak_flops, spec.bandwidth_bytes_s, spec.memory_bytes) == (165.2e12, 1008e9, 24 * 2**30)
    assert (spec.bandwidth_efficiency, spec.compute_efficiency, spec.pcie_bytes_s) == (0.90, 0.95, 32e9)


def test_unknown_efficiency_is_nan() -> None:
    """What was not measured is NaN, not a guess; a Jetson has no PCIe copy."""
    spec = catalog.gpu("Jetson AGX Orin 64GB")
    assert math.isnan(spec.bandwidth_efficiency)
    assert math.isnan(spec.pcie_bytes_s)


@pytest.mark.parametrize(
    ("number_format", "expected_bytes"), [("fp16", 2.0), ("fp8", 1.0), ("int8", 1.0), ("int4", 0.5)]
)
def test_number_formats_change_bytes_only(number_format: str, expected_bytes: float) -> None:
    """A number format scales weight and KV bytes and leaves FLOPs alone."""
    plain, spec = catalog.llm("Llama-2-7B"), catalog.llm("Llama-2-7B", weights=number_format, kv=number_format)
    assert expected_bytes * 6_738_415_616 == spec.weight_bytes
    assert expected_bytes * 262_144 == spec.kv_bytes_per_token
    assert plain.flops_per_token == spec.flops_per_token


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("llama2-7b", "Llama-2-7B"),
        ("vicuna", "Vicuna-7B"),
        ("qwen3 8B", "Qwen3-8B"),
        ("tinyllama", "TinyLlama-1.1B"),
        ("Llama-3.1 8B", "Llama-3.1-8B"),
    ],
)
def test_unknown_model_names_the_nearest(wrong: str, right: str) -> None:
    """An unknown model is one line with the nearest name."""
    with pytest.raises(ValueError, match=f"unknown model '{wrong}'; did you mean '{right}'") as caught:
        catalog.llm(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "right"), [("RTX4090", "RTX 4090"), ("rtx 3090", "RTX 3090"), ("H100", "H100 SXM"), ("l40", "L40S")]
)
def test_unknown_gpu_names_the_nearest(wrong: str, right: str) -> None:
    """An unknown GPU is one line with the nearest name."""
    with pytest.raises(ValueError, match=f"unknown GPU '{wrong}'; did you mean '{right}'"):
        catalog.gpu(wrong)


def test_unknown_number_format() -> None:
    """An unknown number format names the field, the choices and the value."""
    with pytest.raises(ValueError, match="kv must be one of fp16, fp8, int8, int4, got 'fp4'"):
        catalog.llm("Llama-2-7B", kv="fp4")


def test_acceptance_records_are_possible() -> None:
    """Every published value is a rate in (0, 1) or a mean of at least one token and, for chains, at most γ + 1."""
    records = catalog.acceptance_records()
    assert len(records) == 114
    for record in records:
        assert record.source
        assert record.method in ("chain", "tree", "n-gram")
        assert not (math.isnan(record.acceptance_rate) and math.isnan(record.tokens_per_round))
        assert math.isnan(record.acceptance_rate) or 0 < record.acceptance_rate < 1
        longest = math.inf if record.draft_length is None else record.draft_length + 1
        assert math.isnan(record.tokens_per_round) or 1 <= record.tokens_per_round <= longest


def test_acceptance_record_that_gives_both_values() -> None:
    """EAGLE on MT-bench: α = 0.73 and 10 drafts give (1 − 0.73^11)/0.27 = 3.588 tokens a round, published: 3.64."""
    both = [r for r in catalog.acceptance_records() if r.task == "MT-bench" and r.draft_length == 10]
    assert [(r.acceptance_rate, r.tokens_per_round) for r in both] == [(0.73, 3.64)]
    assert expected_tokens_per_round(0.73, 10) == pytest.approx((1 - 0.73**11) / 0.27)
    assert expected_tokens_per_round(0.73, 10) == pytest.approx(3.64, rel=0.02)
