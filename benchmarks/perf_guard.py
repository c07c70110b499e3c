#!/usr/bin/env python3
"""Counts what a training step costs beyond time and holds it against a budget: see perf_guard.sh.

    perf_guard.py COUNT_STEPS [--update]
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE / "perf_guard.yaml"
BUDGET = HERE / "perf_budget.json"
SLACK = 0.03
# Counted with valgrind, one rank.
PROFILED = {"fp32": [], "bf16": ["precision=bf16"],
            "swiglu": ["model.activation=swiglu", "model.norm=rmsnorm", "model.bias=false"]}
# Whose collectives are counted; ranks are threads, which have those of processes.
LAYOUT = ["parallel.tp=2", "parallel.dp=2"]
LAYOUTS = {"tp2_dp2": LAYOUT,
           "tp2_dp2, sequence parallel": [*LAYOUT, "parallel.sequence_parallel=true"],
           "tp2_dp2, ZeRO-1": [*LAYOUT, "parallel.zero=1"]}
MATMULS = ["tandem::cpu::Matmul::run(tandem::Gemm const&)"]
ALLOCATIONS = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"]
# Counts that a compiler or a library decides.
OF_BUILD = ("instructions", "copying", "allocations")


def fail(text):
    sys.exit(f"perf_guard: {text}")


class Run:
    """count_steps on its way, under valgrind if there is a file for the profile."""

    def __init__(self, program, keys, profile=None):
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no",
                    f"--callgrind-out-file={profile}"] if profile else []
        # valgrind shows the same processor, with AVX2, everywhere that has AVX2. Without ERMS copies are
        # loops, not an instruction each.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2",
                       "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-ERMS"}
        self.command = [str(word) for word in [*valgrind, program, CONFIG, *keys]]
        self.process = subprocess.Popen(self.command, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment)

    def counts(self):
        out, errors = self.process.communicate()
        if self.process.returncode != 0:
            fail(f"{' '.join(self.command)}\nended with {self.process.returncode}\n{errors}")
        return json.loads(out)


class Profile:
    """What a file of callgrind says: instructions in all, those inside of a function, its calls."""

    def __init__(self, file):
        self.total, self.inside, self.calls = 0, collections.Counter(), collections.Counter()
        names, function, callee, of_callee = {}, None, None, False
        for line in file.read_text().splitlines():
            if found := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line):
                kind, number, name = found.groups()
                if name:
                    names[number] = re.sub(r"'\d+$|@@.*$", "", name)
                if kind == "fn":
                    function = names[number]
                else:
                    callee = names[number]
            elif found := re.match(r"calls=(\d+)", line):
                self.calls[callee] += int(found[1])
                of_callee = True  # the next line is the cost of the calls
            elif found := re.match(r"[-+*\d]\S* (\d+)", line):
                if not of_callee:
                    self.inside[function] += int(found[1])
                of_callee = False
            elif found := re.match(r"(?:summary|totals): (\d+)", line):
                self.total = int(found[1])

    def counts(self):
        copying = sum(count for name, count in self.inside.items()
                      if re.match("__mem(cpy|move|set)_", name))
        matmuls, allocations = (sum(self.calls[name] for name in names) for names in (MATMULS, ALLOCATIONS))
        counts = {"instructions": self.total, "of them copying": copying, "matmuls": matmuls,
                  "allocations": allocations}
        for what, count in counts.items():
            if count == 0:
                fail(f"no {what} were seen: have the functions other names now?")
        return counts


def measure(program):
    """What instructions depend on, and all counts of one step by name."""
    counted = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {name: pathlib.Path(folder) / name for name in PROFILED}
        runs = {name: Run(program, keys, files[name]) for name, keys in PROFILED.items()}
        for name, running in runs.items():
            said = running.counts()
            for what, count in Profile(files[name]).counts().items():
                counted[f"{name} {what}"] = count // said["steps"]
    onednn = re.search(r"oneDNN [^,]*", said["device"])[0]
    for name, keys in LAYOUTS.items():
        counts = Run(program, keys).counts()
        for what in ("collectives", "bytes"):
            counted[f"{name} {what}"] = counts[what]
    return {"built with": f"g++ {said['compiler']}, {onednn}", "counts": counted}


def main():
    measured = measure(sys.argv[1])
    if "--update" in sys.argv[2:]:
        BUDGET.write_text(json.dumps(measured, indent=2) + "\n")
    budget = json.loads(BUDGET.read_text())
    counted, allowed = measured["counts"], budget["counts"]
    if allowed.keys() != counted.keys():
        fail(f"{BUDGET} does not name what is counted; perf_guard.sh --update writes it anew")
    same_build = measured["built with"] == budget["built with"]
    if not same_build:
        print(f"instructions, copying and allocations are not held: the budget is for "
              f"{budget['built with']}, this is {measured['built with']}")
    over = 0
    print(f"{'of one step':38} {'counted':>12} {'budget':>12}")
    for what, count in counted.items():
        difference = count / allowed[what] - 1
        verdict = ""
        if not same_build and what.endswith(OF_BUILD):
            verdict = "not held"
        elif difference > SLACK:
            verdict, over = f"OVER by {100 * difference:.1f} %", over + 1
        elif difference < -SLACK:
            verdict = f"less by {-100 * difference:.1f} %: lower the budget with --update"
        print(f"{what:38} {count:12} {allowed[what]:12} {verdict}".rstrip())
    if over:
        fail(f"{over} of {len(counted)} counts are more than {100 * SLACK:.0f} % over their budget. If "
             "the change is worth it, perf_guard.sh --update writes new ones, to be committed with it.")


if __name__ == "__main__":
    main()
