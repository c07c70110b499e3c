#!/usr/bin/env bash
# test.sh [--sanitize address|thread] [CTEST ARGUMENT...]: builds and runs every test. Sanitizers
# build in directories of their own. Under `thread` only tests whose ranks are threads run, with one
# OpenMP thread each: neither MPI nor libgomp tells ThreadSanitizer how it synchronises.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=
if [ "${1:-}" = --sanitize ]; then
  sanitizer=${2:-}
  case "$sanitizer" in
    address | thread) shift 2 ;;
    *)
      echo "test.sh: --sanitize takes address or thread, not '$sanitizer'" >&2
      exit 2
      ;;
  esac
fi

run=()
selection=()
case "$sanitizer" in
  "")
    directory=build
    scripts/build.sh "$directory"
    ;;
  address)
    directory=build-address
    scripts/build.sh "$directory" -DTANDEM_SANITIZE=address -DTANDEM_CUDA=OFF
    ;;
  thread)
    directory=build-thread
    scripts/build.sh "$directory" -DTANDEM_SANITIZE=thread -DTANDEM_CUDA=OFF
    export OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1
    export TSAN_OPTIONS="suppressions=$PWD/tests/support/tsan.supp ${TSAN_OPTIONS:-}"
    selection=(-LE mpi)
    # Kernels with very random address spaces leave no room for ThreadSanitizer's shadow memory.
    if setarch "$(uname -m)" -R true 2>/dev/null; then
      run=(setarch "$(uname -m)" -R)
    fi
    ;;
esac

"${run[@]}" ctest --test-dir "$directory" --output-on-failure --no-tests=error \
  --parallel "$(nproc)" "${selection[@]}" "$@"
