#!/usr/bin/env python3
"""Recomputes recorded training runs with PyTorch and compares (see parity_test.cpp).

    torch_reference.py RUNS.json

Everything is computed in double on one rank from the recorded initial weights and rows: the model
from its formulas (docs/maths.md), gradients by autograd, clipping by clip_grad_norm_, updates by
torch.optim.AdamW with decay on matrices only. Weights are [out, in], the embedding is
[context, vocab, hidden], the head [vocab, hidden], swiglu's fc1 [gate; up].

The error of a tensor is the 2-norm of the difference over the 2-norm of PyTorch's. Exit 1 if one is
above LIMIT.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F

LIMIT = 1e-5


def shapes_of(model):
    """Name -> shape of every parameter the model must have."""
    hidden, ffn = model["hidden"], model["ffn"]
    fc1 = 2 * ffn if model["activation"] == "swiglu" else ffn
    shapes = {}

    def norm(name):
        shapes[name + ".weight"] = (hidden,)
        if model["norm"] == "layernorm":
            shapes[name + ".bias"] = (hidden,)

    for i in range(model["layers"]):
        layer = f"layers.{i}."
        norm(layer + "norm")
        shapes[layer + "fc1.weight"] = (fc1, hidden)
        shapes[layer + "fc2.weight"] = (hidden, ffn)
        if model["bias"]:
            shapes[layer + "fc1.bias"] = (fc1,)
            shapes[layer + "fc2.bias"] = (hidden,)
    if model["kind"] == "mlp_lm":
        shapes["embed.weight"] = (model["context"], model["vocab_size"], hidden)
        norm("norm")
        shapes["head.weight"] = (model["vocab_size"], hidden)
    return shapes


def normalised(model, w, name, x):
    weight, eps = w[name + ".weight"], model["norm_eps"]
    if model["norm"] == "layernorm":
        return F.layer_norm(x, (model["hidden"],), weight, w[name + ".bias"], eps)
    return x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + eps) * weight


def activated(model, x):
    if model["activation"] == "gelu":
        return F.gelu(x, approximate="tanh")
    if model["activation"] == "relu":
        return F.relu(x)
    gate, up = x.chunk(2, dim=1)
    return F.silu(gate) * up


def blocks(model, w, x):
    for i in range(model["layers"]):
        layer = f"layers.{i}."
        n = normalised(model, w, layer + "norm", x)
        a = activated(model, F.linear(n, w[layer + "fc1.weight"], w.get(layer + "fc1.bias")))
        x = x + F.linear(a, w[layer + "fc2.weight"], w.get(layer + "fc2.bias"))
    return x


def loss_sum(model, w, batch):
    """The sum of the losses of a micro-batch's tokens."""
    rows = batch["rows"]
    if model["kind"] == "ffn":
        shape = (rows, model["hidden"])
        x = torch.tensor(batch["input"], dtype=torch.float64).view(shape)
        expected = torch.tensor(batch["expected"], dtype=torch.float64).view(shape)
        squares = ((blocks(model, w, x) - expected) ** 2)[: batch["tokens"]]
        return squares.mean(dim=1).sum()
    ids = torch.tensor(batch["ids"]).view(rows, model["context"])
    targets = torch.tensor(batch["targets"])
    x = torch.zeros(rows, model["hidden"], dtype=torch.float64)
    for j in range(model["context"]):
        known = ids[:, j] >= 0
        history = w["embed.weight"][j][ids[:, j].clamp(min=0)]
        x = x + history * known.unsqueeze(1)
    x = normalised(model, w, "norm", blocks(model, w, x))
    logits = F.linear(x, w["head.weight"])
    return F.cross_entropy(logits, targets.long(), ignore_index=-1, reduction="sum")


