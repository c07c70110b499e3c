#!/usr/bin/env python3
"""bench_tables.py BENCH: the table of `bench collectives` and its JSON say the same, count sizes and
bandwidths as nccl-tests does, and cover every group of the layout; `bench step` says where a step's
time goes."""

import json
import pathlib
import subprocess
import sys
import tempfile

LAYERS = 4  # the default
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]


def bench(folder, mode, *arguments):
    (folder / "small.yaml").write_text(
        "device: cpu\ndata: {format: synthetic}\ntrain: {micro_batch: 1, global_batch: 2, eval_every: 0}\n")
    return subprocess.run([pathlib.Path(sys.argv[1]).resolve(), mode, "--config", "small.yaml", *arguments],
                          cwd=folder, capture_output=True, text=True)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        done = bench(folder, "collectives", "--json", "out.json", "--set", "parallel.tp=1", "--set", "parallel.dp=2")
        assert done.returncode == 0, done.stderr
        found = json.loads((folder / "out.json").read_text())
        assert (found["communicator"], found["tp"], found["dp"]) == ("local", 1, 2), found
        rows = found["collectives"]
        assert [row["op"] for row in rows[::9]] == OPS and len(rows) == 45, len(rows)
        sizes = [1024 * 4**i for i in range(9)]
        for i, row in enumerate(rows):
            assert (row["group"], row["ranks"], row["bytes"]) == ("dp", 2, sizes[i % 9]), row
            assert row["count"] * 4 == row["bytes"] and row["time_us"] > 0, row
            algorithm = row["bytes"] / row["time_us"] / 1e3
            bus = algorithm * {"all_reduce": 1.0, "broadcast": 1.0}.get(row["op"], 0.5)
            assert abs(row["algbw_gb_per_s"] - algorithm) <= 1e-9 * algorithm, row
            assert abs(row["busbw_gb_per_s"] - bus) <= 1e-9 * bus, row
        table = [line.split() for line in done.stdout.splitlines()]
        shown = [words for words in table if len(words) == 6 and words[0].isdigit()]
        assert len(shown) == len(rows)
        for words, row in zip(shown, rows):
            assert [int(words[0]), int(words[1]), words[2]] == [row["bytes"], row["count"], "fp32"]
            assert words[3:] == [f"{row['time_us']:.1f}", f"{row['algbw_gb_per_s']:.3f}",
                                 f"{row['busbw_gb_per_s']:.3f}"], (words, row)

        alone = bench(folder, "collectives", "--set", "parallel.dp=1")
        assert alone.returncode == 2 and "parallel.tp=2" in alone.stderr, alone

        done = bench(folder, "step", "--json", "step.json", "--set", "train.steps=3")
        assert done.returncode == 0, done.stderr
        found = json.loads((folder / "step.json").read_text())
        for phase in ("upload", "forward", "backward", "finish_gradients", "optimizer"):
            assert found[f"{phase}_ms"] > 0, found
            name, ms = phase.replace("_", " "), f"{found[f'{phase}_ms']:.2f} ms"
            line = next(line for line in done.stdout.splitlines() if line.strip().startswith(name + " "))
            assert ms in line and ("of the roof" in line) == (phase in ("forward", "backward")), line
        assert found["collectives"] == found["ledger_fraction"] == 0 and "ledger" not in done.stdout, found

        done = bench(folder, "step", "--json", "step.json", "--set", "train.steps=3", "--set", "parallel.dp=2",
                     "--set", "parallel.tp=1")
        assert done.returncode == 0, done.stderr
        found = json.loads((folder / "step.json").read_text())
        # Two of the control group, and a bucket for each block, the embedding, the head and the vectors.
        assert found["collectives"] == 2 + 3 + LAYERS, found
        cost = found["collectives"] * found["ledger_ns"] / 1e6 / found["step_ms"]
        assert found["ledger_ns"] > 0 and abs(found["ledger_fraction"] - cost) <= 1e-9, found
        line = next(line for line in done.stdout.splitlines() if line.strip().startswith("ledger "))
        assert f"{found['collectives']:.0f} collectives" in line and f"{100 * cost:.4f} %" in line, line
    print("tables and JSON say the same")


main()
