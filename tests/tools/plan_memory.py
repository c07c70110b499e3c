#!/usr/bin/env python3
"""plan_memory.py TRAIN PLAN PRELOAD [FIRST STEP]: predicted memory against the heap's peak.

Trains every model, layout and precision of CASES, ranks as threads and as processes, with an
allocator that counts (tests/support/peak_heap.cpp), and asks `plan` about each: never under, and
within 3 % above for ranks of 64 MiB and more. FIRST and STEP pick every STEP-th case.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BASE = """model: {layers: 4}
data: {format: synthetic, seq_len: 256}
train: {steps: 2, micro_batch: 1, global_batch: 4, eval_every: 0}
checkpoint: {every: 0}
optim: {lr: 1.0e-4, schedule: {kind: constant, warmup_steps: 0, decay_steps: 0}}
"""
HARDWARE = """name: any
kind: cpu
sources: ["times do not matter here"]
ranks_per_host: 4
memory_gib: 64
reserved_gib: 0
peak_tflops: {fp32: 0, bf16: 0, fp16: 0}
matmul_tflops: {fp32: 0.1, bf16: 0.1, fp16: 0.1}
memory_gb_per_s: 10
range_us: 2
host_link: {latency_us: 10, gb_per_s: 5}
step_us: 0
uncertainty: 0.1
"""
FFN = "model.kind=ffn model.hidden=768 model.ffn=3072"
WIDE = "model.kind=ffn model.hidden=512 model.ffn=8192 model.layers=2"
SWIGLU = "model.kind=ffn model.hidden=640 model.ffn=1792 model.activation=swiglu model.norm=rmsnorm"
LM = "model.hidden=512 model.ffn=2048 model.vocab_size=1024 model.context=8 data.documents=packed"
PADDED_VOCAB = "model.hidden=512 model.ffn=1024 model.vocab_size=1001 model.context=8 data.documents=packed"
ODD = "model.kind=ffn model.hidden=777 model.ffn=2334"
VOCAB = "model.hidden=384 model.ffn=768 model.vocab_size=12000 model.context=4 data.documents=packed"
ONE, TP2, DP2 = "parallel.tp=1", "parallel.tp=2", "parallel.dp=2"
SP = TP2 + " parallel.sequence_parallel=true"
ZERO = DP2 + " parallel.zero=1"
BOTH = "parallel.tp=2 parallel.dp=2"
SAVE = " checkpoint.every=1"
LONG = " train.micro_batch=2 data.seq_len=512"
CASES = [  # processes (0: threads), settings
    (0, FFN, ONE), (0, FFN, TP2), (2, FFN, SP), (0, FFN + LONG, DP2), (2, FFN, ZERO),
    (0, FFN, ONE + " precision=bf16"), (2, FFN, TP2 + " precision=bf16"), (0, FFN, ONE + SAVE),
    (0, FFN + LONG, ZERO + " precision=fp16"), (2, FFN, DP2 + SAVE), (0, FFN, "parallel.tp=4"),
    (4, FFN, BOTH), (0, FFN, SP + " precision=bf16" + SAVE), (0, WIDE, ONE), (2, WIDE, TP2),
    (0, WIDE, DP2 + " precision=bf16"), (2, WIDE, ZERO + SAVE), (0, SWIGLU, ONE), (0, SWIGLU, SP),
    (2, SWIGLU, DP2), (0, SWIGLU + LONG, TP2 + " precision=bf16"),
    (2, SWIGLU, ZERO + " precision=bf16" + SAVE), (0, LM, ONE + " train.eval_every=2"),
    (0, LM, TP2 + SAVE), (2, LM, DP2 + " precision=bf16"), (2, LM, SP), (0, VOCAB, ONE),
    (0, VOCAB, TP2 + " precision=bf16"), (2, ODD, DP2 + " precision=bf16"), (2, VOCAB, ZERO),
    (2, VOCAB, TP2 + SAVE), (2, PADDED_VOCAB, TP2 + SAVE),
    (0, LM + " data.documents=padded", ONE + " precision=bf16"),
    (2, PADDED_VOCAB, TP2 + " precision=bf16"), (0, FFN + " data.seq_len=768", TP2 + " precision=bf16"),
    (2, FFN + " data.seq_len=2048 train.global_batch=2", DP2 + " precision=bf16"),
]
MPIRUN = str(pathlib.Path(__file__).parents[2] / "scripts/mpirun.sh")
SMALL = 64 << 20


def of(settings, key, default):
    values = [s.split("=", 1)[1] for s in settings if s.startswith(key + "=")]
    return values[-1] if values else default


def counted(train, preload, folder, settings, processes):
    """The heap's peak of a process, the largest of all."""
    command = [train, "--config", folder + "/base.yaml", "--set", "name=run"]
    for setting in settings + ["log.dir=" + folder, "checkpoint.resume=never"]:
        command += ["--set", setting]
    peak = folder + "/peak"
    environment = dict(os.environ, TANDEM_PEAK_HEAP=peak)
    if processes:
        command = [MPIRUN, str(processes), "-x", "TANDEM_PEAK_HEAP", "-x",
                   "LD_PRELOAD=" + preload] + command
    else:
        environment["LD_PRELOAD"] = preload
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    if outcome.returncode != 0:
        raise SystemExit(f"{command}: {outcome.stdout}{outcome.stderr}")
    peaks = []
    for rank in range(max(1, processes)):
        with open(f"{peak}.{rank}", encoding="utf-8") as file:
            peaks.append(int(file.read()))
    return max(peaks)


