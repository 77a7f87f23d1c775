#!/usr/bin/env python3
"""Checks who includes whom (docs/architecture.md). One line a violation, exit code 1.

    include/gigaknn <- core <- {io, simt} <- ops <- learn <- graph <- index <- eval <- plan <- {cli, python, bench}

A file includes its own folder and anything to its left. Besides:
  - io and simt do not know each other, nor do ops/cpu and ops/gpu, nor do cli, python and bench;
  - above ops a layer sees the waist, `ops/*.hpp`, and nothing below it (ops/cpu, ops/gpu, simt);
    bench may look inside;
  - a CUDA header only in simt, in ops/gpu/runtime.* and in bench/gpu;
  - HDF5, CLI11, nlohmann-json and spdlog only in cli (and tests and bench, which are shipped to nobody).
tests/ and fuzz/ may include every layer of the library.

To add a layer: one entry in RANK.

    tools/check_layers.py [ROOT]
"""

import re
import sys
from pathlib import Path

RANK = {
    "include": 0,
    "core": 1,
    "io": 2,
    "simt": 2,
    "ops": 3,
    "learn": 4,
    "graph": 5,
    "index": 6,
    "eval": 7,
    "plan": 8,
    "cli": 9,
    "python": 9,
    "bench": 9,
    "tests": 10,
    "fuzz": 10,
}
SOURCES = {".hpp", ".cpp", ".h", ".cuh", ".cu", ".cc", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA = re.compile(
    r"^(cuda|cublas|cusparse|cusolver|curand|cufft|nvrtc|nccl|nvtx|nvml|mma\.h|cooperative_groups"
    r"|device_launch_parameters|driver_types|vector_types|cub/|thrust/|nv/)"
)
CLI_ONLY = re.compile(r"^(hdf5|H5|CLI/|nlohmann/|spdlog/|fmt/)")


def place_of(path):
    """The layer and the folder inside it: src/ops/cpu/x.cpp -> ("ops", "cpu"); None outside the layers."""
    parts = path.parts
    if parts[:2] == ("include", "gigaknn"):
        return "include", ""
    if parts[0] == "src":
        parts = parts[1:]
    if len(parts) < 2 or parts[0] not in RANK:
        return None
    return parts[0], parts[1] if len(parts) > 2 else ""


def target_of(root, source, quote, name):
    """The repository's file that an include names, as a path from the root; None if it is not ours."""
    if name.startswith("gigaknn/"):
        return Path("include") / name
    if quote == '"' and (root / source.parent / name).exists():
        return (root / source.parent / name).resolve().relative_to(root.resolve())
    for folder in ("src", "."):
        path = Path(folder) / name
        if len(path.parts) > 1 and place_of(path) and ((root / path).exists() or quote == '"'):
            return path
    return None


def fault_of(source, target):
    """Why `source` may not include `target` (paths from the root), or None."""
    here, folder = place_of(source)
    there, there_folder = place_of(target) or (None, None)
    if there is None:
        return "is outside the layers"
    if here == there:
        if here == "ops" and {folder, there_folder} == {"cpu", "gpu"}:
            return "ops/cpu and ops/gpu do not know each other"
        return None
    if RANK[here] == RANK[there]:
        return f"{here} and {there} do not know each other"
    if RANK[here] < RANK[there]:
        return f"{there} is to the right of {here}"
    above_waist = RANK["ops"] < RANK[here] and here not in ("bench", "tests", "fuzz")
    if above_waist and (there == "simt" or (there == "ops" and there_folder)):
        return f"{here} is above the waist and sees src/ops/ops.hpp only"
    return None


def foreign_fault_of(source, name):
    """Why `source` may not include a header that is not ours, or None."""
    here, folder = place_of(source)
    runtime = here == "ops" and folder == "gpu" and source.name.startswith("runtime")
    if CUDA.match(name) and here not in ("simt", "bench") and not runtime:
        return "a CUDA header belongs to simt, ops/gpu/runtime and bench/gpu only"
    if CLI_ONLY.match(name) and here not in ("cli", "tests", "bench"):
        return "of what is shipped only cli includes it"
    return None


def check(root):
    """All violations under `root`, one line each, sorted by file and line."""
    root = Path(root)
    faults = []
    folders = [root / "include", root / "src"] + [root / f for f in ("cli", "python", "bench", "tests", "fuzz")]
    files = sorted(f for folder in folders for f in folder.rglob("*") if f.suffix in SOURCES and f.is_file())
    for file in files:
        source = file.relative_to(root)
        if place_of(source) is None:
            faults.append(f"{source}: is in no layer; the layers are {', '.join(RANK)}")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, name = match.groups()
            target = target_of(root, source, quote, name)
            fault = fault_of(source, target) if target else foreign_fault_of(source, name)
            if fault:
                faults.append(f"{source}:{number}: includes {name}: {fault}")
    return faults


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
