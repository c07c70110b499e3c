#!/usr/bin/env python3
"""tensorboard_events.py TRAIN: event files of a run, of the run that goes on from it, and of one that
starts afresh in its place, read by a reader of their own and, where it is installed, by TensorBoard:
all scalars of metrics.jsonl are there, and steps that were taken again are there once."""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

CONFIG = """
device: cpu
threads: 1
model: {vocab_size: 16, context: 2, hidden: 8, ffn: 16, layers: 1}
data: {format: synthetic, seq_len: 8, documents: packed, valid_fraction: 0.5}
train: {steps: 4, micro_batch: 1, global_batch: 2, eval_every: 2}
optim: {schedule: {warmup_steps: 0, decay_steps: 0}}
checkpoint: {every: 2}
log: {tensorboard: true}
"""
SCALARS = {"loss": "loss", "grad_norm": "grad_norm", "lr": "lr", "valid_loss": "valid_loss",
           "speed/step_ms": "step_ms", "speed/tokens_per_s": "tokens_per_s",
           "speed/roof_fraction": "roof_fraction", "speed/comm_exposed_ms": "comm_exposed_ms"}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        head, (size, crc) = data[at : at + 8], struct.unpack_from("<QI", data, at)
        assert crc == masked(head), f"the length at {at} has a wrong checksum"
        body = data[at + 12 : at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(body), f"record at {at}"
        yield body
        at += 16 + size


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of a protocol buffer."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            (value,), at = struct.unpack_from("<d", data, at), at + 8
        elif key & 7 == 5:
            (value,), at = struct.unpack_from("<f", data, at), at + 4
        else:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def scalars(folder):
    """{(tag, step): value} as TensorBoard takes them from the files of a folder in order."""
    found = {}
    for file in sorted(folder.iterdir()):
        assert "tfevents" in file.name, file
        events = [dict(fields(record)) for record in records(file.read_bytes())]
        assert events[0][3] == b"brain.Event:2", events[0]
        for event in events[1:]:
            assert event[1] > 1.6e9, "wall time"
            step = event[2]
            if 7 in event:  # a session log: START
                assert dict(fields(event[7])) == {1: 1}, event
                found = {key: value for key, value in found.items() if key[1] < step}
            for number, value in fields(event.get(5, b"")):
                assert number == 1
                scalar = dict(fields(value))
                found[scalar[1].decode(), step] = scalar[2]
    return found


def expected(file):
    found = {}
    for line in map(json.loads, file.read_text().splitlines()):
        for tag, key in SCALARS.items():
            if line.get(key) is not None:
                found[tag, line["step"]] = line[key]
    return found


def same(found, wanted):
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for key, value in wanted.items():  # times in metrics.jsonl are rounded to microseconds
        assert abs(found[key] - value) <= 1e-6 * abs(value) + 1e-3 * (key[0] == "speed/step_ms") + (
            1e-3 if "exposed" in key[0] else 0.06 if "tokens" in key[0] else 0), (key, found[key], value)


def with_tensorboard(folder):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return None
    events = EventAccumulator(str(folder)).Reload()
    return {(tag, point.step): point.value for tag in events.Tags()["scalars"]
            for point in events.Scalars(tag)}


def main():
    train = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "small.yaml").write_text(CONFIG)
        run = root / "runs" / "small"

        def start(*arguments):
            done = subprocess.run([train, "--config", "small.yaml", *arguments], cwd=root,
                                  capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

        def check(files):
            assert len(list((run / "tensorboard").iterdir())) == files
            wanted = expected(run / "metrics.jsonl")
            assert len(wanted) == 7 * wanted_steps + wanted_steps // 2, wanted.keys()
            same(scalars(run / "tensorboard"), wanted)
            theirs = with_tensorboard(run / "tensorboard")
            if theirs is not None:
                same(theirs, wanted)
            return "as TensorBoard reads them" if theirs is not None else "TensorBoard is not installed"

        wanted_steps = 4
        start()
        check(files=1)
        # Go on from step 2: steps 3 and 4 are taken again, and two more.
        (run / "checkpoints" / "latest").write_text("step_00000002")
        wanted_steps = 6
        start("--steps", "6", "--set", "checkpoint.resume=runs/small/checkpoints/step_00000002")
        how = check(files=2)
        # Afresh: the old ones are kept apart.
        wanted_steps = 2
        start("--steps", "2", "--set", "checkpoint.resume=never")
        check(files=1)
        same(scalars(run / "tensorboard.1"), expected(run / "metrics.1.jsonl"))
        # And without being asked for, none.
        start("--steps", "1", "--set", "checkpoint.resume=never", "--set", "log.tensorboard=false")
        assert not (run / "tensorboard").exists() and (run / "tensorboard.2").exists()
    print(f"events are those of metrics.jsonl; {how}")


main()