def predicted(plan, folder, settings, processes):
    """Of a process: a rank, or all of them."""
    out = folder + "/plan.json"
    command = [plan, "--config", folder + "/base.yaml", "--hardware",
               folder + "/any.yaml", "--json", out]
    for setting in settings + ["parallel.comm=" + ("mpi" if processes else "local")]:
        command += ["--set", setting]
    subprocess.run(command, check=True, capture_output=True)
    tp, dp = int(of(settings, "parallel.tp", 1)), int(of(settings, "parallel.dp", 1))
    wanted = (tp, dp, int(of(settings, "parallel.zero", 0)),
              of(settings, "parallel.sequence_parallel", "false") == "true",
              int(of(settings, "train.micro_batch", 1)))
    with open(out, encoding="utf-8") as file:
        layouts = json.load(file)["layouts"]
    layout = next(l for l in layouts if wanted == (l["tp"], l["dp"], l["zero"],
                                                   l["sequence_parallel"], l["micro_batch"]))
    return layout["memory_bytes"] * (1 if processes else tp * dp), layout["memory_bytes"]


def main():
    train, plan, preload = sys.argv[1:4]
    first, step = (int(a) for a in sys.argv[4:6] or (0, 1))
    wrong = 0
    print("processes  predicted    counted   off   settings     (MiB)")
    for processes, model, layout in CASES[first::step]:
        settings = (model + " " + layout).split()
        settings.append("threads=" + ("2" if layout.startswith(ONE) else "1"))
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/base.yaml", "w", encoding="utf-8") as file:
                file.write(BASE)
            with open(folder + "/any.yaml", "w", encoding="utf-8") as file:
                file.write(HARDWARE)
            there = counted(train, preload, folder, settings, processes)
            said, of_rank = predicted(plan, folder, settings, processes)
        off = said / there - 1
        bad = off < 0 or (off > 0.03 and of_rank >= SMALL)
        wrong += bad
        print(f"{processes or '-':>9} {said / 2**20:10.2f} {there / 2**20:10.2f} {off:+6.2%}  "
              f"{' '.join(settings)}{'   WRONG' if bad else ''}", flush=True)
    if wrong:
        sys.exit(f"{wrong} cases are off")


main()
