#!/usr/bin/env python3
"""Tandem against PyTorch on this machine, the same shapes, in turn: see compare.sh."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = ROOT / "benchmarks" / "peers" / "torch_ffn.py"
# name, tp, dp, threads of each rank
CELLS = [("tp1, 1 thread", 1, 1, 1), ("tp1, 2 threads", 1, 1, 2), ("tp2", 2, 1, 1),
         ("dp2", 1, 2, 1), ("tp2_dp2", 2, 2, 1)]
# glibc as it comes, and told to keep what it has: large buffers else go back to the system each time.
KEEP = {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "8589934592",
        "MALLOC_TOP_PAD_": "268435456"}
LIMIT_S = 1800


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="0: show what the file of --json has")
    parser.add_argument("--steps", type=int, default=5, help="timed in each round")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--ffn", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048, help="of one of two micro-batches")
    parser.add_argument("--python", action="append",
                        help="a Python that has PyTorch; any number of times (default: /usr/bin/python3)")
    parser.add_argument("--only", default="", help="the cell of this name, such as 'fp32 tp2', or those whose "
                        "name holds it, such as bf16")
    parser.add_argument("--json", help="measurements are added to those of this file, whose settings "
                        "are not searched again: a comparison can be made in pieces")
    parsed = parser.parse_args()
    parsed.python = parsed.python or ["/usr/bin/python3"]
    return parsed


def run(command, environment=None):
    """The last JSON object that a program prints, or why there is none."""
    try:
        done = subprocess.run([str(word) for word in command], cwd=ROOT, text=True, timeout=LIMIT_S,
                              capture_output=True, env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired:
        return {"refused": f"nothing within {LIMIT_S} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
    return {"refused": said}


def tandem(args, precision, tp, dp, threads):
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "step.json")
        keys = {"precision": precision, "parallel.tp": tp, "parallel.dp": dp, "threads": threads,
                "model.hidden": args.hidden, "model.ffn": args.ffn, "model.layers": args.layers,
                "data.seq_len": args.tokens, "train.steps": args.steps + 1}
        command = [ROOT / "build" / "bench", "step", "--config", ROOT / "configs" / "bench_ffn.yaml",
                   "--json", result]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        if tp * dp > 1:
            command = [ROOT / "scripts" / "mpirun.sh", tp * dp, *command]
        failed = run(command)
        if not os.path.exists(result):
            return failed
        with open(result) as file:
            return json.load(file)


def peer(args, python, keep, precision, tp, dp, threads, setting=None):
    command = [python, PEER, "--precision", precision, "--tp", tp, "--dp", dp, "--threads", threads,
               "--steps", args.steps, "--hidden", args.hidden, "--ffn", args.ffn,
               "--layers", args.layers, "--tokens", args.tokens]
    if setting:
        command += ["--setting", setting]
    return run(command, KEEP if keep else None)


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


class Comparison:
    """All measurements of one shape, by cell and by who was measured."""

    def __init__(self, args):
        self.file = args.json
        self.shape = {key: getattr(args, key) for key in ("hidden", "ffn", "layers", "tokens")}
        self.cells = {}
        if self.file and os.path.exists(self.file):
            with open(self.file) as file:
                known = json.load(file)
            if known["shape"] != self.shape:
                sys.exit(f"compare.py: {self.file} holds the shape {known['shape']}, not {self.shape}: "
                         "name another file")
            self.cells = known["cells"]

    def cell(self, name):
        return self.cells.setdefault(name, {"times_ms": {"tandem": []}, "roof_fraction": [],
                                            "settings": {}, "refused": {}})

    def save(self):
        if self.file:
            with open(self.file, "w") as file:
                json.dump({"shape": self.shape, "cells": self.cells}, file, indent=1)


def find_settings(args, cell, peers, precision, tp, dp, threads):
    """Each PyTorch's fastest setting in this cell, found with glibc told to keep its memory."""
    for name, (python, _) in peers.items():
        known = {**cell["settings"], **cell["refused"]}
        if name in known:
            continue
        found = peer(args, python, True, precision, tp, dp, threads)
        kind = "settings" if "step_ms" in found else "refused"
        for same in (other for other, (its, _) in peers.items() if its == python):
            cell[kind][same] = found.get("setting", found.get("refused"))


def measure_round(args, cell, peers, precision, tp, dp, threads):
    ours = tandem(args, precision, tp, dp, threads)
    if "step_ms" not in ours:
        sys.exit(f"compare.py: tandem did not run: {ours['refused']}")
    cell["times_ms"]["tandem"].append(ours["step_ms"])
    cell["roof_fraction"].append(ours["roof_fraction"])
    for name, (python, keep) in peers.items():
        if name in cell["settings"]:
            theirs = peer(args, python, keep, precision, tp, dp, threads, cell["settings"][name])
            if "step_ms" in theirs:
                cell["times_ms"].setdefault(name, []).append(theirs["step_ms"])
            else:
                cell["refused"][name] = theirs["refused"]


def show(name, cell):
    times = cell["times_ms"]
    if not times["tandem"]:
        return
    ours = statistics.median(times["tandem"])
    print(name)
    print(f"  {'tandem':44} {spread(times['tandem']):>28} ms   "
          f"{statistics.median(cell['roof_fraction']):.3f} of its roof")
    for peer_name, values in times.items():
        if peer_name != "tandem":
            print(f"  {peer_name:44} {spread(values):>28} ms   {statistics.median(values) / ours:.2f}x"
                  f"   {cell['settings'][peer_name]}")
    for peer_name, why in cell["refused"].items():
        reasons = why if isinstance(why, str) else "; ".join(sorted(set(why.values())))
        print(f"  {peer_name:44} peer refuses: {reasons}")
    sys.stdout.flush()


def find_peers(pythons):
    """By name: a Python that has PyTorch, and whether glibc is told to keep memory."""
    peers = {}
    for python in pythons:
        about = peer_about(python)
        name = f"PyTorch {about['torch']}"
        print(f"{name}: {about['blas']}")
        peers[name] = (python, False)
        peers[name + ", glibc keeps memory"] = (python, True)
    return peers


def peer_about(python):
    about = run([python, PEER, "--about"])
    if "torch" not in about:
        sys.exit(f"compare.py: {python} has no PyTorch: {about['refused']}")
    if about["blas"] == "reference BLAS":
        sys.exit(f"compare.py: the PyTorch of {python} multiplies with the reference BLAS, which is ten "
                 "times slower than it can be: apt-get install libopenblas0-openmp")
    return about


def chosen_cells(only):
    """Precision, tp, dp and threads by name: the one that is named, or all that hold the text."""
    cells = {f"{precision} {title}": (precision, *rest)
             for precision in ("fp32", "bf16") for title, *rest in CELLS}
    return {only: cells[only]} if only in cells else {
        name: where for name, where in cells.items() if only in name}


def main():
    args = arguments()
    comparison = Comparison(args)
    peers = find_peers(args.python) if args.rounds > 0 else {}
    print(f"{args.layers} layers, hidden {args.hidden}, ffn {args.ffn}, 2 x {args.tokens} tokens a step; "
          f"median (least-most) of rounds of {args.steps} steps; how many times longer")
    for name, where in chosen_cells(args.only).items():
        cell = comparison.cell(name)
        if args.rounds > 0:
            find_settings(args, cell, peers, *where)
            comparison.save()
        for _ in range(args.rounds):
            measure_round(args, cell, peers, *where)
            comparison.save()
        show(name, cell)


if __name__ == "__main__":
    main()
