#!/usr/bin/env bash
# failure_soak.sh [CALLS]: plants every failure of the table of tests/failures, holds each report to
# its time, then runs CALLS collectives (1,000,000) on four ranks beside competing load, as threads
# and under mpirun, and counts the reports and warnings: there must be none. By hand, not in CI: it
# takes a quarter of an hour. A busy process for every two CPUs competes: with one for each, a rank
# that waits gives its CPU away for a whole time slice, and a million collectives take an hour.
set -euo pipefail
calls=${1:-1000000}
root=$(cd "$(dirname "$0")/.." && pwd)
job=${JOB:-$root/build/tests/faulty_job}
failed=0
python3 "$root/tests/failures/failures.py" --job "$job" --every --times || failed=1

folder=$(mktemp -d)
trap 'rm -rf "$folder"; kill $(jobs -p) 2>/dev/null || true' EXIT
cat >"$folder/job.yaml" <<'YAML'
threads: 1
parallel: {tp: 2, dp: 2, timeout_s: 60}
model: {hidden: 16, ffn: 32, layers: 1, vocab_size: 16, context: 2}
data: {format: synthetic, seq_len: 16}
train: {micro_batch: 1, global_batch: 4}
YAML
busy=$((($(nproc) + 1) / 2))
for ((i = 0; i < busy; ++i)); do
  (while :; do :; done) &
done
steps=$((calls / 18))  # collectives of a rank in one step of the job
for start in "" "$root/scripts/mpirun.sh 4"; do
  code=0
  (cd "$folder" && STEPS=$steps $start "$job" --config job.yaml) >"$folder/out" 2>&1 || code=$?
  echo "$((steps * 18)) collectives of each rank ${start:+under mpirun }beside $busy busy process(es):" \
    "exit $code, $(grep -cE 'error:|warning:' "$folder/out" || true) reports and warnings"
  if [ "$code" -ne 0 ] || [ -s "$folder/out" ]; then cat "$folder/out"; failed=1; fi
done
exit $failed
