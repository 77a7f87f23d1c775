#!/usr/bin/env bash
# Tests and times the kernels on this machine's GPU, in under nine minutes. Needs nvcc, CMake and Python; PyTorch is compared
# with where it is there. Nothing is downloaded.
#
#   bench/gpu/run.sh [OUT]     default build/gpu; OUT gets conformance.log, sanitizer.log, bench*.log, bench*.json, torch.json
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-build/gpu}")
build=$(realpath -m build/gpu)
mkdir -p "$out"
started=$SECONDS
say() { echo "== $1 ($((SECONDS - started)) s)"; }

command -v nvcc >/dev/null || { echo "bench/gpu/run.sh: no nvcc on this machine"; exit 3; }
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
[[ -n $capability ]] || { echo "bench/gpu/run.sh: no NVIDIA GPU on this machine"; exit 3; }
[[ $capability == 90 ]] && capability=90a
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/machine.txt"
git rev-parse HEAD 2>/dev/null | tee -a "$out/machine.txt"

say "build for sm_$capability"
cmake -S bench/gpu -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES="$capability-real" >"$out/build.log" 2>&1 &&
  cmake --build "$build" -j "$(nproc)" >>"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }

failed=0
say "conformance"
timeout 150 "$build/gpu_conformance" >"$out/conformance.log" 2>&1 || failed=1
tail -n 5 "$out/conformance.log"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    say "$tool"
    timeout 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/gpu_conformance" \
      SelectRows.takes first_self 2>&1 | tail -n 30 | tee "$out/$tool.log" | tail -n 3
    [[ ${PIPESTATUS[0]} == 0 ]] || failed=1
  done
fi
say "timings"
timeout 200 "$build/gpu_bench" --json "$out/bench.json" 2>&1 | tee "$out/bench.log" || failed=1
say "the same searches by mma.sync"
GIGAKNN_WARPGROUPS=0 timeout 60 "$build/gpu_bench" --search --json "$out/bench_mma.json" 2>&1 | tee "$out/bench_mma.log" || failed=1
if python3 -c 'import torch' 2>/dev/null; then
  say "PyTorch"
  timeout 60 python3 bench/gpu/torch_peer.py "$out/torch.json" || failed=1
fi
say "done"
exit $failed
