#!/usr/bin/env python3
"""The stack of configs/bench_ffn.yaml in PyTorch, as well as PyTorch can run it on CPUs.

    torch_ffn.py --precision fp32 --tp 2 --dp 1 [--threads 1] [--steps 5] [--json FILE]

A block is x + fc2(gelu(fc1(norm(x)))), layer norm and tanh GELU; fc1 is cut by rows and fc2 by columns
over tp ranks, with Megatron's f and g placed by hand; DistributedDataParallel sums gradients over dp
ranks, under no_sync for all micro-batches but the last; then a global norm over all shards, clipping,
AdamW. Ranks are processes that talk through gloo. Timed is the step without making its data, the
first one left out.

PyTorch has several ways to do parts of it. By default those that this version has are tried for a few
steps of one layer and the fastest are measured; --setting names them instead. Prints one JSON object: the keys of
`bench step --json` that both have, the setting, and what refused to run and why.
"""
import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

MODES = {"fp32": ("fp32",), "bf16": ("autocast", "weights")}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=MODES, default="fp32")
    for name, value in (("tp", 1), ("dp", 1), ("threads", 1), ("steps", 5), ("hidden", 1024),
                        ("ffn", 4096), ("layers", 4), ("tokens", 2048), ("micro_batches", 2)):
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    parser.add_argument("--setting", help="such as autocast,fused,eager,same; left out: search")
    parser.add_argument("--json", help="write the result there too")
    parser.add_argument("--about", action="store_true", help="only say which PyTorch and BLAS this is")
    parsed = parser.parse_args()
    if parsed.micro_batches % parsed.dp != 0:
        parser.error(f"--micro-batches {parsed.micro_batches} does not divide by --dp {parsed.dp}")
    if parsed.ffn % parsed.tp != 0:
        parser.error(f"--ffn {parsed.ffn} does not divide by --tp {parsed.tp}")
    return parsed


def blas():
    """The library that PyTorch multiplies floats with."""
    if torch.backends.mkl.is_available():
        return "MKL"
    torch.ones(64, 64) @ torch.ones(64, 64)
    with open("/proc/self/maps") as maps:
        files = {os.path.basename(os.path.realpath(line.split()[-1])) for line in maps
                 if "blas" in line.split()[-1]}
    fast = sorted(name for name in files if name.startswith(("libopenblas", "libblis")))
    return fast[0] if fast else "reference BLAS"


def choices(args):
    """What a setting is made of, in its order, each with its ways."""
    return {
        # bf16: casts at each matmul with weights in fp32; or weights in bf16 alone, without masters.
        "mode": MODES[args.precision],
        "optimizer": ("loop", "foreach", "fused"),
        "run": ("eager", "compile") if hasattr(torch, "compile") else ("eager",),
        # What f and g send: gloo of some versions refuses bf16.
        "wire": ("same", "fp32") if args.precision == "bf16" and args.tp > 1 else ("same",),
    }


def all_reduce(x, group, wire):
    sent = x.float() if wire == "fp32" else x.contiguous()
    dist.all_reduce(sent, group=group)
    return sent.to(x.dtype)


class CopyToTensorParallel(torch.autograd.Function):
    """Megatron's f."""

    @staticmethod
    def forward(ctx, x, group, wire):
        ctx.group, ctx.wire = group, wire
        return x

    @staticmethod
    def backward(ctx, gradient):
        return all_reduce(gradient, ctx.group, ctx.wire), None, None


class ReduceFromTensorParallel(torch.autograd.Function):
    """Megatron's g."""

    @staticmethod
    def forward(ctx, x, group, wire):
        return all_reduce(x, group, wire)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, None


