#!/usr/bin/env bash
# install_deps.sh: installs what building, testing and the example data need, and only what is
# missing. On systems without apt it prints the list; CMake then says what it cannot find. For GPUs the
# CUDA toolkit (12.4 or newer) and NCCL come from NVIDIA: docs/gpu.md.
set -euo pipefail

# package, minimum version, what for
packages='
g++                 12     compiler (C++20)
cmake               3.25   build
ninja-build         1.10   build
libdnnl-dev         2.6    oneDNN: matrix products on CPUs
ocl-icd-opencl-dev  2.3    asked for by the CMake files of the oneDNN package
libhwy-dev          1.0    Highway: vector kernels on CPUs
libopenmpi-dev      4.1    MPI: ranks as processes
openmpi-bin         4.1    mpirun
libasio-dev         1.22   Asio: the side channel between processes
libyaml-cpp-dev     0.7    reading configs
libcli11-dev        2.1    command lines
nlohmann-json3-dev  3.11   JSON
libspdlog-dev       1.10   logs
libfmt-dev          9.1    text formatting
libgtest-dev        1.12   GoogleTest
libgmock-dev        1.12   GoogleTest matchers
clang-format        14     scripts/check_format.sh
python3             3.9    test scripts
valgrind            3.19   scripts/perf_guard.sh: counts what a step costs
iproute2            5.10   the test of two hosts, which are network namespaces
python3-torch       1.13   PyTorch: the test that recomputes training with it
libopenblas0-openmp 0.3    matrix products of PyTorch: benchmarks/compare.sh
bible-kjv           4.29   the text that scripts/prepare_text.sh writes to data/kjv.txt
'

if ! command -v apt-get >/dev/null; then
  echo "No apt-get here. Install these yourself (named as in Debian, with minimum versions):"
  echo "$packages"
  exit 0
fi

missing=()
while read -r package _; do
  [ -n "$package" ] || continue
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done <<<"$packages"

if [ ${#missing[@]} -eq 0 ]; then
  echo "All packages are installed."
  exit 0
fi

echo "Installing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Not root, and there is no sudo. Run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}"
