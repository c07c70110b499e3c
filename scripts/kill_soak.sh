#!/usr/bin/env bash
# kill_soak.sh [KILLS] [SEED]: kills a run that saves after every step with SIGKILL at KILLS random
# moments, starts it again each time, and compares its metrics with those of a run that was left
# alone. By hand, not in CI: 200 kills take some minutes.
set -euo pipefail
kills=${1:-200}; RANDOM=${2:-1}
train=${TRAIN:-$(cd "$(dirname "$0")/.." && pwd)/build/train}
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >run.yaml <<'YAML'
threads: 1
parallel: {tp: 2, dp: 2}
model: {kind: mlp_lm, vocab_size: 33, context: 4, hidden: 64, ffn: 128, layers: 4, activation: swiglu, dropout: 0.1}
data: {format: synthetic, seq_len: 16}
train: {micro_batch: 2, global_batch: 8, eval_every: 0}
checkpoint: {every: 1}
log: {every: 1000000}
YAML
steps=$((kills * 25))  # more than a run gets through between two kills
"$train" --config run.yaml --set name=whole --set checkpoint.every=0 --steps "$steps" >/dev/null
last=0
for ((i = 1; i <= kills; ++i)); do
  "$train" --config run.yaml --set name=killed --steps "$steps" >out 2>&1 &
  pid=$!
  sleep "0.$(printf %03d $((200 + RANDOM % 600)))"
  kill -KILL "$pid" 2>/dev/null || true
  code=0; wait "$pid" 2>/dev/null || code=$?
  if [ "$code" -ne 137 ]; then
    echo "kill $i: the run ended by itself with exit code $code:"; tail -3 out; exit 1
  fi
  now=$(sed 's/step_0*//' runs/killed/checkpoints/latest 2>/dev/null || echo 0)
  if [ "${now:-0}" -lt "$last" ]; then echo "kill $i: went back from step $last to $now"; exit 1; fi
  last=${now:-0}
done
"$train" --config run.yaml --set name=killed --steps "$steps" >out 2>&1
python3 - <<'PYTHON'
import json, sys
def steps(name):
    lines = map(json.loads, open(f"runs/{name}/metrics.jsonl"))
    return {line["step"]: (line["loss"], line["grad_norm"]) for line in lines if "loss" in line}
whole, killed = steps("whole"), steps("killed")
print(f"{len(killed)} of {len(whole)} steps, all equal: {whole == killed}")
sys.exit(whole != killed)
PYTHON
echo "$kills kills, step $last reached before the last start"
