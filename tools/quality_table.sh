#!/bin/bash
# What q4_k_m costs: perplexity of q4_k_m and of bf16, their KL divergence and how often both choose the same token, for
# the checkpoints in tests/data/models (over their own reference texts) and for the shipped model (over its validation
# text; its bf16 side needs the original weights, from DOPPLER_REFERENCE or beside the project).
#   tools/quality_table.sh [build/doppler]
set -e
cd "$(dirname "$0")/.."
doppler=${1:-build/doppler}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
row() {  # NAME MODEL-Q4 MODEL-BF16 IDS WINDOW
  local q4 full
  q4=$("$doppler" perplexity "$2" --ids "$4" --window "$5" --against "$3" --backend cpu --json 2>/dev/null)
  full=$("$doppler" perplexity "$3" --ids "$4" --window "$5" --backend cpu --json 2>/dev/null)
  python3 - "$1" "$q4" "$full" <<'P'
import json, sys
name, q4, full = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
print(f"| {name} | {full['perplexity']:.4f} | {q4['perplexity']:.4f} | {q4['against']['kl']:.4f} | "
      f"{100 * q4['against']['top1_agreement']:.1f} % | {q4['tokens']} |")
P
}
printf '| model | perplexity, bf16 | perplexity, q4_k_m | KL, nats a token | same first choice | tokens |\n'
printf '| --- | --- | --- | --- | --- | --- |\n'
original=${DOPPLER_REFERENCE:-../shared/reference}/models/tiny
if [ -d "$original" ]; then
  "$doppler" convert "$original" "$folder/tiny" --quant bf16 >/dev/null 2>&1
  row tiny models/tiny "$folder/tiny" tests/data/tiny/val_tokens.npy 512
fi
for source in tests/data/models/*/; do
  name=$(basename "$source")
  for quant in q4_k_m bf16; do
    "$doppler" convert "$source" "$folder/$name-$quant" --quant $quant --no-tokenizer >/dev/null 2>&1
  done
  row "$name (random weights)" "$folder/$name-q4_k_m" "$folder/$name-bf16" "$source/reference.json" 8192
done
