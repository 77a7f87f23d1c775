#!/usr/bin/env bash
# Tests and times the kernels on this machine's GPU, in under nine minutes. Needs nvcc, CMake and Python; PyTorch is compared
# with where it is there. Nothing is downloaded.
#
#   bench/gpu/run.sh [OUT]           default build/gpu; OUT gets conformance.log, bench*.log, bench*.json, graphs*.log, graphs*.json,
#                                    memcheck.log, racecheck.log, torch.json
#   bench/gpu/run.sh --codes [OUT]   the index of 100 million rows alone: codes.log, codes.json. The host needs 32 GB; on an H200 it took
#                                    160 s before the first search
#
# What matters most comes first. A part that there is no time left for is skipped, and one that runs when the time is up is cut off: both
# are said in the end, and are no failures; nor is a sanitizer that is slow, or does not know the machine. The JSON file of a part that was cut off has the rows until then, and "finished": false.
#
# GIGAKNN_GPU_BUILD=DIR: the programs are there, built elsewhere (cmake -S bench/gpu ... -DCMAKE_CUDA_ARCHITECTURES=90a-real
# -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc" runs on machines with another standard library).
# GIGAKNN_KERNEL_TIMES=1: what each kernel took; everything is slower then.
# bench/gpu/figures.py OUT draws what is in OUT, there or elsewhere.
# GIGAKNN_ARCHIVE=FILE: all logs and JSON files of OUT as one .tar.gz as well, made anew after each part.
set -uo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
codes=0
if [[ ${1:-} == --codes ]]; then
  codes=1
  shift
fi
out=$(realpath -m "${1:-build/gpu}")
build=$(realpath -m "${GIGAKNN_GPU_BUILD:-build/gpu}")
mkdir -p "$out"
started=$SECONDS
most=530  # and up to five for what does not end when it is asked to
least=10  # seconds, with which no part comes far
failed=0
unfinished=()
left() { echo $((most - SECONDS + started)); }
say() { echo "== $1 ($((SECONDS - started)) s)"; }

