#!/usr/bin/env python3
"""Plants failures in a job of 2 x 2 ranks, one at a time, and reads what a user would: one report on
stderr that names the rank and the collective, the exit code of every rank, and no process left.

    failures.py --job BUILD/tests/faulty_job [--sample N | --every] [--times] [--only TEXT]

Every failure of the table is planted with --every; --sample N takes N of each kind of start (threads,
mpirun), the same ones each time. --times also holds the report to its time: by hand only, since a
busy machine may miss it.
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 1.0  # parallel.timeout_s of the job
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier"]
GROUPS = ["tp", "dp", "control"]
RANKS = 4


class Case:
    def __init__(self, start, kind, rank, group, operation):
        self.start, self.kind, self.rank = start, kind, rank
        self.group, self.operation = group, operation

    def __str__(self):
        return f"{self.start:7} {self.kind:9} rank {self.rank} {self.group:7} {self.operation}"


def table():
    """A mismatch of every kind where the operation has one, spread over groups and ranks; every way
    to stall or die on every rank."""
    cases = []
    for start in ("threads", "mpirun"):
        turn = 0
        for kind in ("skip", "count", "type", "operation", "label", "reduction", "root"):
            for operation in OPERATIONS:
                if (kind in ("count", "type") and operation == "barrier") or \
                   (kind == "count" and operation == "all_to_all") or \
                   (kind == "reduction" and operation not in ("all_reduce", "reduce_scatter")) or \
                   (kind == "root" and operation != "broadcast"):
                    continue
                cases.append(Case(start, kind, turn % RANKS, GROUPS[turn % 3], operation))
                turn += 1
        for rank in range(RANKS):
            cases.append(Case(start, "swap", rank, "tp", "all_reduce"))
        stalls = ["loop", "read", "late", "throw"]
        if start == "mpirun":
            stalls += ["kill", "stop", "exit"]
        for kind in stalls:
            for rank in range(RANKS):
                cases.append(Case(start, kind, rank, GROUPS[turn % 3], OPERATIONS[turn % 6]))
                turn += 1
    return cases


MISMATCHES = ("skip", "count", "type", "operation", "label", "reduction", "root", "swap")


def processes(mark):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"FAILURES_MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


class Outcome:
    pass


def run(case, job, folder):
    """Starts the job, ranks as threads or under mpirun, and waits for its end."""
    config = folder / "job.yaml"
    config.write_text(f"threads: 1\nparallel: {{tp: 2, dp: 2, timeout_s: {TIMEOUT}}}\n"
                      "model: {hidden: 16, ffn: 32, layers: 1, vocab_size: 16, context: 2}\n"
                      "data: {format: synthetic, seq_len: 16}\n"
                      "train: {micro_batch: 1, global_batch: 4}\n")
    mark = folder.name
    environment = dict(os.environ, FAILURES_MARK=mark, OMP_NUM_THREADS="1",
                       FAULT=f"{case.kind} {case.rank} {case.group} {case.operation}")
    command = [str(job), "--config", str(config)]
    if case.start == "mpirun":
        # A shell around each rank keeps its exit code. Once a rank has left, mpirun kills the others
        # within moments: in a session of their own they are left to end by themselves. A stopped
        # one cannot.
        keep = '"$@"; code=$?; echo $code >code.$OMPI_COMM_WORLD_RANK; exit $code'
        alone = [] if case.kind == "stop" else ["setsid", "--wait"]
        command = [str(SOURCE / "scripts/mpirun.sh"), str(RANKS)] + alone + \
            ["sh", "-c", keep, "sh"] + command
    outcome = Outcome()
    outcome.lines = []
    process = subprocess.Popen(command, cwd=folder, env=environment, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, start_new_session=True)

    def read():
        for line in process.stderr:
            outcome.lines.append((time.monotonic(), line.rstrip("\n")))

    reader = threading.Thread(target=read)
    reader.start()
    outcome.hung = False
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        outcome.hung = True
    deadline = time.monotonic() + 5
    while (left := processes(mark)) and time.monotonic() < deadline and not outcome.hung:
        time.sleep(0.02)
    outcome.left = left
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
    reader.join()
    outcome.code = process.returncode
    outcome.codes = {rank: int((folder / f"code.{rank}").read_text() or -1)
                     for rank in range(RANKS) if (folder / f"code.{rank}").exists()}
    at = folder / "fault_at"
    outcome.fault_at = float(at.read_text()) if at.exists() else None
    return outcome


def report_of(outcome):
    """The report's lines joined, and when its first line came."""
    for index, (when, line) in enumerate(outcome.lines):
        if line.startswith("faulty_job: error: "):
            text = [line]
            for _, more in outcome.lines[index + 1:]:
                if not more.startswith("  "):
                    break
                text.append(more)
            return when, "\n".join(text)
    return None, ""


