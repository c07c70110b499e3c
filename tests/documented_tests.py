#!/usr/bin/env python3
"""Every test that docs/ name as `Suite.Name` (`folder/file.cpp`) stands in that file.

    documented_tests.py ROOT
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
tests = {}  # "Suite.Name" -> files below tests/
for path in (root / "tests").rglob("*.cpp"):
    for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text()):
        tests.setdefault(f"{suite}.{name}", set()).add(str(path.relative_to(root / "tests")))

suites = {test.split(".")[0] for test in tests}
faults = []
seen = 0
for page in sorted((root / "docs").glob("*.md")):
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        for named in re.findall(r"`([A-Z]\w*\.[A-Z]\w*)`", line):
            seen += 1
            if named != "Suite.Name" and named not in tests:
                faults.append(f"{page}:{number}: there is no test {named}")
        for names, file in re.findall(r"((?:`\w+\.\w+`(?:, )?)+) \(`(?:tests/)?([\w/]+\.cpp)`", line):
            for named in re.findall(r"`(\w+\.\w+)`", names):
                if named in tests and file not in tests[named]:
                    faults.append(f"{page}:{number}: {named} is not in {file}: {tests[named]}")
        for suite in re.findall(r"[Ss]uite `(\w+)`", line):
            if suite not in suites:
                faults.append(f"{page}:{number}: there is no suite {suite}")
if seen < 100:
    faults.append(f"only {seen} tests are named in {root / 'docs'}: this check is broken")
print("\n".join(faults) if faults else f"{seen} names of tests, each there")
sys.exit(1 if faults else 0)
