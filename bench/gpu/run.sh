#!/usr/bin/env bash
# Tests and times the kernels on this machine's GPU, in under nine minutes. Needs nvcc, CMake and Python; PyTorch is compared
# with where it is there. Nothing is downloaded.
#
#   bench/gpu/run.sh [OUT]           default build/gpu; OUT gets conformance.log, memcheck.log, racecheck.log, bench*.log, bench*.json, graphs*.log, graphs*.json, torch.json
#   bench/gpu/run.sh --codes [OUT]   the index of 100 million rows alone: codes.log, codes.json. The host needs 32 GB; on an H200 it took 160 s before the first search
#
# GIGAKNN_GPU_BUILD=DIR: the programs are there, built elsewhere (cmake -S bench/gpu ... -DCMAKE_CUDA_ARCHITECTURES=90a-real
# -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc" runs on machines with another standard library).
# GIGAKNN_KERNEL_TIMES=1: what each kernel took; everything is slower then.
set -uo pipefail
cd "$(dirname "$0")/../.."
codes=0
if [[ ${1:-} == --codes ]]; then
  codes=1
  shift
fi
out=$(realpath -m "${1:-build/gpu}")
build=$(realpath -m "${GIGAKNN_GPU_BUILD:-build/gpu}")
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

if [[ -z ${GIGAKNN_GPU_BUILD:-} ]]; then
  say "build for sm_$capability"
  targets=()
  ((codes)) && targets=(--target gpu_builds)
  cmake -S bench/gpu -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES="$capability-real" >"$out/build.log" 2>&1 &&
    cmake --build "$build" -j "$(nproc)" "${targets[@]}" >>"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }
fi

failed=0
if ((codes)); then
  say "an index of codes"
  within "$most" "$build/gpu_builds" --codes --json "$out/codes.json" 2>&1 | tee "$out/codes.log" || failed=1
  say "done"
  exit $failed
fi
say "conformance"
# Each test by a process of its own, which a kernel that fails or hangs takes down alone.
test_alone() { timeout 60 "$1" "$3" >"$2/${3//\//_}" 2>&1 || echo "FAILED $3"; }
export -f test_alone
tests=$(mktemp -d)
"$build/gpu_conformance" --list | sed -E 's,/[^/]*$,/,' | sort -u >"$tests/names"
within 150 xargs -P "$(nproc)" -I{} bash -c 'test_alone "$0" "$1" "{}"' "$build/gpu_conformance" "$tests" <"$tests/names" | tee "$tests/failed" || failed=1
[[ -s $tests/failed ]] && failed=1
[[ -s $tests/names ]] || failed=1
{ cat "$tests/failed"; grep -H "tests ran\|expected\|exception" "$tests"/*[A-Za-z_] | sed "s,^$tests/,,"; } >"$out/conformance.log"
echo "$(grep -c "tests ran" "$out/conformance.log") of $(wc -l <"$tests/names") groups of tests ran, $(grep -c FAILED "$tests/failed") failed"
rm -r "$tests"
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
GIGAKNN_WARPGROUPS=0 within 60 "$build/gpu_bench" --only search --json "$out/bench_mma.json" 2>&1 | tee "$out/bench_mma.log" || failed=1
say "the same by scan_streamed"
{
  GIGAKNN_WARPGROUPS=2 within 40 "$build/gpu_conformance" GpuSearch. symmetric_graphs &&
    GIGAKNN_WARPGROUPS=2 within 40 "$build/gpu_bench" --only search --json "$out/bench_streamed.json" &&
    GIGAKNN_WARPGROUPS=2 within 40 "$build/gpu_builds" --graphs --json "$out/graphs_streamed.json"
} 2>&1 | tee "$out/bench_streamed.log" | grep -v "tests ran"
[[ ${PIPESTATUS[0]} == 0 ]] || failed=1
if python3 -c 'import torch' 2>/dev/null; then
  say "PyTorch"
  within 60 python3 bench/gpu/torch_peer.py "$out/torch.json" || failed=1
fi
say "done"
exit $failed
