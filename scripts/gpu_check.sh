#!/usr/bin/env bash
# gpu_check.sh [--pack] [DIRECTORY]: checks the CUDA side of DIRECTORY (default: build-gpu) on this
# machine's first GPU (of those in CUDA_VISIBLE_DEVICES, if it is set), in under eight minutes (the
# time limits of the checks add up to less), without network or root. Prints a line for each check, and at the end all of them as one table and
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
# The caller's GPUs, or all: the first for the checks of one GPU, the first two for NCCL.
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES"
else
  mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null)
fi
export CUDA_VISIBLE_DEVICES=${gpus[0]:-0}
if ! gpu=$(nvidia-smi -i "$CUDA_VISIBLE_DEVICES" --query-gpu=name,driver_version,compute_cap \
  --format=csv,noheader 2>&1) || [ -z "$gpu" ]; then
  echo "gpu_check.sh: no usable GPU here: $gpu" >&2
  exit 1
fi
IFS=, read -r name driver capability <<<"$gpu"
driver=${driver# } capability=${capability//[ .]/}
if [ ! -x "$build/train" ] || [ ! -f "$build/lib/libtandem_cuda.so" ]; then
  echo "== build for sm_$capability"
  build_all -DCMAKE_CUDA_ARCHITECTURES="$capability" || exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
started=$SECONDS # a build takes what it takes; the checks have their time

# -- checks -------------------------------------------------------------------------------------
rows=()
json=()
failed=0

json_string() { # TEXT: as a JSON string; control characters become spaces
  local text
  text=$(printf '%s' "$1" | LC_ALL=C tr '\000-\037\177' ' ')
  text=${text//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

row() { # NAME RESULT DETAIL
  rows+=("$(printf '%-38s %-8s %s' "$1" "$2" "$3")")
  printf '%s\n' "${rows[-1]}"
  json+=("{\"check\": $(json_string "$1"), \"result\": $(json_string "$2"), \"detail\": $(json_string "$3")}")
  [ "$2" != FAILED ] || failed=1
}

failure() { # NAME CODE FILE: shows the end of the output
  tail -25 "$3"
  row "$1" FAILED "exit $2; $(tail -1 "$3")"
}

# SECONDS COMMAND...: a program that hangs does not end when it is asked to; it has two more.
limited() { timeout --kill-after=2 "$@"; }

# Runs a command for at most so many seconds; the row shows the last line of its output that matches.
check() { # NAME SECONDS PATTERN COMMAND...
  local what=$1 most=$2 pattern=$3 file=$scratch/output code said
  shift 3
  limited "$most" "$@" >"$file" 2>&1
  code=$?
  said=$(grep -E "$pattern" "$file" | tail -1 | tr -s ' ')
  [[ $said =~ (^|[^0-9])0\ tests ]] && code="0 tests" # filtered to nothing: no GPU was found
  if [ "$code" = 0 ]; then
    row "$what" ok "$said"
  else
    failure "$what" "$code" "$file"
  fi
}

value() { # FILE KEY: a number of a flat JSON file
  sed -n "s/^ *\"$2\": *\([0-9.eE+-]*\),\{0,1\}\$/\1/p" "$1" | head -1
}

on_gpu=(--set device=cuda --set parallel.comm=local)

check "kernels against the reference" 65 'PASSED|tests ran' \
  "$build/tests/kernel_test" --gtest_filter='*/cuda_*' --gtest_brief=1
check "collectives of one GPU" 20 'PASSED|tests ran' \
  "$build/tests/parallel_local_test" --gtest_filter='*Cuda*' --gtest_brief=1
verify=("$build/verify" --config tests/tools/grid.yaml --grid "${on_gpu[@]}")
check "verify --grid, 1 rank" 20 '.' "${verify[@]}" --set parallel.dp=1
check "verify --grid, 4 ranks" 30 '.' "${verify[@]}" --set parallel.dp=4

smallest=(--config configs/ffn_tp1_dp1.yaml --set device=cuda --set 'data={format: synthetic, path: null, seq_len: 16}'
  --set 'model={hidden: 32, ffn: 64, layers: 1}' --set 'train={micro_batch: 2, global_batch: 2, eval_every: 0}'
  --set "log.dir=$scratch/runs" --steps 1)
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for tool in memcheck racecheck; do
  if [ -n "$sanitizer" ]; then
    check "compute-sanitizer $tool" 40 'SUMMARY' \
      "$sanitizer" --tool $tool --error-exitcode 9 "$build/train" "${smallest[@]}"
  else
    row "compute-sanitizer $tool" absent "not on this machine"
  fi
done

check "roofs" 20 'matmul|copy' "$build/bench" gemm --config configs/gpu_bench.yaml --json "$scratch/roofs.json"
roof=$(value "$scratch/roofs.json" gflops 2>/dev/null)
if [ -n "$roof" ]; then
  row "bf16 matmul [8192, 8192]" measured "$(awk "BEGIN { printf \"%.1f TFLOP/s\", $roof / 1000 }")"
  row "copy in GPU memory" measured "$(awk "BEGIN { printf \"%.0f GB/s\", $(value "$scratch/roofs.json" copy_gb_per_s) }")"
fi

step() { # NAME HIDDEN FFN ACTIVATION TP SECONDS
  local what="step $1, 1/$5 of ffn" file=$scratch/step.json output=$scratch/output code
  rm -f "$file"
  limited "$6" "$build/bench" step --config configs/gpu_bench.yaml --json "$file" \
    --set "model={hidden: $2, ffn: $(($3 / $5)), activation: $4}" >"$output" 2>&1
  code=$?
  if [ $code = 0 ] && [ -s "$file" ]; then
    row "$what" measured "$(awk "BEGIN { printf \"%.1f ms, %.1f TFLOP/s, %.3f of the roof\", \
      $(value "$file" step_ms), $(value "$file" gflops) / 1000, \
      $(value "$file" gflops) / ${roof:-$(value "$file" roof_gflops)} }")"
  else
    failure "$what" $code "$output"
  fi
}
for shard in "1 28" "2 22" "4 14" "8 12"; do
  read -r tp most <<<"$shard"
  step "8192 x 28672 gated" 8192 28672 swiglu "$tp" "$most"
  step "5120 x 20480 gelu" 5120 20480 gelu "$tp" "$most"
done

run=(--set 'data={format: synthetic, path: null}' --set precision=bf16 --set train.eval_every=0
  --set "log.dir=$scratch/runs" --set device=cuda --steps 30)
check "30 steps of training, 4 ranks" 25 'loss' "$build/train" --config configs/ffn_tp2_dp2.yaml "${run[@]}" \
  --set parallel.comm=local
if [ ${#gpus[@]} -gt 1 ]; then
  check "30 steps of training, NCCL, 2 GPUs" 25 'loss' env "CUDA_VISIBLE_DEVICES=${gpus[0]},${gpus[1]}" \
    "$build/train" --config configs/ffn_tp2_dp1.yaml "${run[@]}" --set parallel.comm=nccl
else
  row "30 steps of training, NCCL, 2 GPUs" absent "one GPU here"
fi

# -- the end ------------------------------------------------------------------------------------
cuda=$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
today=$(date -u +%Y-%m-%d)
seconds=$((SECONDS - started))
echo
echo "$name, driver $driver, CUDA ${cuda:-unknown}, $today, $seconds s"
printf '%s\n' "${rows[@]}"
{
  printf '{"gpu": %s, "driver": %s, "cuda": %s, "date": "%s", "seconds": %d, "checks": [\n' \
    "$(json_string "$name")" "$(json_string "$driver")" "$(json_string "$cuda")" "$today" "$seconds"
  printf '  %s' "${json[0]}"
  printf ',\n  %s' "${json[@]:1}"
  printf '\n], "pass": %s}\n' "$([ $failed -eq 0 ] && echo true || echo false)"
} >"$build/gpu_check.json"
echo "written: $build/gpu_check.json"
exit $failed
