#!/usr/bin/env bash
# mutate.sh [--count N] [--seed S] [FILE...]: do the tests test something? Makes N small changes to the
# sources of parallel/, layers/ and optim/ (or FILEs), one at a time, in a copy of the last commit;
# builds, runs the fast tests, and reports the changes that no test noticed. By hand, not in CI: a
# change takes some twenty seconds. Results also go to build-mutate/results.tsv.
set -euo pipefail
cd "$(dirname "$0")/.."

tree=build-mutate/tree
mkdir -p build-mutate
rm -rf "$tree"
git worktree prune
git worktree add --detach --force "$tree" HEAD >/dev/null
trap 'git worktree remove --force "$tree"' EXIT
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake -G Ninja -B build-mutate/build -S "$tree" -DTANDEM_CUDA=OFF >/dev/null

python3 - "$tree" build-mutate/build build-mutate/results.tsv "$@" <<'PYTHON'
import argparse, glob, os, random, re, subprocess, sys, time

# Quickest first; of programs that run under mpirun, on how many ranks.
TESTS = ["parallel_layout_test", "parallel_parameter_test", "optim_test", "layers_test", "network_test",
         "parallel_local_test", "parallel_local_failure_test", "parallel_mpi_test", "mpi_layout_test",
         "allocation_test", "verify_test", "trainer_test"]
RANKS = {"parallel_mpi_test": 3, "mpi_layout_test": 4}

# (what, pattern, replacement): one match is replaced.
OPERATORS = [
    ("operator", r" \+ ", " - "), ("operator", r" - ", " + "), ("operator", r" \* ", " / "),
    ("operator", r" / ", " * "), ("operator", r" % ", " / "), ("operator", r" == ", " != "),
    ("operator", r" != ", " == "), ("operator", r" < ", " <= "), ("operator", r" <= ", " < "),
    ("operator", r" > ", " >= "), ("operator", r" >= ", " > "), ("operator", r" && ", " || "),
    ("operator", r" \|\| ", " && "), ("operator", r"\+= ", "-= "), ("operator", r"\+\+", "--"),
    ("sign", r"return -", "return "), ("sign", r"= -", "= "),
    ("constant", r"\b0\b", "1"), ("constant", r"\b1\b", "0"), ("constant", r"\b2\b", "1"),
    ("constant", r"\b1\.0\b", "2.0"), ("constant", r"\b0\.0\b", "1.0"),
    ("constant", r"\btrue\b", "false"), ("constant", r"\bfalse\b", "true"),
    ("constant", r"kAccumulate", "kOverwrite"), ("constant", r"kSum\b", "kMax"),
    ("constant", r"kMax\b", "kSum"), ("argument", r"tp_rank\(\)", "dp_rank()"),
    ("argument", r"dp_rank\(\)", "tp_rank()"), ("argument", r"\.tp\b", ".dp"),
    ("argument", r"\.dp\b", ".tp"), ("argument", r"betas\[0\]", "betas[1]"),
    ("argument", r"\((\w+), (\w+)\)", r"(\2, \1)"),
]


def mutations(path):
    """Every change to one file: (line number, what, new line)."""
    found = []
    lines = open(path).read().split("\n")
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        stripped = code.strip()
        if not stripped or stripped.startswith(("#", "namespace", "ensure", "using", "}")):
            continue
        if '"' in code:  # messages and labels
            code = code.split('"')[0]
        for what, pattern, replacement in OPERATORS:
            for match in re.finditer(pattern, code):
                changed = (line[:match.start()] + re.sub(pattern, replacement, match.group(0)) +
                           line[match.end():])
                if changed != line:
                    found.append((number, what, changed))
        if re.match(r"[\w.>\-:()\[\]*]+\(.*\);$", stripped) and not stripped.startswith("return"):
            found.append((number, "removed call", ""))
    return found


def main():
    tree, build, results = sys.argv[1:4]
    parser = argparse.ArgumentParser(prog="mutate.sh")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args(sys.argv[4:])
    files = options.files or sorted(
        os.path.relpath(f, tree) for room in ("parallel", "layers", "optim")
        for f in glob.glob(f"{tree}/{room}/**/*.cpp", recursive=True))
    every = [(f, m) for f in files for m in mutations(f"{tree}/{f}")]
    random.Random(options.seed).shuffle(every)

    def compiles():
        return subprocess.run(["ninja", "-C", build] + TESTS, capture_output=True).returncode == 0

    def killer():
        for test in TESTS:
            try:
                start = ["scripts/mpirun.sh", str(RANKS[test])] if test in RANKS else []
                run = subprocess.run(start + [f"{build}/tests/{test}", "--gtest_brief=1",
                                              "--gtest_fail_fast"], capture_output=True, timeout=120)
                if run.returncode != 0:
                    return test
            except subprocess.TimeoutExpired:
                return f"{test} (time-out)"
        return None

    if not compiles() or killer():
        sys.exit("mutate.sh: the tests do not pass before any change")
    killed = survived = 0
    with open(results, "w") as table:
        for path, (number, what, changed) in every:
            if killed + survived == options.count:
                break
            original = open(f"{tree}/{path}").read()
            lines = original.split("\n")
            before, lines[number] = lines[number], changed
            with open(f"{tree}/{path}", "w") as out:
                out.write("\n".join(lines))
            start = time.time()
            verdict = "does not compile"
            if compiles():
                by = killer()
                verdict = f"killed by {by}" if by else "SURVIVED"
                killed += bool(by)
                survived += not by
            with open(f"{tree}/{path}", "w") as out:
                out.write(original)
            row = [verdict, what, f"{path}:{number + 1}", before.strip(), changed.strip()]
            table.write("\t".join(row) + "\n")
            table.flush()
            if verdict != "does not compile":
                print(f"{killed + survived:4}/{options.count} {time.time() - start:4.0f} s  {verdict}: "
                      f"{path}:{number + 1} {what}\n       {before.strip()}\n    -> {changed.strip()}",
                      flush=True)
    print(f"{killed} of {killed + survived} changes were noticed, {survived} survived")


main()
PYTHON
