#!/usr/bin/env python3
"""How the time of a training step, and of starting, grows as the work grows.

    scaling.py --json FILE [PART...]      measures these parts (default: all) and adds them to FILE
    scaling.py --json FILE --show         prints the tables of what FILE has
    scaling.py --json FILE --svg PICTURE  draws it

One thing grows at a time, from a small language model on generated tokens: hidden 256, ffn 4 x hidden,
4 layers, vocabulary 256, one micro-batch of 2048 tokens, one rank with one thread. Needs
`scripts/build.sh --programs` before, and an idle machine. docs/benchmarks.md has the results.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = """
name: scaling
device: cpu
threads: 1
model: {kind: mlp_lm, vocab_size: 256, context: 16, hidden: 256, ffn: 1024, layers: 4}
data: {format: synthetic, documents: packed, seq_len: 256, valid_fraction: 0}
train: {steps: 4, micro_batch: 8, global_batch: 8, eval_every: 0}
checkpoint: {resume: never}
"""


def width(hidden):
    return {"model.hidden": hidden, "model.ffn": 4 * hidden}


def layout(tp, dp):
    return {"parallel.tp": tp, "parallel.dp": dp, "train.micro_batch": 8 // dp}


SHORT = {"data.seq_len": 16, "train.micro_batch": 1, "train.global_batch": 1, "train.steps": 1}

# What grows: its points, by name.
PARTS = {
    "hidden": {str(h): width(h) for h in (64, 128, 256, 512, 1024)},
    "layers": {str(n): {"model.layers": n} for n in (1, 2, 4, 8, 16)},
    "tokens": {str(256 * n): {"train.micro_batch": n, "train.global_batch": n}
               for n in (1, 2, 4, 8, 16, 32)},
    "vocabulary": {str(v): {"model.vocab_size": v} for v in (256, 1024, 4096, 16384, 65536)},
    "tp ranks": {str(n): layout(n, 1) for n in (1, 2, 4, 8)},
    "dp ranks": {str(n): layout(1, n) for n in (1, 2, 4, 8)},
    "accumulation": {str(n): {"train.micro_batch": 1, "train.global_batch": n}
                     for n in (1, 2, 4, 8, 16, 32, 64)},
    # 8 h^2 matmul parameters a layer
    "start-up": {f"{8 * h * h * 8 / 1e6:.0f} M": {**width(h), "model.layers": 8}
                 for h in (256, 512, 1024, 2048, 4096)},
    "checkpoint": {f"{8 * h * h * 2 / 1e6:.0f} M": {**width(h), "model.layers": 2, **SHORT}
                   for h in (1024, 2048, 4096)},
}


def words(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def run(command):
    """Seconds that a command took, and the most memory that it held, in bytes."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            said.seek(0)
            sys.exit(f"scaling.py: {' '.join(map(str, command))}\n{said.read()}")
    return seconds, usage.ru_maxrss * 1024


def write_as_much(folder, size):
    """Seconds that the disk takes for a file of `size` bytes."""
    piece = os.urandom(1 << 24)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        for written in range(0, size, len(piece)):
            file.write(piece[:size - written])
        file.flush()
        os.fsync(file.fileno())
        return time.perf_counter() - start


def measure_checkpoint(config, keys, folder):
    """What a run of one step takes longer with a checkpoint at its end, and where it goes on from one,
    the medians of three; and how much more memory."""
    train = [ROOT / "build" / "train", "--config", config, *words({**keys, "log.dir": folder / "runs"})]
    without, saving, loading, disk = [], [], [], []
    for _ in range(3):
        shutil.rmtree(folder / "runs", ignore_errors=True)
        without.append(run(train))
        saving.append(run([*train, *words({"checkpoint.every": 1})]))
        files = [file for file in folder.rglob("*") if "checkpoints" in file.parts and file.is_file()]
        size = sum(file.stat().st_size for file in files)
        loading.append(run([*train, *words({"checkpoint.resume": "auto", "train.steps": 2})]))
        disk.append(write_as_much(folder, size))
    middle = lambda runs: statistics.median(seconds for seconds, _ in runs)
    return {"ms": 1e3 * (middle(saving) - middle(without)), "bytes": size,
            "load_ms": 1e3 * (middle(loading) - middle(without)), "disk_ms": 1e3 * statistics.median(disk),
            "memory": max(memory for _, memory in without),
            "memory_saving": max(memory for _, memory in saving),
            "memory_loading": max(memory for _, memory in loading)}


