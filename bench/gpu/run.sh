#!/usr/bin/env bash
# Tests and times the kernels on this machine's GPU, in under nine minutes. Needs nvcc, CMake and Python; PyTorch is compared
# with where it is there. Nothing is downloaded.
#
#   bench/gpu/run.sh [OUT]           default build/gpu; OUT gets conformance.log, memcheck.log, racecheck.log, bench*.log, bench*.json, graphs.log, graphs.json, torch.json
#   bench/gpu/run.sh --codes [OUT]   the index of 100 million rows alone: codes.log, codes.json. The host needs 32 GB
set -uo pipefail
cd "$(dirname "$0")/../.."
codes=0
if [[ ${1:-} == --codes ]]; then
  codes=1
  shift
fi
out=$(realpath -m "${1:-build/gpu}")
build=$(realpath -m build/gpu)
mkdir -p "$out"
started=$SECONDS
most=540
say() { echo "== $1 ($((SECONDS - started)) s)"; }

# within SECONDS COMMAND: no longer than that, and than all may take
within() {
  local left=$((most - SECONDS + started)) limit=$1
  shift
  timeout $((left < 1 ? 1 : left < limit ? left : limit)) "$@"
}

command -v nvcc >/dev/null || { echo "bench/gpu/run.sh: no nvcc on this machine"; exit 3; }
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
[[ -n $capability ]] || { echo "bench/gpu/run.sh: no NVIDIA GPU on this machine"; exit 3; }
[[ $capability == 90 ]] && capability=90a
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/machine.txt"
git rev-parse HEAD 2>/dev/null | tee -a "$out/machine.txt"

say "build for sm_$capability"
targets=()
((codes)) && targets=(--target gpu_builds)
cmake -S bench/gpu -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES="$capability-real" >"$out/build.log" 2>&1 &&
  cmake --build "$build" -j "$(nproc)" "${targets[@]}" >>"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }

failed=0
if ((codes)); then
  say "an index of codes"
  within "$most" "$build/gpu_builds" --codes --json "$out/codes.json" 2>&1 | tee "$out/codes.log" || failed=1
  say "done"
  exit $failed
fi
say "conformance"
within 150 "$build/gpu_conformance" >"$out/conformance.log" 2>&1 || failed=1
tail -n 5 "$out/conformance.log"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    say "$tool"
    within 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/gpu_conformance" \
      SelectRows.takes first_self samples_may joins_are_scans 2>&1 | tail -n 30 | tee "$out/$tool.log" | tail -n 3
    [[ ${PIPESTATUS[0]} == 0 ]] || failed=1
  done
fi
say "timings"
within 200 "$build/gpu_bench" --json "$out/bench.json" 2>&1 | tee "$out/bench.log" || failed=1
say "graphs"
within 60 "$build/gpu_builds" --graphs --json "$out/graphs.json" 2>&1 | tee "$out/graphs.log" || failed=1
say "the same searches by mma.sync"
GIGAKNN_WARPGROUPS=0 within 60 "$build/gpu_bench" --search --json "$out/bench_mma.json" 2>&1 | tee "$out/bench_mma.log" || failed=1
if python3 -c 'import torch' 2>/dev/null; then
  say "PyTorch"
  within 60 python3 bench/gpu/torch_peer.py "$out/torch.json" || failed=1
fi
say "done"
exit $failed
