#!/usr/bin/env bash
# mutate.sh [--count N] [--seed S] [FILE...]: do the tests test something? Makes N small changes to the
# sources of parallel/, layers/ and optim/ (or FILEs), one at a time, in a copy of the last commit;
# builds, runs the fast tests, and reports the changes that no test noticed. By hand, not in CI: a
# change takes some ten seconds, or a minute if no test notices it. Results also go to
# build-mutate/results.tsv.
#
# mutate.sh --again FILE: makes the changes of such a table that survived once more, on the sources and
# tests of today.
#
# mutate.sh --planted: makes the faulty changes of tests/tools/source_faults.json instead, and has
# build/verify find and name each of them.
set -euo pipefail
cd "$(dirname "$0")/.."

work=build-mutate
[ "${1:-}" != --planted ] || work=build-planted
tree=$work/tree
mkdir -p "$work"
rm -rf "$tree"
git worktree prune
git worktree add --detach --force "$tree" HEAD >/dev/null
trap 'git worktree remove --force "$tree"' EXIT
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
# Quick to build: lightly optimised, and no new link where only the shared library's code changed.
cmake -G Ninja -B "$work/build" -S "$tree" -DTANDEM_CUDA=OFF -DCMAKE_LINK_DEPENDS_NO_SHARED=ON \
  -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" >/dev/null

python3 - "$tree" "$work/build" "$work/results.tsv" "$@" <<'PYTHON'
import argparse, glob, json, os, random, re, subprocess, sys, time

# Quickest first; of programs that run under mpirun, on how many ranks.
TESTS = ["parallel_layout_test", "parallel_parameter_test", "parallel_cuda_module_test", "optim_test",
         "layers_test", "network_test",
         "parallel_local_test", "parallel_local_failure_test", "parallel_mpi_test",
         "parallel_mpi_failure_test", "parallel_diagnosis_test", "parallel_side_channel_test",
         "parallel_nccl_arguments_test", "parallel_nccl_test", "mpi_layout_test", "allocation_test", "verify_test",
         "trainer_test"]
RANKS = {"parallel_mpi_test": 3, "mpi_layout_test": 4}
# Started by ctest, which knows the arguments of its cases.
CTEST = {"parallel_mpi_failure_test"}

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


def find_again(tree, what, place, before, after):
    """The change of a row of the table, wherever its line stands today."""
    path, number = place.rsplit(":", 1)
    lines = [line.strip() for line in open(f"{tree}/{path}").read().split("\n")]
    places = [i for i, line in enumerate(lines) if line == before]
    if not places:
        print(f"no longer there: {place} {before}")
        return []
    nearest = min(places, key=lambda i: abs(i - int(number)))
    return [(path, (nearest, what, after))]


def built(build, targets):
    return subprocess.run(["ninja", "-C", build] + targets, capture_output=True).returncode == 0


class Changed:
    """A file of the tree with other contents, for as long as the `with` lasts."""

    def __init__(self, path, contents):
        self.path, self.contents = path, contents

    def write(self, contents):
        with open(self.path, "w") as out:
            out.write(contents)

    def __enter__(self):
        self.original = open(self.path).read()
        self.write(self.contents)

    def __exit__(self, *_):
        self.write(self.original)


def plant(tree, build):
    """Every fault of the list; prints what verify said of it as a row of docs/verify.md."""
    faults = json.load(open(f"{tree}/tests/tools/source_faults.json"))
    named = 0
    for fault in faults:
        path = f"{tree}/{fault['file']}"
        source = open(path).read()
        if source.count(fault["from"]) != 1:
            sys.exit(f"mutate.sh: {fault['name']}: {fault['file']} has {source.count(fault['from'])} "
                     f"places like `{fault['from']}`, not one: mend tests/tools/source_faults.json")
        with Changed(path, source.replace(fault["from"], fault["to"])):
            if not built(build, ["verify"]):
                sys.exit(f"mutate.sh: {fault['name']}: does not compile")
            sets = ["parallel.dp=2", "parallel.tp=2"] + fault.get("sets", [])
            run = subprocess.run([f"{build}/verify", "--config", f"{tree}/tests/tools/grid.yaml"] +
                                 [word for s in sets for word in ("--set", s)],
                                 capture_output=True, text=True)
        said = run.stdout.split("rows fail.\n")[-1].strip()
        right = run.returncode == 1 and all(word in said for word in fault["named"])
        named += right
        print(f"| {fault['name']} | {said} |{'' if right else '  <- NOT AS EXPECTED'}", flush=True)
    print(f"{named} of {len(faults)} were seen and named")
    sys.exit(0 if named == len(faults) else 1)


def main():
    tree, build, results = sys.argv[1:4]
    if sys.argv[4:] == ["--planted"]:
        plant(tree, build)
    parser = argparse.ArgumentParser(prog="mutate.sh")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", metavar="FILE")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args(sys.argv[4:])
    files = options.files or sorted(
        os.path.relpath(f, tree) for room in ("parallel", "layers", "optim")
        for f in glob.glob(f"{tree}/{room}/**/*.cpp", recursive=True))
    every = [(f, m) for f in files for m in mutations(f"{tree}/{f}")]
    random.Random(options.seed).shuffle(every)
    if options.again:
        every = [found for row in open(options.again) if row.startswith("SURVIVED")
                 for found in find_again(tree, *row.rstrip("\n").split("\t")[1:])]

    def passes(test, limit=None):
        start = ["scripts/mpirun.sh", str(RANKS[test])] if test in RANKS else []
        command = start + [f"{build}/tests/{test}", "--gtest_brief=1", "--gtest_fail_fast"]
        if test in CTEST:
            command = ["ctest", "--test-dir", build, "-R", test, "--stop-on-failure", "-j2"]
        run = subprocess.run(command, capture_output=True, timeout=limit)
        return run.returncode == 0

    # A change may make a test wait for ever; one that takes so much longer than before does.
    limits = {}

    def killer():
        for test in TESTS:
            try:
                if not passes(test, limits[test]):
                    return test
            except subprocess.TimeoutExpired:
                return f"{test} (time-out)"
        return None

    if not built(build, TESTS):
        sys.exit("mutate.sh: does not build before any change")
    for test in TESTS:
        start = time.time()
        if not passes(test):
            sys.exit(f"mutate.sh: {test} does not pass before any change")
        limits[test] = 60 + 8 * (time.time() - start)
    killed = survived = 0
    with open(results, "w") as table:
        for path, (number, what, changed) in every:
            if killed + survived == options.count:
                break
            lines = open(f"{tree}/{path}").read().split("\n")
            before, lines[number] = lines[number], changed
            start = time.time()
            verdict = "does not compile"
            with Changed(f"{tree}/{path}", "\n".join(lines)):
                if built(build, TESTS):
                    by = killer()
                    verdict = f"killed by {by}" if by else "SURVIVED"
                    killed += bool(by)
                    survived += not by
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
