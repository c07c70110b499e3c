#!/usr/bin/env python3
"""cuda_build.py TRAIN CONFIG: what a build with CUDA promises where there is none: programs that do not
link it, and, without a driver, the CPU under `device: auto` and exit code 2 in words under `cuda`."""

import ctypes
import subprocess
import sys
import tempfile

SMALL = ["--steps", "1",
         "--set", "data={format: synthetic, path: null, seq_len: 16}",
         "--set", "model={hidden: 32, ffn: 64, layers: 1}",
         "--set", "train={micro_batch: 2, global_batch: 2, eval_every: 0}"]


def train(device, folder):
    program, config = sys.argv[1:]
    return subprocess.run([program, "--config", config, *SMALL, "--set", f"device={device}",
                           "--set", f"log.dir={folder}"],
                          capture_output=True, text=True, timeout=60, check=False)


def driver_is_here():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def main():
    program = sys.argv[1]
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    cuda = [line.split()[0] for line in linked.splitlines()
            if line.split()[0].startswith(("libcu", "libnccl", "libtandem_cuda"))]
    if cuda or "libtandem.so" not in linked:
        sys.exit(f"{program} links {cuda} of:\n{linked}")
    if driver_is_here():
        print("there is a driver here: nothing to fall back from")
        return
    with tempfile.TemporaryDirectory() as folder:
        fallen = train("auto", folder)
        if fallen.returncode != 0 or "cuda" in fallen.stdout:
            sys.exit(f"auto: exit {fallen.returncode}\n{fallen.stdout}{fallen.stderr}")
        refused = train("cuda", folder)
        words = "device: cuda: there is no NVIDIA driver on this host"
        if refused.returncode != 2 or words not in refused.stderr:
            sys.exit(f"cuda: exit {refused.returncode}\n{refused.stdout}{refused.stderr}")


main()
