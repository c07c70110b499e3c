#!/usr/bin/env python3
"""plan_accuracy.py BUILD HARDWARE [MODEL...]: predicted beside measured step times on this machine.

Trains layouts, sizes and precisions that `bench hardware` does not calibrate with, twice each and
apart in time, and asks `plan --against` about each run. Noise is the difference of the two runs of
a layout. Takes about a minute for each MODEL (default: all); run it on an idle machine.
"""
import json
import os
import subprocess
import sys
import tempfile

# Shapes that are in no sample of bench hardware (tools/bench/hardware.cpp).
MODELS = {
    "ffn 320x1280": ["model.kind=ffn", "model.hidden=320", "model.ffn=1280", "data.seq_len=384"],
    "ffn 640x1792": ["model.kind=ffn", "model.hidden=640", "model.ffn=1792", "data.seq_len=320"],
    "ffn 256x768": ["model.kind=ffn", "model.hidden=256", "model.ffn=768", "data.seq_len=1536"],
    "lm 192x640": ["model.hidden=192", "model.ffn=640", "model.vocab_size=512",
                   "data.documents=packed", "data.seq_len=256"],
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


def trained(build, folder, name, settings):
    command = [build + "/train", "--config", folder + "/base.yaml"]
    for setting in settings + ["name=" + name, "log.dir=" + folder, "checkpoint.resume=never"]:
        command += ["--set", setting]
    subprocess.run(command, check=True, capture_output=True)


def compared(build, hardware, folder, name):
    out = folder + "/" + name + ".json"
    subprocess.run([build + "/plan", "--against", folder + "/" + name, "--hardware", hardware,
                    "--json", out], check=True, capture_output=True)
    with open(out, encoding="utf-8") as file:
        comparison = json.load(file)
    step = next(time for time in comparison["times"] if time["what"] == "step")
    return step["predicted_ms"], step["measured_ms"], comparison["traffic_differences"]


def summary(title, rows):
    errors = sorted(abs(row["error"]) for row in rows)
    noise = sorted(row["noise"] for row in rows)
    mean = sum(errors) / len(errors)
    print(f"{title}: {len(rows)} runs, error {mean:.1%} on average, "
          f"{errors[int(0.9 * (len(errors) - 1) + 0.5)]:.1%} at the 90th percentile; "
          f"two runs of one layout differ by {noise[len(noise) // 2]:.1%} (median)")
    right = pairs = 0
    for i, a in enumerate(rows):
        for b in rows[:i]:
            if a["model"] == b["model"] and a["precision"] == b["precision"]:
                apart = abs(a["measured"] / b["measured"] - 1)
                if apart > max(a["noise"], b["noise"]):
                    pairs += 1
                    right += (a["measured"] > b["measured"]) == (a["predicted"] > b["predicted"])
    if pairs:
        print(f"  of {pairs} pairs of layouts that differ by more than the noise, "
              f"{right} are ranked right")


def main():
    build, hardware = sys.argv[1], os.path.abspath(sys.argv[2])
    models = sys.argv[3:] or list(MODELS)
    cpus = len(os.sched_getaffinity(0))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/base.yaml", "w", encoding="utf-8") as file:
            file.write(BASE)
        cases = [(m, p, l) for m in models for p in PRECISIONS for l in LAYOUTS]
        for again in range(2):
            for i, (model, precision, layout) in enumerate(cases):
                trained(build, folder, f"r{i}_{again}",
                        MODELS[model] + LAYOUTS[layout] + ["precision=" + precision])
        for i, (model, precision, layout) in enumerate(cases):
            both = [compared(build, hardware, folder, f"r{i}_{again}") for again in range(2)]
            predicted = both[0][0]
            measured = (both[0][1] + both[1][1]) / 2
            ranks = 1 if layout == "1" else 4 if layout == "tp2 dp2" else 2
            rows.append({"model": model, "precision": precision, "layout": layout, "ranks": ranks,
                         "predicted": predicted, "measured": measured,
                         "error": predicted / measured - 1,
                         "noise": abs(both[0][1] - both[1][1]) / measured,
                         "traffic_differs": bool(both[0][2] or both[1][2])})
    print(f"{'model':14} {'type':5} {'layout':9} {'predicted':>10} {'measured':>9} {'error':>7} "
          f"{'noise':>6}   (ms)")
    for row in rows:
        print(f"{row['model']:14} {row['precision']:5} {row['layout']:9} {row['predicted']:10.2f} "
              f"{row['measured']:9.2f} {row['error']:+7.1%} {row['noise']:6.1%}")
    summary("ranks that have a CPU each", [r for r in rows if r["ranks"] <= cpus])
    crowded = [r for r in rows if r["ranks"] > cpus]
    if crowded:
        summary("more ranks than CPUs", crowded)
    print("traffic: calls and bytes differ in", sum(r["traffic_differs"] for r in rows), "runs")


main()
