#!/usr/bin/env python3
"""terminal.py TRAIN: what somebody sees who watches a run on a terminal (a pseudo-terminal here), and
what a file gets: a bar with the time left in the one, plain lines in the other, the same lines in
both, warnings between the bars, and a summary at the end."""

import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile

CONFIG = """
device: cpu
threads: 1
model: {vocab_size: 16, context: 2, hidden: 8, ffn: 16, layers: 1}
data: {format: synthetic, seq_len: 8, documents: packed, valid_fraction: 0}
train: {steps: 6, micro_batch: 1, global_batch: 2}
optim: {schedule: {warmup_steps: 0, decay_steps: 0}}
log: {every: 3}
"""
CLEAR = "\r\x1b[K"


def on_terminal(command, folder, errors_too=False):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, stdout=theirs,
                               stderr=theirs if errors_too else subprocess.PIPE)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux's way to say that the other side is closed
            break
        if not part:
            break
        text += part
    assert process.wait() == 0, text if errors_too else process.stderr.read()
    if not errors_too:
        process.stderr.close()
    return text.decode().replace("\r\n", "\n")


def without_times(text):
    return re.sub(r" +\S+( k| M)? tokens/s.*|in \d+ s$|speed .*|roof .*|lr \S+", "", text, flags=re.M)


def main():
    train = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "small.yaml").write_text(CONFIG)
        command = [train, "--config", "small.yaml"]

        plain = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
        assert "\r" not in plain and "\x1b" not in plain, repr(plain)
        lines = plain.splitlines()
        assert lines[0] == "tandem train: small", lines[0]
        assert [line.split()[1] for line in lines if line.startswith("step ")] == ["1/6", "3/6", "6/6"]
        summary = plain[plain.index("trained small") :]
        for row in ("for 6 steps on 96 tokens", "speed ", "loss ", "metrics runs/small/metrics.jsonl"):
            assert row in summary, f"no {row!r} in {summary}"

        watched = on_terminal(command, folder)
        bars = re.findall(r"\[(=*)>( *)\] (\d)/6  \d+ s left", watched)
        assert [int(step) for _, _, step in bars] == [1, 2, 3, 4, 5], watched  # none behind the last
        assert all(len(done) == 40 * int(step) // 6 and len(done) + len(left) == 40
                   for done, left, step in bars), bars
        # Every bar is wiped before what follows it: what stays are the lines of the plain output.
        stays = re.sub(re.escape(CLEAR) + r"\[[^\n\r]*left(?=\r)", "", watched).replace(CLEAR, "")
        assert without_times(stays) == without_times(plain), (stays, plain)

        # Far too small for the roof: the warning of it begins a line of its own.
        warned = on_terminal([*command, "--steps", "25"], folder, errors_too=True)
        assert len(re.findall(r"left" + re.escape(CLEAR) + r"(\x1b\[[0-9;]*m)*warning", warned)) == 1, repr(warned)

        dry = subprocess.run([*command, "--dry-run", "--set", "name=dry"], cwd=folder,
                             capture_output=True, text=True, check=True).stdout
        assert dry.startswith("tandem train: dry") and "memory" in dry, dry
        assert not (folder / "runs" / "dry").exists()
    print("a terminal shows a bar, a file does not")


main()
