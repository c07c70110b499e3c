#!/usr/bin/env bash
# build.sh [--programs] [DIRECTORY [CMAKE ARGUMENT...]]: configures DIRECTORY (default: build) and
# builds it, optimised, with as many jobs as there are cores: all of it, or the programs without the
# tests.
set -euo pipefail
cd "$(dirname "$0")/.."

target=all
if [ "${1:-}" = --programs ]; then
  target=programs
  shift
fi
directory=${1:-build}
[ $# -eq 0 ] || shift
generator=()
# The generator of a directory that was configured before cannot be changed.
if [ ! -f "$directory/CMakeCache.txt" ] && command -v ninja >/dev/null; then
  generator=(-G Ninja)
fi
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi
if ! cmake "${generator[@]}" -B "$directory" -S . "$@"; then
  echo "build.sh: cmake could not configure; scripts/install_deps.sh installs what is missing" >&2
  exit 1
fi
cmake --build "$directory" --parallel "$(nproc)" --target "$target"