def faults_of(case, outcome, times):
    """What is wrong with the outcome; empty if nothing is."""
    wrong = []
    when, report = report_of(outcome)
    errors = sum("error:" in line for _, line in outcome.lines)
    if errors != 1:
        wrong.append(f"{errors} reports")
    if outcome.hung or outcome.left:
        wrong.append(f"processes left: {outcome.left}")
    if not re.search(rf"ranks? [\d, and]*\b{case.rank}\b", report):
        wrong.append("the rank is not named")
    label = f"`layers.1 {case.group} {case.operation}"
    if case.kind != "swap" and label not in report and label[1:] not in report:
        wrong.append("the collective is not named")
    if case.kind not in MISMATCHES and case.kind != "throw":
        blamed = report.split("\n")[0]
        if f"rank {case.rank} " not in blamed:
            wrong.append("another rank is blamed")
    if case.start == "threads":
        expected = 6 if case.kind == "throw" else 4
        if outcome.code != expected:
            wrong.append(f"exit code {outcome.code} instead of {expected}")
    else:
        own = {"throw": 6, "kill": 137, "exit": 0}.get(case.kind, 4)
        for rank in range(RANKS):
            if case.kind == "stop" and (rank == case.rank or rank not in outcome.codes):
                continue  # its launcher killed it
            expected = own if rank == case.rank else 4
            if outcome.codes.get(rank) != expected:
                wrong.append(f"rank {rank} left with {outcome.codes.get(rank)}, not {expected}")
    if outcome.fault_at is None:
        wrong.append("the fault was never reached")
    elif times and when is not None:
        limit = 1.0 if case.kind in MISMATCHES + ("throw", "kill", "exit") else TIMEOUT + 2.0
        if when - outcome.fault_at > limit:
            wrong.append(f"reported after {when - outcome.fault_at:.2f} s")
    if wrong:
        wrong.append("stderr:\n" + "\n".join(line for _, line in outcome.lines))
    return wrong, None if when is None or outcome.fault_at is None else when - outcome.fault_at


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--sample", type=int, default=12)
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--start", choices=["threads", "mpirun"])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    job = pathlib.Path(options.job).resolve()
    chosen = [case for case in table() if options.start in (None, case.start)]
    if not options.every:
        sampled = []
        for start in ("threads", "mpirun"):
            of_start = [case for case in chosen if case.start == start]
            step = max(1, len(of_start) // options.sample)
            sampled += of_start[step // 2::step][:options.sample]
        chosen = sampled
    chosen = [case for case in chosen if options.only in str(case)]
    failed = 0
    slowest = {}
    for case in chosen:
        with tempfile.TemporaryDirectory(prefix="tandem_failure_") as name:
            outcome = run(case, job, pathlib.Path(name))
        wrong, seconds = faults_of(case, outcome, options.times)
        kind = "mismatch" if case.kind in MISMATCHES else \
            "death" if case.kind in ("kill", "exit", "throw") else "stall"
        slowest[kind] = max(slowest.get(kind, 0.0), seconds or 0.0)
        print(f"{case}: {'ok' if not wrong else 'WRONG'}"
              + ("" if seconds is None else f"  ({seconds:.2f} s)"), flush=True)
        if wrong:
            failed += 1
            print("  " + "\n  ".join(wrong), flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} failures reported right; slowest report: "
          + ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in sorted(slowest.items())))
    sys.exit(1 if failed or not chosen else 0)


main()
