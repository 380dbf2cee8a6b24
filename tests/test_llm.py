"""Sizes, memory and FLOPs of a transformer."""

import pytest

from balancesim import catalog
from balancesim.core.llm import LlmSpec
from balancesim.core.work import decode_pass, pass_flops, prefill_pass, verify_pass

# J = 2, h = 8, 4 heads of 3 (h_q = 12), 2 KV heads (h_kv = 6), f = 16, 3 matrices, 10 tokens
SMALL = LlmSpec("small", 2, 8, 4, 2, 3, 16, 3, 10, False, 1500.0, 1340.0, 64)


def counted_parameters(spec: LlmSpec) -> tuple[int, int]:
    """Return (all, without embeddings, head and positions) counted from the architecture.

    A layer has Q and output projections h·h_q, K and V projections h·h_kv, m matrices h·f and two norms of h. The rest
    is particular: Qwen2.5 has biases on Q, K, V; Qwen3 norms of head_dim on Q and K; Gemma-2 two more norms; OPT biases
    on all projections and norms, and 2,048 + 2 learned positions.
    """
    h, h_q, h_kv, f = spec.hidden, spec.query_width, spec.kv_width, spec.ffn
    layer = 2 * h * h_q + 2 * h * h_kv + spec.ffn_matrices * h * f + 2 * h
    final_norm, positions = h, 0
    if spec.name.startswith("Qwen2.5"):
        layer += h_q + 2 * h_kv
    elif spec.name.startswith("Qwen3"):
        layer += 2 * spec.head_dim
    elif spec.name.startswith("Gemma-2"):
        layer += 2 * h
    elif spec.name.startswith("OPT"):
        layer += (h_q + 2 * h_kv + h) + (f + h) + 2 * h
        final_norm, positions = 2 * h, (2048 + 2) * h
    streamed = spec.layers * layer + final_norm
    return streamed + positions + (1 if spec.tied_embeddings else 2) * h * spec.vocab, streamed


@pytest.mark.parametrize("name", catalog.llm_names())
def test_architecture_gives_the_published_parameters(name: str) -> None:
    """Each row's architecture gives its published parameter count to 0.01 %."""
    spec = catalog.llm(name)
    total, streamed = counted_parameters(spec)
    assert spec.parameters == pytest.approx(total, rel=1e-4)
    assert spec.nonembedding_parameters == pytest.approx(streamed, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "kib"),
    [("Llama-2-7B", 512), ("TinyLlama-1.1B", 22), ("Llama-3.1-8B", 128), ("Qwen2.5-7B", 56), ("Gemma-2-27B", 368)],
)
def test_kv_cache_of_one_token(name: str, kib: float) -> None:
    """KV cache of a token: 2 · layers · KV heads · head_dim · 2 B, e.g. 2·32·32·128·2 = 524,288 B for Llama-2-7B."""
    assert catalog.llm(name).kv_bytes_per_token == kib * 1024


def test_weight_bytes() -> None:
    """Llama-2-7B in fp16 takes 2 B · 6,738,415,616; a pass streams all but the input embeddings."""
    spec = catalog.llm("Llama-2-7B")
    assert spec.weight_bytes == 13_476_831_232
    assert spec.streamed_weight_bytes == 2 * (6_738_415_616 - 32_000 * 4096)


def test_tied_head_is_streamed_once() -> None:
    """With tied embeddings the matrix is the head: a pass streams every parameter (but learned positions)."""
    spec = catalog.llm("Llama-3.2-1B")
    assert spec.streamed_weight_bytes == spec.weight_bytes


def test_flops_of_a_small_model_by_hand() -> None:
    """Per row 2·(4·8·12 + 4·8·6 + 2·3·8·16) = 2,688; per pair 2·4·12 = 96; per head row 2·8·10 = 160."""
    assert SMALL.flops_per_token == 2 * (384 + 192 + 768)
    assert SMALL.flops_per_pair == 96
    assert SMALL.flops_per_head_row == 160


def test_flops_of_passes_by_hand() -> None:
    """Prefill of 5 tokens, one token at context 7, verification of 2 drafts from context 7 on."""
    assert pass_flops(SMALL, prefill_pass(5.0, 25.0, 1.0)) == 5 * 2688 + 25 * 96 + 160
    assert pass_flops(SMALL, decode_pass(1.0, 7.0)) == 2688 + 7 * 96 + 160
    assert pass_flops(SMALL, verify_pass(1.0, 7.0, 2)) == 3 * 2688 + (7 + 8 + 9) * 96 + 3 * 160


def test_prefill_equals_the_papers_formula() -> None:
    """Without the head, prefill of s tokens is J·(4sh·h_q + 4sh·h_kv + 4s²h_q + 2m·s·h·f) (model.md §3)."""
    spec, s = catalog.llm("Llama-2-7B"), 500
    h, f = 4096, 11008
    papers = 32 * (8 * s * h * h + 4 * s * s * h + 6 * s * h * f)
    assert pass_flops(spec, prefill_pass(s, s * s, 1)) == papers + 2 * h * 32_000


def test_two_flops_a_parameter() -> None:
    """A row costs two FLOPs for each weight of the matrix products: norms are what is left out (below 0.01 %)."""
    spec = catalog.llm("Llama-2-7B")
    assert spec.flops_per_token == pytest.approx(2 * spec.nonembedding_parameters, rel=1e-4)


@pytest.mark.parametrize("field", ["layers", "hidden", "kv_heads", "context_tokens"])
def test_sizes_must_be_positive(field: str) -> None:
    """A size below one is refused with model, field and value."""
    with pytest.raises(ValueError, match=f"llm small: {field} must be at least 1, got 0"):
        LlmSpec(**{**_fields(SMALL), field: 0})


def test_bytes_must_be_positive() -> None:
    """A number format of zero bytes is refused."""
    with pytest.raises(ValueError, match="bytes per weight and per KV value must be positive"):
        LlmSpec(**{**_fields(SMALL), "kv_bytes_per_value": 0.0})


def _fields(spec: LlmSpec) -> dict[str, object]:
    return {name: getattr(spec, name) for name in LlmSpec.__dataclass_fields__}


def test_equal_after_derived_values_were_read() -> None:
    """Reading a derived quantity changes neither equality nor hash."""
    one, two = catalog.llm("Llama-2-7B"), catalog.llm("Llama-2-7B")
    assert one.flops_per_token > 0
    assert one == two
    assert hash(one) == hash(two)
