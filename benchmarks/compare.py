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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="timed in each round")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--ffn", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048, help="of one of two micro-batches")
    parser.add_argument("--python", action="append",
                        help="a Python that has PyTorch; any number of times (default: /usr/bin/python3)")
    parser.add_argument("--only", default="", help="cells whose name holds this, such as tp2 or bf16")
    parser.add_argument("--json", help="every measurement goes there too")
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


def measure_cell(args, peers, precision, tp, dp, threads):
    """Times of `us` and of each peer, round by round, and what the peers' settings were."""
    times = {"us": []}
    roofs, found, refused = [], {}, {}
    for name, (python, keep) in peers.items():
        first = peer(args, python, keep, precision, tp, dp, threads)
        if "step_ms" in first:
            found[name], times[name] = first["setting"], []
        else:
            refused[name] = first["refused"]
    for _ in range(args.rounds):
        ours = tandem(args, precision, tp, dp, threads)
        if "step_ms" not in ours:
            sys.exit(f"compare.py: tandem did not run: {ours['refused']}")
        times["us"].append(ours["step_ms"])
        roofs.append(ours["roof_fraction"])
        for name, setting in found.items():
            python, keep = peers[name]
            again = peer(args, python, keep, precision, tp, dp, threads, setting)
            if "step_ms" in again:
                times[name].append(again["step_ms"])
            else:
                refused[name] = again["refused"]
    return times, statistics.median(roofs), found, refused


def show(name, precision, times, roof, found, refused):
    ours = statistics.median(times["us"])
    print(f"{precision} {name}")
    print(f"  {'tandem':44} {spread(times['us']):>28} ms   {roof:.3f} of its roof")
    for peer_name, values in times.items():
        if peer_name != "us" and values:
            print(f"  {peer_name:44} {spread(values):>28} ms   {statistics.median(values) / ours:.2f}x"
                  f"   {found[peer_name]}")
    for peer_name, why in refused.items():
        reasons = why if isinstance(why, str) else "; ".join(sorted(set(why.values())))
        print(f"  {peer_name:44} peer refuses: {reasons}")
    sys.stdout.flush()


def main():
    args = arguments()
    peers = {}
    for python in args.python:
        version = run([python, "-c", "import json, torch; print(json.dumps({'v': torch.__version__}))"])
        if "v" not in version:
            sys.exit(f"compare.py: {python} has no PyTorch: {version['refused']}")
        peers[f"PyTorch {version['v']}"] = (python, False)
        peers[f"PyTorch {version['v']}, glibc keeps memory"] = (python, True)
    print(f"{args.layers} layers, hidden {args.hidden}, ffn {args.ffn}, 2 x {args.tokens} tokens a step; "
          f"median (least-most) of {args.rounds} rounds of {args.steps} steps; how many times longer")
    everything = []
    for precision in ("fp32", "bf16"):
        for name, tp, dp, threads in CELLS:
            if args.only not in f"{precision} {name}":
                continue
            times, roof, found, refused = measure_cell(args, peers, precision, tp, dp, threads)
            show(name, precision, times, roof, found, refused)
            everything.append({"precision": precision, "cell": name, "times_ms": times,
                               "roof_fraction": roof, "settings": found, "refused": refused})
            if args.json:
                with open(args.json, "w") as file:
                    json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
