#!/usr/bin/env bash
# perf_guard.sh [--update]: counts what a training step costs and holds it against
# benchmarks/perf_budget.json: instructions, those that copy or clear memory, allocations and matrix
# products (by valgrind's callgrind, in fp32, bf16 and swiglu), collectives and their bytes. No count
# depends on how busy the machine is. It is also the ctest `perf_guard`. --update writes the budget anew.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v valgrind >/dev/null; then
  echo "perf_guard.sh: no valgrind here; scripts/install_deps.sh installs it" >&2
  exit 1
fi
[ -f build/CMakeCache.txt ] || scripts/build.sh --programs build
cmake --build build --parallel "$(nproc)" --target count_steps >/dev/null
exec python3 benchmarks/perf_guard.py build/tests/count_steps "$@"
