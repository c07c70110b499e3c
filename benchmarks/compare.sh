#!/usr/bin/env bash
# compare.sh [OPTION...]: a training step of the stack in configs/bench_ffn.yaml in Tandem and in
# PyTorch, in turn, on this machine, in fp32 and bf16, under tp1 (one and two threads), tp2, dp2 and
# tp2_dp2. PyTorch runs with the fastest of its settings, found in each cell, with glibc as it comes and
# with glibc told to keep its memory. Prints medians, spread and how many times longer. The machine
# must be idle. --python names another Python whose PyTorch joins, --help the rest; docs/benchmarks.md
# says more.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh --programs build >/dev/null
exec python3 benchmarks/compare.py "$@"
