#!/usr/bin/env python3
"""source_faults.py ROOT: each fault that scripts/mutate.sh --planted makes still has its one place in
the sources. Making them takes a build each, so nobody else would notice that one is gone."""
import json
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
faults = json.loads((root / "tests/tools/source_faults.json").read_text())
lost = 0
for fault in faults:
    places = (root / fault["file"]).read_text().count(fault["from"])
    if places != 1:
        lost += 1
        print(f"{fault['name']}: {fault['file']} has {places} places like `{fault['from']}`, not one")
print(f"{len(faults)} planted faults, {lost} without their place")
sys.exit(lost != 0)