class Block(torch.nn.Module):
    def __init__(self, args, group, wire):
        super().__init__()
        self.group, self.wire = group if args.tp > 1 else None, wire
        self.norm = torch.nn.LayerNorm(args.hidden)
        self.fc1 = torch.nn.Linear(args.hidden, args.ffn // args.tp)
        self.fc2 = torch.nn.Linear(args.ffn // args.tp, args.hidden, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(args.hidden))  # once, after the reduction
        torch.nn.init.normal_(self.fc1.weight, std=0.02)
        torch.nn.init.normal_(self.fc2.weight, std=0.02 / math.sqrt(2 * args.layers))
        torch.nn.init.zeros_(self.fc1.bias)

    def forward(self, x):
        h = self.norm(x)
        if self.group is not None:
            h = CopyToTensorParallel.apply(h, self.group, self.wire)
        h = self.fc2(torch.nn.functional.gelu(self.fc1(h), approximate="tanh"))
        if self.group is not None:
            h = ReduceFromTensorParallel.apply(h, self.group, self.wire)
        return x + (h + self.bias)


class Worker:
    """One rank of the job, with its model, optimizer and data."""

    def __init__(self, args, setting, rank):
        self.args, self.rank = args, rank
        self.mode, optimizer, run, wire = setting.split(",")
        torch.set_num_threads(args.threads)
        torch.manual_seed(1 + rank % args.tp)
        tp_rank, dp_rank = rank % args.tp, rank // args.tp
        self.tp_group = self.group([[d * args.tp + t for t in range(args.tp)]
                                    for d in range(args.dp)], dp_rank)
        dp_group = self.group([[d * args.tp + t for d in range(args.dp)]
                               for t in range(args.tp)], tp_rank)
        model = torch.nn.Sequential(*(Block(args, self.tp_group, wire) for _ in range(args.layers)))
        if self.mode == "weights":
            model = model.to(torch.bfloat16)
        self.parameters = list(model.parameters())
        cut = {id(p) for b in model for p in (b.fc1.weight, b.fc1.bias, b.fc2.weight)}
        self.cut = [p for p in self.parameters if id(p) in cut]
        self.whole = [p for p in self.parameters if id(p) not in cut]
        self.synced = model
        if args.dp > 1:
            self.synced = DistributedDataParallel(model, process_group=dp_group,
                                                  gradient_as_bucket_view=True)
        self.model = torch.compile(self.synced) if run == "compile" else self.synced
        kind = {} if optimizer == "loop" else {optimizer: True}
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                           weight_decay=0.1, **kind)
        torch.manual_seed(100 + dp_rank)
        kind = torch.bfloat16 if self.mode == "weights" else torch.float32
        shape = (args.tokens, args.hidden)
        self.data = [(torch.randn(shape).to(kind), torch.randn(shape).to(kind))
                     for _ in range(args.micro_batches // args.dp)]

    @staticmethod
    def group(groups, mine):
        return [dist.new_group(ranks) for ranks in groups][mine] if dist.is_initialized() else None

    def step(self):
        # Summed over ranks and micro-batches this is the mean over the step; DDP takes an average.
        elements = self.args.tokens * self.args.micro_batches * self.args.hidden
        scale = self.args.dp / elements
        self.optimizer.zero_grad(set_to_none=self.args.dp == 1)
        total = 0.0
        for number, (x, target) in enumerate(self.data):
            last = number + 1 == len(self.data)
            hold = contextlib.nullcontext() if last or self.args.dp == 1 else self.synced.no_sync()
            cast = (torch.autocast("cpu", torch.bfloat16) if self.mode == "autocast"
                    else contextlib.nullcontext())
            with hold:
                with cast:
                    y = self.model(x)
                loss = torch.nn.functional.mse_loss(y.float(), target.float(),
                                                    reduction="sum") * scale
                loss.backward()
            total += loss.item()
        self.clip(1.0)
        self.optimizer.step()
        return total

    def clip(self, limit):
        cut, whole = (sum(p.grad.float().norm() ** 2 for p in of) for of in (self.cut, self.whole))
        if self.args.tp > 1:
            dist.all_reduce(cut, group=self.tp_group)
        factor = (limit / (torch.sqrt(cut + whole) + 1e-6)).clamp(max=1.0).item()
        if factor < 1.0:
            gradients = [p.grad for p in self.parameters]
            if hasattr(torch, "_foreach_mul_"):
                torch._foreach_mul_(gradients, factor)
            else:
                for gradient in gradients:
                    gradient.mul_(factor)

    def time(self, steps):
        """Milliseconds of each step, after one that is not counted."""
        self.step()
        times = []
        for _ in range(steps):
            if dist.is_initialized():
                dist.barrier()
            start = time.perf_counter()
            loss = self.step()
            times.append((time.perf_counter() - start) * 1e3)
        if not math.isfinite(loss):
            raise RuntimeError(f"the loss is {loss}")
        return times


def work(rank, args, setting, steps, meeting, result):
    if args.tp * args.dp > 1:
        dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank,
                                world_size=args.tp * args.dp)
    times = Worker(args, setting, rank).time(steps)
    if rank == 0:
        with open(result, "w") as file:
            json.dump(times, file)
    if dist.is_initialized():
        dist.destroy_process_group()


def measure(args, setting, steps):
    """Times, or the reason why there are none. In processes of its own: nothing stays warm."""
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "times.json")
        try:
            mp.start_processes(work, (args, setting, steps, os.path.join(folder, "meet"), result),
                               nprocs=args.tp * args.dp, start_method="spawn")
        except Exception as error:  # whatever PyTorch says
            lines = [line for line in str(error).splitlines() if line.strip()]
            return None, lines[-1].strip() if lines else type(error).__name__
        with open(result) as file:
            return json.load(file), None


def search(args, tried, refused):
    """Of each choice in turn the fastest, the others as found so far."""
    best = [ways[0] for ways in choices(args).values()]
    one_layer = argparse.Namespace(**{**vars(args), "layers": 1})

    def quickest(place, way):
        setting = ",".join(best[:place] + [way] + best[place + 1:])
        if setting not in tried and setting not in refused:
            times, why = measure(one_layer, setting, 2)
            if times is None:
                refused[setting] = why
            else:
                tried[setting] = round(min(times), 1)
        return tried.get(setting, math.inf)

    for _ in range(2):  # a way may work only beside another one
        for place, ways in enumerate(choices(args).values()):
            best[place] = min(ways, key=lambda way: quickest(place, way))


def main():
    args = arguments()
    if args.about:
        print(json.dumps({"torch": torch.__version__, "blas": blas()}))
        return
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read by the processes that are spawned
    tried, refused = {}, {}
    if args.setting is None:
        search(args, tried, refused)
        if not tried:
            print(json.dumps({"torch": torch.__version__, "refused": refused}))
            sys.exit(1)
    setting = args.setting or min(tried, key=tried.get)
    times, why = measure(args, setting, args.steps)
    if times is None:
        print(json.dumps({"torch": torch.__version__, "refused": {setting: why}}))
        sys.exit(1)
    step_ms = statistics.median(times)
    parameters = args.layers * 2 * args.hidden * args.ffn
    tokens = args.tokens * args.micro_batches
    result = {"torch": torch.__version__, "precision": args.precision, "tp": args.tp, "dp": args.dp,
              "threads": args.threads, "setting": setting, "tokens": tokens,
              "matmul_parameters": parameters, "step_ms": round(step_ms, 3),
              "gflops": round(6 * parameters * tokens / step_ms / 1e6, 2), "tried_ms": tried,
              "refused": refused}
    text = json.dumps(result)
    print(text)
    if args.json:
        with open(args.json, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