def measure(part, keys, folder):
    """A point: milliseconds, and what else is told of it."""
    config, result = folder / "scaling.yaml", folder / "result.json"
    config.write_text(CONFIG)
    if part == "start-up":
        command = [ROOT / "build" / "train", "--config", config, "--dry-run", *words(keys)]
        return {"ms": min(1e3 * run(command)[0] for _ in range(3))}
    if part == "checkpoint":
        return measure_checkpoint(config, keys, folder)
    run([ROOT / "build" / "bench", "step", "--config", config, "--json", result, *words(keys)])
    step = json.loads(result.read_text())
    return {"ms": step["step_ms"], "tokens": step["tokens"], "gflops": step["gflops"],
            "of_roof": step["roof_fraction"]}


def show(results):
    for part, points in results.items():
        if part == "start-up":
            print("\n| parameters | dry run, ms |\n|---|---|")
            for name, point in points.items():
                print(f"| {name} | {point['ms']:.0f} |")
            continue
        if part == "checkpoint":
            print("\n| parameters | checkpoint, MB | saved, ms | as a plain file, ms | loaded, ms "
                  "| memory of the run, saving, loading, MB |\n|---|---|---|---|---|---|")
            for name, point in points.items():
                memory = ", ".join(f"{point[key] / 1e6:.0f}"
                                   for key in ("memory", "memory_saving", "memory_loading"))
                print(f"| {name} | {point['bytes'] / 1e6:.0f} | {point['ms']:.0f} "
                      f"| {point['disk_ms']:.0f} | {point['load_ms']:.0f} | {memory} |")
            continue
        print(f"\n| {part} | step, ms | us a token | GFLOP/s |\n|---|---|---|---|")
        for name, point in points.items():
            print(f"| {name} | {point['ms']:.1f} | {1e3 * point['ms'] / point['tokens']:.1f} "
                  f"| {point['gflops']:.1f} |")


def draw(results):
    """An SVG: a bar for each point, as long as its time, on a scale of its part."""
    row, left, bar, lines, y = 15, 110, 330, [], 8
    for part, points in results.items():
        longest = max(point["ms"] for point in points.values())
        lines.append(f'<text x="8" y="{y + 12}" font-weight="bold">{part}</text>')
        y += row + 3
        for name, point in points.items():
            length = max(1, bar * point["ms"] / longest)
            lines.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{name}</text>'
                         f'<rect x="{left}" y="{y + 2}" width="{length:.0f}" height="11" fill="#3b6ea5"/>'
                         f'<text x="{left + length + 6:.0f}" y="{y + 11}">{point["ms"]:.0f} ms</text>')
            y += row
        y += 8
    size = f'width="{left + bar + 90}" height="{y}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">\n'
            f'<rect {size} fill="white"/>\n' + "\n".join(lines) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", required=True)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--svg")
    args = parser.parse_args()
    results = {}
    if os.path.exists(args.json):
        results = json.loads(pathlib.Path(args.json).read_text())
    for part in [] if args.show or args.svg else args.part or PARTS:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}: write one of {', '.join(PARTS)}")
        with tempfile.TemporaryDirectory() as folder:
            results[part] = {name: measure(part, keys, pathlib.Path(folder))
                             for name, keys in PARTS[part].items()}
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    results = {part: results[part] for part in PARTS if part in results}
    if args.svg:
        pathlib.Path(args.svg).write_text(draw(results))
    else:
        show(results)


if __name__ == "__main__":
    main()
