#!/usr/bin/env python3
"""programs_help.py PROGRAM...: --help of every program fits a terminal of 80 columns and 40 lines,
names its options, and ends with two examples that begin as a user would type them."""

import pathlib
import subprocess
import sys

for program in sys.argv[1:]:
    name = pathlib.Path(program).name
    done = subprocess.run([program, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, f"{name}: {done.returncode} {done.stderr}"
    lines = done.stdout.splitlines()
    assert 10 <= len(lines) <= 40, f"{name}: {len(lines)} lines"
    for line in lines:
        assert len(line) <= 80, f"{name}: {len(line)} columns: {line}"
    assert "-h,--help" in done.stdout and f"Usage: {name}" in done.stdout, done.stdout
    examples = lines[lines.index("Examples:") + 1 :]
    assert len(examples) == 2, f"{name}: {examples}"
    assert all(f"build/{name} " in example for example in examples), f"{name}: {examples}"
print(f"{len(sys.argv) - 1} programs help")