def learning_rate(optim, update):
    warmup, decay = optim["warmup_steps"], optim["decay_steps"]
    if update <= warmup:
        return optim["lr"] * update / warmup
    part = min(1.0, (update - warmup) / (decay - warmup))
    return optim["min_lr"] + (optim["lr"] - optim["min_lr"]) * (1 + math.cos(math.pi * part)) / 2


class Comparison:
    def __init__(self, run):
        self.run = run
        self.worst = {}
        self.failed = False

    def hold(self, what, name, got, expected):
        norm = torch.linalg.vector_norm(expected).item()
        difference = torch.linalg.vector_norm(got - expected).item()
        error = difference / norm if norm > 0 else difference
        if error >= self.worst.get(what, (-1.0, ""))[0]:
            self.worst[what] = (error, name)
        if not error <= LIMIT:  # NaN fails
            self.failed = True
            print(f"{self.run}: {what} {name}: error {error:.2e}, limit {LIMIT:.0e}")

    def number(self, what, step, got, expected):
        as_tensor = [torch.tensor([x], dtype=torch.float64) for x in (got, expected)]
        self.hold(what, f"of step {step}", *as_tensor)


def check(run):
    config, steps = run["config"], run["steps"]
    model, optim = config["model"], config["optim"]
    shapes = shapes_of(model)
    for kind in ("initial", "first_gradients", "last_gradients", "weights"):
        if set(run[kind]) != set(shapes):
            odd = sorted(set(run[kind]) ^ set(shapes))
            sys.exit(f"{run['name']}: {kind} has other parameters than the model: {odd}")

    def recorded(kind, name):
        return torch.tensor(run[kind][name], dtype=torch.float64).view(shapes[name])

    w = {name: recorded("initial", name).requires_grad_() for name in shapes}
    matrices = [p for p in w.values() if p.dim() > 1]
    vectors = [p for p in w.values() if p.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": optim["weight_decay"]},
        {"params": vectors, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=1.0, betas=tuple(optim["betas"]), eps=optim["eps"])

    comparison = Comparison(run["name"])
    clipped = 0
    for number, (step, batches) in enumerate(zip(steps, run["micro_batches"]), start=1):
        tokens = sum(batch["tokens"] for batch in batches)
        comparison.number("tokens", number, step["tokens"], tokens)
        adamw.zero_grad()
        loss = sum(loss_sum(model, w, batch) for batch in batches if batch["rows"] > 0) / tokens
        loss.backward()
        comparison.number("loss", number, step["loss"], loss.item())
        recorded_gradients = {1: "first_gradients", len(steps): "last_gradients"}.get(number)
        if recorded_gradients:
            for name, p in w.items():
                comparison.hold("gradient", f"{name} of step {number}",
                                recorded(recorded_gradients, name), p.grad)
        norm = torch.nn.utils.clip_grad_norm_(w.values(), config["clip_grad_norm"]).item()
        clipped += norm > config["clip_grad_norm"]
        comparison.number("norm", number, step["grad_norm"], norm)
        rate = learning_rate(optim, number)
        comparison.number("rate", number, step["lr"], rate)
        for group in adamw.param_groups:
            group["lr"] = rate
        adamw.step()
    for name, p in w.items():
        initial = recorded("initial", name)
        comparison.hold("weight", name, recorded("weights", name), p.detach())
        comparison.hold("change", name, recorded("weights", name) - initial,
                        p.detach() - initial)
    if not clipped:
        comparison.failed = True
        print(f"{run['name']}: no step was clipped: nothing is known of clipping")
    worst = ", ".join(f"{what} {error:.1e}" for what, (error, _) in comparison.worst.items())
    print(f"{model['kind']} {model['activation']} {model['norm']} {run['name']}: {len(steps)} steps, "
          f"{clipped} clipped; worst errors: {worst}")
    return not comparison.failed


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = json.load(file)
    torch.set_num_threads(1)
    results = [check(run) for run in runs]
    if not results or not all(results):
        sys.exit(1)


if __name__ == "__main__":
    main()
