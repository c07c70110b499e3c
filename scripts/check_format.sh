#!/usr/bin/env bash
# check_format.sh: every tracked source as .clang-format has it; lists the places that are not.
# To mend a file: clang-format -i FILE
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror
echo "All sources are formatted."
