#!/usr/bin/env bash
# fuzz.sh [INPUTS [TARGET...]]: gives every reader of ours INPUTS (a million) inputs that libFuzzer
# makes up from the seeds in tests/fuzz/corpus, under the address, leak and undefined-behaviour
# sanitizers. What breaks one is left in build-fuzz/findings; mended, it belongs into the corpus, which
# fuzz_corpus_test holds for ever. Needs clang 16 or newer with its libFuzzer and OpenMP (Debian:
# clang-16 libclang-rt-16-dev libomp-16-dev), named by CXX if it is not found.
set -euo pipefail
cd "$(dirname "$0")/.."

inputs=${1:-1000000}
[ $# -eq 0 ] || shift
targets=("$@")
[ $# -gt 0 ] || targets=(config manifest safetensors text llmc megatron npy raw_u16)

if [ -z "${CXX:-}" ]; then
  for version in 16 17 18 19 20; do
    if command -v "clang++-$version" >/dev/null; then CXX=clang++-$version CC=clang-$version; fi
  done
  export CXX=${CXX:-clang++} CC=${CC:-clang}
fi
cmake -G Ninja -B build-fuzz -S . -DTANDEM_FUZZ=ON -DTANDEM_CUDA=OFF -DTANDEM_MPI=OFF \
  -DTANDEM_WERROR=OFF >/dev/null
ninja -C build-fuzz "${targets[@]/#/fuzz_}"

failed=()
for target in "${targets[@]}"; do
  made=build-fuzz/corpus/$target
  mkdir -p "$made" build-fuzz/findings
  seeds=("tests/fuzz/corpus/$target")
  [ "$target" != config ] || seeds+=(configs)
  log=build-fuzz/$target.log
  # 6000 bytes hold a llm.c header, a long config and tokens after them; nothing of that size may ask
  # for 64 MiB.
  if "build-fuzz/fuzz_$target" -runs="$inputs" -max_len=6000 -malloc_limit_mb=64 -timeout=60 -seed=1 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/findings/$target-" \
    "$made" "${seeds[@]}" 2>"$log"; then
    said=passed
  else
    said=FAILED
    failed+=("$target")
  fi
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  covered=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
  printf '%-12s %s  %9s inputs  %6s a second  %s\n' "$target" "$said" "$executed" "$rate" "$covered"
done
if [ ${#failed[@]} -gt 0 ]; then
  for target in "${failed[@]}"; do
    grep -m 1 -E 'ERROR|runtime error|what\(\)|libFuzzer:' "build-fuzz/$target.log" || true
  done
  exit 1
fi
