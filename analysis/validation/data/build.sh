#!/bin/sh
# Builds the tables that only the validation needs: sh analysis/validation/data/build.sh DIRECTORY
# (files and licences as in balancesim/data/profiles/SOURCES.md).
set -eu
from=$1
to=$(dirname "$0")
convert="${PYTHON:-python} -m balancesim.profile_formats"
aic=$from/aiconfigurator
gemm=aiconfigurator:$aic/a100_sxm/vllm-0.14.0_gemm_perf.parquet
a800=vidur:$from/frontier/a800/Llama-2-7b-hf_attention.csv.gz

for pair in Vicuna-13B:1.25 Vicuna-33B:1.625; do # heads / 32
  model=${pair%%:*}
  heads=${pair#*:}
  $convert --model "$model" --measured-model Llama-2-7B --out "$to/a100-80-sxm__$model.csv" \
    --dense "$gemm" --elementwise "vidur:$from/vidur/a100/Llama-2-7b-hf_mlp.csv.gz" --head "$gemm" \
    --decode "$a800*$heads" --prefill "$a800*$heads" \
    --note "gpu: A100-80 SXM" --note "dense, head: aiconfigurator products (Apache-2.0) + Vidur elementwise (MIT)" \
    --note "attention: Frontier A800 Llama-2-7B (MIT) times heads/32 = $heads"
done

h100=$aic/h100_sxm/vllm-0.14.0
$convert --model Llama-3-70B --tensor-parallel 4 --link-gb-s 450 --out "$to/h100-sxm-tp4__Llama-3-70B.csv" \
  --dense "vidur:$from/vidur/h100/Llama-2-70b-hf_mlp.csv.gz" --head "aiconfigurator:${h100}_gemm_perf.parquet" \
  --decode "aiconfigurator:${h100}_generation_attention_perf.parquet" \
  --prefill "aiconfigurator:${h100}_context_attention_perf.parquet" \
  --note "gpu: 4 x H100 SXM, tensor parallel" --note "dense: Vidur Llama-2-70B at TP 4 (MIT), all-reduces derived (450 GB/s, 10 us)" \
  --note "attention, head: aiconfigurator (Apache-2.0)"
