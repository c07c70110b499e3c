#!/usr/bin/env bash
# gpu_check.sh [--pack] [DIRECTORY]: checks the CUDA side of DIRECTORY (default: build-gpu) on this
# machine's first GPU, in under eight minutes, without network or root, and ends with one table and
# DIRECTORY/gpu_check.json. Builds first where there is no build yet. Exit 1 if a check failed.
#
# --pack, on a machine without a GPU: builds DIRECTORY so that it can be carried to one, without MPI
# and with the libraries that are not the driver's, CUDA's or C's. Copy the repository with it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

pack=no
if [ "${1:-}" = --pack ]; then
  pack=yes
  shift
fi
build=$(realpath -ms "${1:-build-gpu}")
programs=(train bench verify)
tests=(kernel_test parallel_local_test)
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
started=$SECONDS
limit=480

build_all() { # [CMAKE ARGUMENT...]
  local mpi=OFF generator=()
  command -v mpicc >/dev/null && [ $pack = no ] && mpi=ON
  [ -f "$build/CMakeCache.txt" ] || { command -v ninja >/dev/null && generator=(-G Ninja); }
  export PATH=$PATH:/usr/local/cuda/bin
  cmake "${generator[@]}" -B "$build" -S . -DTANDEM_CUDA=ON -DTANDEM_MPI=$mpi "$@" &&
    cmake --build "$build" --parallel "$(nproc)" --target "${programs[@]}" tandem_cuda "${tests[@]}"
}

if [ $pack = yes ]; then
  build_all || exit 1
  for file in "${programs[@]/#/$build/}" "${tests[@]/#/$build/tests/}" "$build"/lib/libtandem.so; do
    ldd "$file" | awk '$3 ~ /^\// { print $3 }'
  done | sort -u | grep -vE '/(libtandem|libc|libm|libdl|libpthread|librt|libcu|libnccl|libnv)[^/]*\.so' |
    xargs cp -Lt "$build/lib"
  echo "packed: $(du -sh "$build" | cut -f1) in $build"
  exit 0
fi

# -- what is here -------------------------------------------------------------------------------
if ! gpu=$(nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader 2>&1 | sed -n 1p) ||
  [ -z "$gpu" ]; then
  echo "gpu_check.sh: no usable GPU here: $gpu" >&2
  exit 1
fi
name=${gpu%%,*}
driver=$(cut -d, -f2 <<<"$gpu" | tr -d ' ')
capability=$(cut -d, -f3 <<<"$gpu" | tr -d ' .')
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
if [ ! -x "$build/train" ] || [ ! -f "$build/lib/libtandem_cuda.so" ]; then
  echo "== build for sm_$capability"
  build_all -DCMAKE_CUDA_ARCHITECTURES="$capability" || exit 1
  started=$SECONDS # a build takes what it takes; the checks have their time
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# -- checks -------------------------------------------------------------------------------------
rows=()
json=()
failed=0

row() { # NAME RESULT DETAIL
  rows+=("$(printf '%-38s %-8s %s' "$1" "$2" "$3")")
  json+=("{\"check\": \"$1\", \"result\": \"$2\", \"detail\": \"${3//\"/\\\"}\"}")
  [ "$2" != FAILED ] || failed=1
}

# Runs a command for at most so many seconds; its output goes to $scratch/NAME.
run() { # NAME SECONDS COMMAND...
  local file=$scratch/$1 most=$2 left=$((limit - SECONDS + started))
  shift 2
  [ "$left" -lt "$most" ] && most=$left
  if [ "$most" -lt 5 ]; then
    echo "no time left" >"$file"
    return 124
  fi
  timeout "$most" "$@" >"$file" 2>&1
}