# What there is, as one file: some machines give few back.
pack() {
  [[ -n ${GIGAKNN_ARCHIVE:-} ]] || return 0
  (cd "$out" && tar -czf "$GIGAKNN_ARCHIVE.part" ./*.txt ./*.log ./*.json 2>/dev/null; mv "$GIGAKNN_ARCHIVE.part" "$GIGAKNN_ARCHIVE")
}

# begin PART: whether there is time for it
begin() {
  pack
  say "$1"
  (($(left) >= least)) && return
  echo "skipped: $(left) s are left"
  unfinished+=("$1")
  return 1
}

# judge PART STATUS: it failed, unless it ran until all the time was up
judge() {
  case $2 in
    0) ;;
    124 | 137) if (($(left) <= 0)); then unfinished+=("$1"); else failed=1; fi ;;
    *) failed=1 ;;
  esac
}

# within SECONDS COMMAND: no longer than that, and than all may take. What hangs in the driver does not end when it is asked to.
within() {
  local left limit=$1
  left=$(left)
  shift
  timeout -k 5 $((left < 1 ? 1 : left < limit ? left : limit)) "$@"
}

finish() {
  ((${#unfinished[@]})) && printf 'not finished: %s\n' "${unfinished[@]}"
  pack
  say "done"
  exit $failed
}

[[ -n ${GIGAKNN_GPU_BUILD:-} ]] || command -v nvcc >/dev/null || { echo "bench/gpu/run.sh: no nvcc on this machine"; exit 3; }
capability=$(timeout -k 5 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
[[ -n $capability ]] || { echo "bench/gpu/run.sh: no NVIDIA GPU on this machine"; exit 3; }
[[ $capability == 90 ]] && capability=90a
timeout -k 5 20 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/machine.txt"
git rev-parse HEAD 2>/dev/null | tee -a "$out/machine.txt"

if [[ -z ${GIGAKNN_GPU_BUILD:-} ]]; then
  say "build for sm_$capability"
  targets=()
  ((codes)) && targets=(--target gpu_builds)
  if ! { within 60 cmake -S bench/gpu -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES="$capability-real" &&
    within "$most" cmake --build "$build" -j "$(nproc)" "${targets[@]}"; } >"$out/build.log" 2>&1; then
    tail -n 40 "$out/build.log"
    exit 1
  fi
fi

if ((codes)); then
  if begin "an index of codes"; then
    within "$most" "$build/gpu_builds" --codes --json "$out/codes.json" 2>&1 | tee "$out/codes.log"
    judge "an index of codes" "${PIPESTATUS[0]}"
  fi
  finish
fi

# Each test by a process of its own, which a kernel that fails or hangs takes down alone; in the process group of all of them, so that none
# goes on when their time is up.
test_alone() {
  local log="$2/${3//\//_}"
  timeout --foreground -k 5 60 "$1" "$3" >"$log" 2>&1 || { echo "FAILED $3 (status $?)"; tail -n 5 "$log"; }
}
export -f test_alone
if begin "conformance"; then
  tests=$(mktemp -d)
  "$build/gpu_conformance" --list | sed -E 's,/[^/]*$,/,' | sort -u >"$tests/names"
  within 150 xargs -P "$(nproc)" -I{} bash -c 'test_alone "$0" "$1" "{}"' "$build/gpu_conformance" "$tests" <"$tests/names" |
    tee "$tests/failed"
  judge "conformance" "${PIPESTATUS[0]}"
  [[ -s $tests/failed || ! -s $tests/names ]] && failed=1
  { cat "$tests/failed"; grep -H "tests ran\|expected\|exception" "$tests"/*[A-Za-z_] | sed "s,^$tests/,,"; } >"$out/conformance.log"
  echo "$(grep -c "tests ran" "$out/conformance.log") of $(wc -l <"$tests/names") groups of tests ran," \
    "$(grep -c FAILED "$tests/failed") failed"
  rm -r "$tests"
else
  failed=1  # nothing is known then
fi
if begin "timings"; then
  within 200 "$build/gpu_bench" --json "$out/bench.json" 2>&1 | tee "$out/bench.log"
  judge "timings" "${PIPESTATUS[0]}"
fi
if begin "graphs"; then
  within 60 "$build/gpu_builds" --graphs --json "$out/graphs.json" 2>&1 | tee "$out/graphs.log"
  judge "graphs" "${PIPESTATUS[0]}"
fi
if begin "PyTorch"; then
  within 90 python3 bench/gpu/torch_peer.py "$out/torch.json" 2>&1 | tee "$out/torch.log"
  judge "PyTorch" "${PIPESTATUS[0]}"
fi
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    begin "$tool" || continue
    # Racecheck takes the copies of scan_streamed for races, whose barriers it does not follow: by warpgroups without these it has no excuse.
    groups=$([ "$tool" = racecheck ] && echo 1 || echo 2)
    GIGAKNN_WARPGROUPS=$groups within 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/gpu_conformance" \
      SelectRows.takes first_self samples_may joins_are_scans 2>&1 | tail -n 30 | tee "$out/$tool.log" | tail -n 3
    # It finds faults, or is slow, or does not know the machine.
    case ${PIPESTATUS[0]} in
      0) ;;
      9) failed=1 ;;
      *) unfinished+=("$tool") ;;
    esac
  done
fi
if begin "the same searches by mma.sync"; then
  GIGAKNN_WARPGROUPS=0 within 60 "$build/gpu_bench" --only search --json "$out/bench_mma.json" 2>&1 | tee "$out/bench_mma.log"
  judge "the same searches by mma.sync" "${PIPESTATUS[0]}"
fi

# plainly PART SECONDS COMMAND: without scan_streamed; whether it was right
plainly() {
  local part="$1 without scan_streamed" limit=$2 status
  shift 2
  begin "$part" || return
  GIGAKNN_WARPGROUPS=1 within "$limit" "$@" 2>&1 | tee -a "$out/bench_plain.log" | grep -v "tests ran"
  status=${PIPESTATUS[0]}
  judge "$part" "$status"
  return "$status"
}
: >"$out/bench_plain.log"
plainly "tests" 90 "$build/gpu_conformance" GpuSearch. symmetric_graphs &&
  plainly "searches" 60 "$build/gpu_bench" --only search --json "$out/bench_plain.json"
finish
