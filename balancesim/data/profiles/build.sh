#!/bin/sh
# Builds the canonical tables from the published files: sh balancesim/data/profiles/build.sh DIRECTORY
# DIRECTORY holds vidur/, frontier/, llmservingsim/ and aiconfigurator/ as laid out in SOURCES.md.
set -eu
from=$1
to=$(dirname "$0")
convert="${PYTHON:-python} -m balancesim.profile_formats"
aic=$from/aiconfigurator
context=vllm-0.14.0_context_attention_perf.parquet
generation=vllm-0.14.0_generation_attention_perf.parquet
gemm=vllm-0.14.0_gemm_perf.parquet
engine=0.001207 # s a step: vLLM 0.10.1 on an H100 host, arXiv 2601.11580
engine_note="overhead: 1.207 ms a step, vLLM 0.10.1 on an H100 host (arXiv 2601.11580, SpecDecode-Bench/simulator)"
vidur="dense: Vidur *_mlp.csv (MIT, microsoft/vidur)"
attention="attention, head: aiconfigurator, vLLM 0.14.0 kernels (Apache-2.0, ai-dynamo/aiconfigurator)"
frontier="attention: Frontier, A800 (MIT, NetX-lab/Frontier)"
a800=$from/frontier/a800

$convert --model Llama-2-7B --out "$to/h100-sxm__llama-2-7b.csv" --overhead-s $engine \
  --dense "vidur:$from/vidur/h100/Llama-2-7b-hf_mlp.csv.gz" --head "aiconfigurator:$aic/h100_sxm/$gemm" \
  --decode "aiconfigurator:$aic/h100_sxm/$generation" --prefill "aiconfigurator:$aic/h100_sxm/$context" \
  --note "gpu: H100 SXM" --note "$vidur" --note "$attention" --note "$engine_note"

$convert --model Llama-3-8B --measured-model Llama-2-7B --out "$to/h100-sxm__llama-3-8b.csv" --overhead-s $engine \
  --dense "aiconfigurator:$aic/h100_sxm/$gemm" --elementwise "vidur:$from/vidur/h100/Llama-2-7b-hf_mlp.csv.gz" \
  --head "aiconfigurator:$aic/h100_sxm/$gemm" \
  --decode "aiconfigurator:$aic/h100_sxm/$generation" --prefill "aiconfigurator:$aic/h100_sxm/$context" \
  --note "gpu: H100 SXM" --note "dense: products from aiconfigurator, elementwise operators from Vidur H100 Llama-2-7B" \
  --note "$attention" --note "$engine_note"

a100="--head aiconfigurator:$aic/a100_sxm/$gemm"
for card in "a100-80-sxm:" "a100-40-sxm:--bandwidth-ratio 1.3112540192926045"; do
  name=${card%%:*}
  scale=${card#*:}
  rule="gpu: A100-80 SXM"
  [ -z "$scale" ] || rule="gpu: A100-40 SXM, all derived from A100-80 SXM with bandwidth 1,555 for 2,039 GB/s (rescale.py)"
  # shellcheck disable=SC2086 # options are split on purpose
  $convert --model Llama-2-7B --out "$to/${name}__llama-2-7b.csv" --overhead-s $engine $scale $a100 \
    --dense "vidur:$from/vidur/a100/Llama-2-7b-hf_mlp.csv.gz" \
    --decode "vidur:$a800/Llama-2-7b-hf_attention.csv.gz" --prefill "vidur:$a800/Llama-2-7b-hf_attention.csv.gz" \
    --note "$rule" --note "$vidur" --note "$frontier: same compute and memory as the A100-80" --note "head: aiconfigurator" \
    --note "$engine_note"
  # shellcheck disable=SC2086
  $convert --model Llama-3-8B --out "$to/${name}__llama-3-8b.csv" --overhead-s $engine $scale $a100 \
    --dense "vidur:$from/vidur/a100/Meta-Llama-3-8B_mlp.csv.gz" \
    --decode "aiconfigurator:$aic/a100_sxm/$generation" --prefill "aiconfigurator:$aic/a100_sxm/$context" \
    --note "$rule" --note "$vidur" --note "$attention" --note "$engine_note"
done

$convert --model Llama-2-7B --out "$to/a800__llama-2-7b.csv" --overhead-s $engine $a100 \
  --dense "vidur:$a800/Llama-2-7b-hf_mlp.csv.gz" \
  --decode "vidur:$a800/Llama-2-7b-hf_attention.csv.gz" --prefill "vidur:$a800/Llama-2-7b-hf_attention.csv.gz" \
  --note "gpu: A800-80" --note "dense, $frontier" --note "head: aiconfigurator A100-80 SXM (same compute and memory)" \
  --note "$engine_note"

# A40 against A800: bandwidth 2039/696 = 2.93, compute 312/149.7 = 2.084
$convert --model Llama-2-7B --out "$to/a40__llama-2-7b.csv" --overhead-s $engine \
  --dense "vidur:$from/vidur/a40/Llama-2-7b-hf_mlp.csv.gz" --head "aiconfigurator:$aic/a100_sxm/$gemm*2.93" \
  --decode "vidur:$a800/Llama-2-7b-hf_attention.csv.gz*2.93" \
  --prefill "vidur:$a800/Llama-2-7b-hf_attention.csv.gz*2.084" \
  --note "gpu: A40" --note "$vidur" --note "attention, head: derived from A800 and A100 by bandwidth 2.93, prefill by compute 2.084" \
  --note "$engine_note"

rtx4090=$from/llmservingsim/RTX4090_Llama-3.1-8B
$convert --model Llama-3.1-8B --out "$to/rtx-4090__llama-3.1-8b.csv" --overhead-s $engine \
  --dense "llmservingsim:$rtx4090/profile_tp1_dense.csv" --head "llmservingsim:$rtx4090/profile_tp1_per_sequence.csv" \
  --decode "llmservingsim:$rtx4090/profile_tp1_attention.csv" --prefill "llmservingsim:$rtx4090/profile_tp1_attention.csv" \
  --note "gpu: RTX 4090" --note "LLMServingSim, bf16, vLLM 0.19.0 (MIT, casys-kaist/LLMServingSim)" --note "$engine_note"

# RTX 3090: an older profile of Llama-3.1-8B; products rescaled by their sizes; decode attention from the A800 by
# bandwidth 2039/936 = 2.178
rtx3090=$from/llmservingsim/RTX3090_Llama-3.1-8B/v0_tp1_layers.csv.gz
$convert --model Llama-2-7B --measured-model Llama-3.1-8B --out "$to/rtx-3090__llama-2-7b.csv" --overhead-s $engine \
  --dense "llmservingsim:$rtx3090" --head "llmservingsim:$rtx3090" --prefill "llmservingsim:$rtx3090" \
  --decode "vidur:$a800/Llama-2-7b-hf_attention.csv.gz*2.178" \
  --note "gpu: RTX 3090" --note "LLMServingSim v0 profile of Llama-3.1-8B, products rescaled by their sizes (MIT)" \
  --note "decode attention: Frontier A800, scaled by bandwidth 2.178" --note "$engine_note"
