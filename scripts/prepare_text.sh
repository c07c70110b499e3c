#!/usr/bin/env bash
# prepare_text.sh: writes data/kjv.txt, the King James Bible with one verse per line, from Debian's
# package bible-kjv. Does nothing where the file is already whole. Any other text file works as well:
# name it in data.path.
set -euo pipefail
cd "$(dirname "$0")/.."

target=data/kjv.txt
verses=31102

if [ -f "$target" ] && [ "$(wc -l <"$target")" -eq "$verses" ]; then
  echo "$target is there: $verses verses."
  exit 0
fi
if ! command -v bible >/dev/null; then
  echo "prepare_text.sh: the program 'bible' is missing; run scripts/install_deps.sh (package bible-kjv)" >&2
  exit 1
fi

mkdir -p data
partial=$(mktemp "$target.XXXXXX")
trap 'rm -f "$partial"' EXIT
# With -f each verse is one line behind its reference: "Ge1:1 In the beginning ...".
bible -f 'Gen1:1-Rev22:21' </dev/null | sed 's/^[^ ]* //' >"$partial"
lines=$(wc -l <"$partial")
if [ "$lines" -ne "$verses" ]; then
  echo "prepare_text.sh: 'bible' gave $lines verses instead of $verses; $target was not written" >&2
  exit 1
fi
chmod 644 "$partial"
mv "$partial" "$target"
trap - EXIT
echo "$target written: $verses verses, $(wc -c <"$target") bytes."
