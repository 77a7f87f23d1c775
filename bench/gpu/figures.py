#!/usr/bin/env python3
"""Draws what gpu_bench has measured on a GPU: Johnson, Douze, Jégou 2017, figures 3 (selection) and 4 (exact search), and Bustos et al. 2006 (l1, its parts apart).

    bench/gpu/figures.py [FOLDER] [--figures docs/figures]     FOLDER: of bench.log, and of selection.log, whose rows replace its own; bench/results/nvidia-h200

Needs matplotlib, which bench/setup_peers installs; a machine that only measures need not have it.
"""

import argparse
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import drawing  # noqa: E402  beside this folder


def read_rows(folder):
    """({work: (ms, ms of the roof or None)}, the GPU's name)."""
    rows, device = {}, "GPU"
    for name in ("bench.log", "selection.log"):
        path = folder / name
        for line in path.read_text().splitlines() if path.exists() else []:
            if found := re.match(r"(\S.*?)\s{2,}([\d.]+) ms(?:\s+roof\s+([\d.]+) ms)?", line):
                rows[found[1]] = (float(found[2]), float(found[3]) if found[3] else None)
            elif found := re.match(r"(.*), \d+ multiprocessors", line):
                device = found[1]
    return rows, device


def draw_selection(rows, device, pyplot):
    """Figure 3: of each way that `select_plan` knows the share of the time that reading the values takes at the least."""
    ways = {}
    for work, (ms, roof) in rows.items():
        if (found := re.fullmatch(r"select (\d+) x (\d+), k = (100|1000)(?: \(table\))?: (stream|thread queues|ballot buffer) x (\d)", work)) and roof:
            name = {"thread queues": "WarpSelect (thread queues)", "ballot buffer": "ballot buffer", "stream": "stream"}[found[4]]
            best = ways.setdefault(int(found[3]), {}).setdefault(name, {})
            best[int(found[2])] = max(best.get(int(found[2]), 0), 100 * roof / ms)  # of any number of warps a row
    if not ways:
        return None
    figure, axes = pyplot.subplots(1, len(ways), figsize=(5 * len(ways), 4), sharey=True, squeeze=False)
    for axis, k in zip(axes[0], sorted(ways)):
        for name, style in (("WarpSelect (thread queues)", "o-"), ("ballot buffer", "s--"), ("stream", "^:")):
            points = sorted(ways[k].get(name, {}).items())
            axis.plot([x for x, _ in points], [y for _, y in points], style, label=name, markersize=4)
        axis.set_xscale("log", base=2)
        axis.set_xticks([1000 << i for i in range(8)], [f"{1 << i}k" for i in range(8)])
        axis.minorticks_off()
        axis.set_ylim(0, 100)
        axis.set_xlabel("values a row, 10,000 rows")
        axis.set_title(f"k = {k:,}")
        axis.grid(True, alpha=0.3)
    axes[0][0].set_ylabel("% of the speed of copying")
    axes[0][-1].legend()
    figure.suptitle(f"k-selection on one {device}")
    return figure


def draw_search(rows, device, pyplot):
    """Figure 4: exact search fused with its selection, and by a matrix of distances that a plain kernel makes."""
    curves, shape = {}, ""
    for work, (ms, _) in rows.items():
        if found := re.fullmatch(r"(fused|distances, then selection on two streams) (\d+) in (\d+) x (\d+) f32, k = (\d+)", work):
            curves.setdefault(found[1], {})[int(found[5])] = ms / int(found[2]) * 1000
            shape = f"{int(found[3]):,} x {found[4]} f32"
        elif found := re.fullmatch(r"distances, then a full sort (\d+) in .*", work):
            curves["distances, then a full sort"] = {k: ms / int(found[1]) * 1000 for k in (1, 10, 100, 1000)}
    if "fused" not in curves:
        return None
    figure, axis = pyplot.subplots(figsize=(6.5, 4))
    for name, style in (("distances, then a full sort", "x-."), ("distances, then selection on two streams", "s--"), ("fused", "o-")):
        points = sorted(curves.get(name, {}).items())
        axis.plot([x for x, _ in points], [y for _, y in points], style, label=name.replace("distances", "plain distances"), markersize=4)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("k")
    axis.set_ylabel("ms for 1,000 queries")
    axis.set_title(f"exact search in {shape} on one {device}")
    axis.grid(True, which="both", alpha=0.3)
    axis.legend()
    return figure


def draw_manhattan(rows, device, pyplot):
    """Bustos et al.: copying the vectors, the search itself, copying the result."""
    parts = {}
    for work, (ms, _) in rows.items():
        if found := re.fullmatch(r"(upload and prepare|upload of queries, compute, download|download): (\d+) in (\d+) x (\d+) f32 by l1, k = 1", work):
            parts.setdefault(int(found[4]), {})[found[1]] = ms
            title = f"{int(found[2]):,} queries in {int(found[3]):,} f32 vectors by l1, k = 1, on one {device}"
    if not parts:
        return None
    figure, axis = pyplot.subplots(figsize=(6.5, 3.2))
    names = [f"{d} dimensions" for d in sorted(parts)]
    left = [0.0] * len(names)
    for part, label in (("upload and prepare", "upload and preparation of the vectors"), ("upload of queries, compute, download", "queries, search, result")):
        widths = [parts[d].get(part, 0) for d in sorted(parts)]
        axis.barh(names, widths, left=left, label=label)
        left = [a + b for a, b in zip(left, widths)]
    axis.set_xlabel("ms (the download alone: " + ", ".join(f"{parts[d].get('download', 0):.3f}" for d in sorted(parts)) + ")")
    axis.set_title(title, fontsize=10)
    axis.legend()
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=HERE.parent / "results" / "nvidia-h200")
    parser.add_argument("--figures", type=pathlib.Path, default=HERE.parents[1] / "docs" / "figures")
    options = parser.parse_args()
    rows, device = read_rows(options.folder)
    pyplot = drawing.pyplot()
    for name, draw in (("gpu-selection", draw_selection), ("gpu-search", draw_search), ("gpu-manhattan", draw_manhattan)):
        if figure := draw(rows, device, pyplot):
            figure.tight_layout()
            figure.savefig(options.figures / f"{name}.svg", metadata={"Date": None})
            print(options.figures / f"{name}.svg")


if __name__ == "__main__":
    main()
