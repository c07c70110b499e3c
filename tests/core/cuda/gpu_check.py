#!/usr/bin/env python3
"""gpu_check.py SOURCE: runs scripts/gpu_check.sh where driver, tools and programs are stand-ins, and
checks what it promises whatever the machine: the time limits, those of programs that do not end when
they are asked to, add up to less than eight minutes, every check has a line and an entry in JSON that
can be read, one failure is exit code 1, and only GPUs that the caller gave are used."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

LIMIT_S = 480
AWKWARD = 'path C:\\temp\t"quoted" \x1b[31m loss'


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/usr/bin/env bash\n" + text)
    file.chmod(0o755)


def run(source, folder, gpus, train, visible=None):
    tools, build = folder / "tools", folder / "build"
    write(tools / "nvidia-smi", f"""
if [ "$1" = --query-gpu=index ]; then seq 0 {gpus - 1}; exit; fi
[ "$1" = -i ] && echo "$2" >{folder}/asked && echo 'NVIDIA "H"200, 570.1, 9.0'""")
    write(tools / "timeout", f"""
[[ $1 = --kill-after=* ]] || exit 99
echo $((${{1#*=}} + $2)) >>{folder}/limits
shift 2
exec "$@\"""")
    write(tools / "compute-sanitizer", 'echo "ERROR SUMMARY: 0 errors"')
    for test in ("kernel_test", "parallel_local_test"):
        write(build / "tests" / test, 'echo "[  PASSED  ] 7 tests."')
    write(build / "verify", "echo all right")
    write(build / "train", train)
    write(build / "bench", """
while [ "$1" != --json ]; do shift; done
printf '{\\n  "gflops": 700000,\\n  "copy_gb_per_s": 4000,\\n  "step_ms": 250.5\\n}\\n' >"$2"
echo matmul""")
    write(build / "lib" / "libtandem_cuda.so", "")
    (folder / "limits").write_text("")
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    done = subprocess.run([source / "scripts/gpu_check.sh", build], env=environment, text=True,
                          capture_output=True, timeout=60, check=False)
    report = json.loads((build / "gpu_check.json").read_text())
    limits = [int(line) for line in (folder / "limits").read_text().split()]
    return done, report, limits


def expect(condition, what, done):
    if not condition:
        sys.exit(f"{what}\n{done.stdout}\n{done.stderr}")


def main():
    source = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        done, report, limits = run(source, folder, gpus=2, train=f"echo '{AWKWARD}'")
        expect(done.returncode == 0 and report["pass"], "all checks pass, and yet", done)
        expect(sum(limits) < LIMIT_S, f"the limits add up to {sum(limits)} s", done)
        expect(report["gpu"] == 'NVIDIA "H"200' and report["driver"] == "570.1", report, done)
        for check in report["checks"]:
            lines = [line for line in done.stdout.splitlines() if line.startswith(check["check"])]
            expect(len(lines) == 2, f"{check['check']}: not one line and one of the table", done)
        training = report["checks"][-1]
        expect("NCCL" in training["check"] and training["result"] == "ok", training, done)
        expect('path C:\\temp "quoted"' in training["detail"], training, done)
        steps = [c for c in report["checks"] if c["check"].startswith("step ")]
        expect(len(steps) == 8 and "250.5 ms, 700.0 TFLOP/s, 1.000 of the roof" in steps[0]["detail"],
               steps, done)

        done, report, _ = run(source, folder, gpus=1, train="echo broken; exit 3")
        expect(done.returncode == 1 and not report["pass"], "training fails, and yet", done)
        failed = [c for c in report["checks"] if c["result"] == "FAILED"]
        expect([c["detail"] for c in failed] == ["exit 3; broken"], failed, done)
        expect(report["checks"][-1]["result"] == "absent", report["checks"][-1], done)

        gpus_of = "echo GPUs $CUDA_VISIBLE_DEVICES, loss"
        for visible, used in (("5,3,0", ["GPUs 5, loss", "GPUs 5,3, loss"]),
                              ("7", ["GPUs 7, loss", "one GPU here"])):
            done, report, _ = run(source, folder, gpus=8, train=gpus_of, visible=visible)
            told = [check["detail"] for check in report["checks"][-2:]]
            expect(told == used, f"{told} where CUDA_VISIBLE_DEVICES={visible}", done)
            asked = (folder / "asked").read_text().strip()
            expect(asked == visible.split(",", maxsplit=1)[0], f"the GPU of the table is {asked}", done)


main()
