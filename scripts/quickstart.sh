#!/usr/bin/env bash
# quickstart.sh: from a fresh clone to a trained model: installs what is missing, builds, prepares
# the text, and trains on four ranks. What is there already is not made again.
set -euo pipefail
cd "$(dirname "$0")/.."

section() { printf '\n== %s\n\n' "$1"; }

section "1/4 Packages"
scripts/install_deps.sh

section "2/4 Build, in build/"
scripts/build.sh --programs

section "3/4 Text, in data/"
scripts/prepare_text.sh

section "4/4 Training on four ranks: two tensor-parallel, two data-parallel"
echo "mpirun -np 4 build/train --config configs/ffn_tp2_dp2.yaml"
echo
scripts/mpirun.sh 4 build/train --config configs/ffn_tp2_dp2.yaml

section "Next"
cat <<'TEXT'
The same training under other layouts; the losses agree to rounding:
  build/train --config configs/ffn_tp1_dp1.yaml
  scripts/mpirun.sh 4 build/train --config configs/ffn_tp4_dp1.yaml
  scripts/mpirun.sh 4 build/train --config configs/ffn_tp2_dp2.yaml \
      --set name=ffn_dp4 --set parallel.tp=1 --set parallel.dp=4
  tail -n 1 runs/*/metrics.jsonl

Every test:             scripts/test.sh
Every key of a config:  docs/config.md
How the code is built:  docs/architecture.md
TEXT
