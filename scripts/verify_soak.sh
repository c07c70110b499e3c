#!/usr/bin/env bash
# verify_soak.sh [RUNS] [SEED]: runs build/verify (or $VERIFY) on RUNS right layouts drawn at random,
# over layouts, shapes (odd ones too), precisions, ZeRO, wire types and options, and prints every one it refuses. A
# refusal is a false alarm, or a bug. Not part of the tests: 500 runs take some minutes.
set -euo pipefail
runs=${1:-500}; RANDOM=${2:-1}  # the same runs for the same seed
verify=${VERIFY:-build/verify}
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT

refused=0
for ((i = 1; i <= runs; ++i)); do
  a=($RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM)
  layouts=("1 2" "2 1" "2 2" "4 1" "1 4" "4 2" "2 4" "3 1" "3 2" "8 1")
  read -r tp dp <<<"${layouts[a[0] % 10]}"
  micro=$((1 + a[1] % 3)); accumulation=$((1 + a[2] % 3))
  activations=(gelu swiglu relu); norms=(layernorm rmsnorm); precisions=(fp32 fp32 bf16 fp16); flags=(true false)
  kinds=(mlp_lm mlp_lm mlp_lm ffn); optimizers=(adamw adamw sgd); dropouts=(0.0 0.0 0.1 0.3)
  kind=${kinds[a[3] % 4]}
  model="kind: $kind, hidden: $((5 + a[4] % 28)), ffn: $((tp * (1 + a[5] % 16))), layers: $((1 + a[6] % 3))"
  model+=", activation: ${activations[a[7] % 3]}, norm: ${norms[a[8] % 2]}, bias: ${flags[a[9] % 2]}"
  model+=", dropout: ${dropouts[a[10] % 4]}"
  [ "$kind" = ffn ] || model+=", vocab_size: $((11 + a[11] % 60)), context: $((1 + a[0] % 5))"
  sp=false; [ "$tp" -gt 1 ] && sp=${flags[RANDOM % 2]}
  seq_len=$((4 + RANDOM % 45)); [ "$sp" = false ] || seq_len=$(((seq_len + tp - 1) / tp * tp))
  zero=0; wire=fp32
  [ "$dp" = 1 ] || { zero=$((RANDOM % 2)); wires=(fp32 fp32 bf16); wire=${wires[RANDOM % 3]}; }
  cat >"$folder/run.yaml" <<YAML
seed: $i
threads: 1
precision: ${precisions[RANDOM % 4]}
parallel: {tp: $tp, dp: $dp, sequence_parallel: $sp, zero: $zero, grad_dtype: $wire}
model: {$model}
data: {format: synthetic, seq_len: $seq_len}
train: {micro_batch: $micro, global_batch: $((micro * accumulation * dp)), eval_every: 0, clip_grad_norm: $((RANDOM % 2)).$((RANDOM % 10))}
optim: {kind: ${optimizers[RANDOM % 3]}, lr: 0.00$((1 + RANDOM % 9))}
YAML
  code=0; "$verify" --config "$folder/run.yaml" --steps $((1 + RANDOM % 3)) >"$folder/out" 2>&1 || code=$?
  if [ "$code" -ne 0 ]; then
    refused=$((refused + 1))
    echo "run $i: exit $code"; cat "$folder/run.yaml"; grep -E "FAILS|NOT|error" -A1 "$folder/out" | head -20 || true
  fi
done
echo "$refused of $runs refused"
[ "$refused" -eq 0 ]