check() { # NAME SECONDS PATTERN COMMAND...: the row shows the last line that matches
  local what=$1 file=${1// /_} most=$2 pattern=$3
  shift 3
  echo "== $what"
  run "$file" "$most" "$@"
  local code=$?
  local said
  said=$(grep -E "$pattern" "$scratch/$file" | tail -1 | tr -s ' ')
  [[ $said =~ (^|[^0-9])0\ tests ]] && code="0 tests" # filtered to nothing: no GPU was found
  if [ "$code" = 0 ]; then
    row "$what" ok "$said"
  else
    tail -25 "$scratch/$file"
    row "$what" FAILED "exit $code; $(tail -1 "$scratch/$file")"
  fi
}

value() { # FILE KEY: a number of a flat JSON file
  sed -n "s/^ *\"$2\": *\([0-9.eE+-]*\),\{0,1\}\$/\1/p" "$1" | head -1
}

on_gpu=(--set device=cuda --set parallel.comm=local)

check "kernels against the reference" 150 'PASSED|tests ran' \
  "$build/tests/kernel_test" --gtest_filter='*/cuda_*' --gtest_brief=1
check "collectives of one GPU" 60 'PASSED|tests ran' \
  "$build/tests/parallel_local_test" --gtest_filter='*Cuda*' --gtest_brief=1
for ranks in 1 4; do
  check "verify --grid, $ranks rank(s)" 90 '.' "$build/verify" --config tests/tools/grid.yaml --grid \
    --set parallel.dp=$ranks "${on_gpu[@]}"
done

smallest=(--config configs/ffn_tp1_dp1.yaml --set device=cuda --set 'data={format: synthetic, path: null, seq_len: 16}'
  --set 'model={hidden: 32, ffn: 64, layers: 1}' --set 'train={micro_batch: 2, global_batch: 2, eval_every: 0}'
  --set "log.dir=$scratch/runs" --steps 1)
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ]; then
  check "compute-sanitizer memcheck" 60 'ERROR SUMMARY' \
    "$sanitizer" --tool memcheck --error-exitcode 9 "$build/train" "${smallest[@]}"
  check "compute-sanitizer racecheck" 60 'RACECHECK SUMMARY|ERROR SUMMARY' \
    "$sanitizer" --tool racecheck --error-exitcode 9 "$build/train" "${smallest[@]}"
else
  row "compute-sanitizer" absent "not on this machine"
fi

check "roofs" 60 'matmul|copy' "$build/bench" gemm --config configs/gpu_bench.yaml --json "$scratch/roofs.json"
roof=$(value "$scratch/roofs.json" gflops 2>/dev/null)
if [ -n "$roof" ]; then
  row "bf16 matmul [8192, 8192]" measured "$(awk "BEGIN { printf \"%.1f TFLOP/s\", $roof / 1000 }")"
  row "copy in GPU memory" measured "$(awk "BEGIN { printf \"%.0f GB/s\", $(value "$scratch/roofs.json" copy_gb_per_s) }")"
fi

step() { # NAME HIDDEN FFN ACTIVATION TP
  local file=$scratch/step.json
  echo "== step: $1, shard of tp $5"
  rm -f "$file"
  if run "step" 60 "$build/bench" step --config configs/gpu_bench.yaml --json "$file" \
    --set "model={hidden: $2, ffn: $(($3 / $5)), activation: $4}" && [ -s "$file" ]; then
    local rate
    rate=$(value "$file" gflops)
    row "step $1, 1/$5 of ffn" measured "$(awk "BEGIN { printf \"%.1f ms, %.1f TFLOP/s, %.3f of the roof\", \
      $(value "$file" step_ms), $rate / 1000, $rate / ${roof:-$(value "$file" roof_gflops)} }")"
  else
    tail -5 "$scratch/step"
    row "step $1, 1/$5 of ffn" FAILED "$(tail -1 "$scratch/step")"
  fi
}
for tp in 1 2 4 8; do
  step "8192 x 28672 gated" 8192 28672 swiglu $tp
  step "5120 x 20480 gelu" 5120 20480 gelu $tp
done

check "30 steps of training" 60 'loss' "$build/train" --config configs/ffn_tp2_dp2.yaml "${on_gpu[@]}" \
  --set precision=bf16 --set 'data={format: synthetic, path: null}' --set train.eval_every=0 \
  --set "log.dir=$scratch/runs" --steps 30

# -- the end ------------------------------------------------------------------------------------
cuda=$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
echo
echo "$name, driver $driver, CUDA ${cuda:-unknown}, $(date -u +%Y-%m-%d), $((SECONDS - started)) s"
printf '%s\n' "${rows[@]}"
{
  printf '{"gpu": "%s", "driver": "%s", "cuda": "%s", "date": "%s", "seconds": %d, "checks": [\n' \
    "$name" "$driver" "$cuda" "$(date -u +%Y-%m-%d)" "$((SECONDS - started))"
  (IFS=$',\n'; printf '  %s' "${json[0]}"; printf ',\n  %s' "${json[@]:1}")
  printf '\n], "pass": %s}\n' "$([ $failed -eq 0 ] && echo true || echo false)"
} >"$build/gpu_check.json"
echo "written: $build/gpu_check.json"
exit $failed
