#!/usr/bin/env python3
"""Predicted beside measured step times on this machine.

Each round calibrates with `bench hardware` and then trains layouts, sizes and precisions that it does
not calibrate with, in another order every time, and asks `plan --against` about each run. A layout's
measured time is the median of its steps of all rounds, and its predicted time that of the rounds'
calibrations; "one calibration" is the error of each of these by itself. Noise is how far a round's
measured time lies from the median of the layout's rounds, on average, and drift the same of what is
predicted, which differs by the calibration alone. A round takes half a minute to a minute, and a
quarter to a whole one for each model; run it on an idle machine. The first step of a run, which makes
kernels, does not count.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

# Shapes that are in no sample of bench hardware (tools/bench/sample_configs.cpp).
MODELS = {
    "ffn 320x1280": ["model.kind=ffn", "model.hidden=320", "model.ffn=1280", "data.seq_len=384"],
    "ffn 640x1792": ["model.kind=ffn", "model.hidden=640", "model.ffn=1792", "data.seq_len=320"],
    "ffn 256x768": ["model.kind=ffn", "model.hidden=256", "model.ffn=768", "data.seq_len=1536"],
    "lm 192x640": ["model.hidden=192", "model.ffn=640", "model.vocab_size=512",
                   "data.documents=packed", "data.seq_len=256"],
    "ffn 576x2304": ["model.kind=ffn", "model.hidden=576", "model.ffn=2304", "data.seq_len=256"],
    "swiglu 320x896": ["model.kind=ffn", "model.activation=swiglu", "model.hidden=320",
                       "model.ffn=896", "data.seq_len=768"],
    "lm 384x1152": ["model.hidden=384", "model.ffn=1152", "model.vocab_size=800",
                    "model.context=12", "data.documents=packed", "data.seq_len=320"],
    "ffn 448x1792": ["model.kind=ffn", "model.hidden=448", "model.ffn=1792", "data.seq_len=512"],
    "swiglu 512x1344": ["model.kind=ffn", "model.activation=swiglu", "model.hidden=512",
                        "model.ffn=1344", "data.seq_len=384"],
    "lm 320x1408": ["model.hidden=320", "model.ffn=1408", "model.vocab_size=600",
                    "model.context=8", "data.documents=packed", "data.seq_len=512"],
}
LAYOUTS = {
    "1": ["parallel.tp=1", "parallel.dp=1"],
    "tp2": ["parallel.tp=2", "parallel.dp=1"],
    "tp2 sp": ["parallel.tp=2", "parallel.dp=1", "parallel.sequence_parallel=true"],
    "dp2": ["parallel.tp=1", "parallel.dp=2"],
    "dp2 zero": ["parallel.tp=1", "parallel.dp=2", "parallel.zero=1"],
    "tp2 dp2": ["parallel.tp=2", "parallel.dp=2"],
}
BASE = """model: {layers: 3}
data: {format: synthetic}
train: {steps: 9, micro_batch: 1, global_batch: 4, eval_every: 0}
optim: {lr: 1.0e-4, schedule: {kind: constant, warmup_steps: 0, decay_steps: 0}}
"""
PRECISIONS = ["fp32", "bf16"]


def ranks_of(layout):
    return 1 if layout == "1" else 4 if layout == "tp2 dp2" else 2


def trained(command, folder, name, settings):
    command = command + ["--config", folder + "/base.yaml"]
    for setting in settings + ["name=" + name, "log.dir=" + folder, "checkpoint.resume=never"]:
        command += ["--set", setting]
    subprocess.run(command, check=True, capture_output=True)


def compared(build, hardware, folder, name):
    """The predicted time, the measured times of all steps but the first, and differing traffic."""
    out = folder + "/" + name + ".json"
    subprocess.run([build + "/plan", "--against", folder + "/" + name, "--hardware", hardware,
                    "--json", out], check=True, capture_output=True)
    with open(out, encoding="utf-8") as file:
        comparison = json.load(file)
    step = next(time for time in comparison["times"] if time["what"] == "step")
    with open(folder + "/" + name + "/metrics.jsonl", encoding="utf-8") as file:
        times = [json.loads(line)["step_ms"] for line in file]
    return step["predicted_ms"], times[1:], comparison["traffic_differences"]


def distances(values):
    middle = statistics.median(values)
    return statistics.mean(abs(value / middle - 1) for value in values)


def standard_error(values):
    """Of the median of normally distributed values."""
    if len(values) < 2:
        return sys.float_info.max
    return math.sqrt(math.pi / 2 / len(values)) * statistics.stdev(values)


def of_errors(errors):
    sizes = sorted(map(abs, errors))
    return (f"{statistics.mean(sizes):.1%} on average ({statistics.mean(errors):+.1%} signed), "
            f"{sizes[int(0.9 * (len(sizes) - 1) + 0.5)]:.1%} at the 90th percentile")


def summary(title, rows):
    print(f"{title}: {len(rows)} layouts, error {of_errors([row['error'] for row in rows])}; "
          f"noise {statistics.mean(row['noise'] for row in rows):.1%}, "
          f"drift {statistics.mean(row['drift'] for row in rows):.1%}")
    single = [p / row["measured"] - 1 for row in rows for p, _, _ in row["rounds"]]
    print("  one calibration: " + of_errors(single))
    right = pairs = 0
    for i, a in enumerate(rows):
        for b in rows[:i]:
            if a["model"] == b["model"] and a["precision"] == b["precision"]:
                apart = abs(a["measured"] / b["measured"] - 1)
                if apart > 2 * math.hypot(a["uncertainty"], b["uncertainty"]):
                    pairs += 1
                    right += (a["measured"] > b["measured"]) == (a["predicted"] > b["predicted"])
    if pairs:
        print(f"  of {pairs} pairs of layouts that differ by more than two standard errors, "
              f"{right} are ranked right")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the folder with train, plan and bench")
    parser.add_argument("model", nargs="*", help="of: " + "; ".join(MODELS) + " (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hardware", help="a file to hold against the runs, instead of calibrating")
    parser.add_argument("--processes", action="store_true",
                        help="start ranks with mpirun, as many as there are CPUs")
    parser.add_argument("--json", help="where to write the rows")
    args = parser.parse_args()
    unknown = [model for model in args.model if model not in MODELS]
    if unknown:
        parser.error(f"no model is called {unknown[0]}")
    if args.processes and len(os.sched_getaffinity(0)) not in map(ranks_of, LAYOUTS):
        parser.error("--processes: no layout here has as many ranks as there are CPUs")
    return args


def main():
    args = arguments()
    build = os.path.abspath(args.build)
    cpus = len(os.sched_getaffinity(0))
    launcher = [os.path.dirname(os.path.abspath(__file__)) + "/../scripts/mpirun.sh", str(cpus)]
    launcher = launcher if args.processes else []
    layouts = [l for l in LAYOUTS if not args.processes or ranks_of(l) == cpus]
    cases = [(m, p, l) for m in args.model or MODELS for p in PRECISIONS for l in layouts]
    found = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/base.yaml", "w", encoding="utf-8") as file:
            file.write(BASE)
        for again in range(args.rounds):
            start = time.monotonic()
            hardware = args.hardware
            if not hardware:
                hardware = f"{folder}/hardware{again}.yaml"
                subprocess.run(launcher + [build + "/bench", "hardware", "-o", hardware],
                               check=True, stdout=subprocess.DEVNULL)
            order = list(enumerate(cases))
            random.Random(again).shuffle(order)
            for i, case in order:
                model, precision, layout = case
                name = f"r{i}_{again}"
                trained(launcher + [build + "/train"], folder, name,
                        MODELS[model] + LAYOUTS[layout] + ["precision=" + precision])
                found[case].append(compared(build, hardware, folder, name))
            print(f"round {again + 1} of {args.rounds}: {time.monotonic() - start:.0f} s",
                  file=sys.stderr, flush=True)
    rows = []
    for (model, precision, layout), rounds in found.items():
        predicted, steps, traffic_differences = zip(*rounds)
        middles = [statistics.median(times) for times in steps]
        measured = statistics.median(time for times in steps for time in times)
        noise = distances(middles)
        rows.append({"model": model, "precision": precision, "layout": layout,
                     "ranks": ranks_of(layout),
                     "predicted": statistics.median(predicted),
                     "measured": measured,
                     "error": statistics.median(predicted) / measured - 1,
                     "noise": noise, "drift": distances(predicted),
                     "uncertainty": standard_error(middles) / measured,
                     "rounds": rounds, "traffic_differs": any(traffic_differences)})
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    print(f"{'model':15} {'type':5} {'layout':9} {'predicted':>10} {'measured':>9} {'error':>7} "
          f"{'noise':>6} {'drift':>6}   (ms)")
    for row in rows:
        print(f"{row['model']:15} {row['precision']:5} {row['layout']:9} {row['predicted']:10.2f} "
              f"{row['measured']:9.2f} {row['error']:+7.1%} {row['noise']:6.1%} {row['drift']:6.1%}")
    summary("ranks that have a CPU each", [r for r in rows if r["ranks"] <= cpus])
    crowded = [r for r in rows if r["ranks"] > cpus]
    if crowded:
        summary("more ranks than CPUs", crowded)
    print("traffic: calls and bytes differ in", sum(r["traffic_differs"] for r in rows), "layouts")


if __name__ == "__main__":
    main()
