#!/usr/bin/env python3
"""NN-Descent part by part: figures 4 to 7 of Wang, Zhao, Zeng 2021 on this machine.

    bench/setup_peers && bench/.venv/bin/python bench/descent.py [--set sift]

Results go to bench/results/<machine>/descent.{json,md}, figures to docs/figures/nn-descent-*.svg.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np

import drawing
from machine import machine_name
import vectors

HERE = pathlib.Path(__file__).resolve().parent


def measured(program, base):
    with tempfile.NamedTemporaryFile(suffix=".u8bin") as file:
        np.array(base.shape, np.uint32).tofile(file)
        base.tofile(file)
        file.flush()
        return json.loads(subprocess.run([program, file.name], check=True, capture_output=True, text=True).stdout)


def as_markdown(told):
    lines = ["# NN-Descent, part by part", "",
             f"Made by `bench/descent.py` at commit {told['commit']}; do not edit. {told['set']}: {told['n']:,} x {told['d']} u8 rows, l2, "
             f"lists of {told['lists']}, {told['samples']} samples, {told['threads']} threads, {told['isa']}; {told['date']}.", "",
             "## Round by round (figures 4, 5 and 6)", "",
             f"Seconds since the start, recall@{told['k']} of {told['sampled']} rows, phi(G): the mean distance of an entry.", "",
             "| way | start | rounds... |", "|---|---|---|"]
    for course in told["courses"]:
        rounds = " | ".join(f"{r['seconds']:.2f} s {r['recall']:.4f} {r['phi']:.0f}" for r in course["rounds"])
        lines.append(f"| {course['way']} | {rounds} |")
    lines += ["", "## Two halves merged (figure 7)", "", "The graphs of the halves are exact and not counted. Recalls asked: 0.90, 0.95, 0.98; the search "
              "keeps lists of 20, 40, 80.", "", "| way | s | recall |", "|---|---|---|"]
    lines += [f"| {m['way']} | {m['seconds']:.2f} | {m['recall']:.4f} |" for m in told["merges"]]
    return "\n".join(lines) + "\n"


def figure(path, x_name, y_name, curves, log_miss=False):
    """`curves`: name -> (x, y). With log_miss y is a recall, drawn as what is missing, so that 0.99 and 0.999 are apart."""
    pyplot = drawing.pyplot()
    fig, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for name, (x, y) in curves.items():
        axes.plot(x, [max(1 - v, 1e-4) for v in y] if log_miss else y, marker="o", markersize=3.5, linewidth=1.3, label=name)
    if log_miss:
        ticks = [0.0, 0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999]
        axes.set_yscale("log")
        axes.set_yticks([1 - t for t in ticks], [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.invert_yaxis()
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, metadata={"Date": None})
    pyplot.close(fig)


def draw(told, folder):
    courses = {c["way"]: c["rounds"] for c in told["courses"]}
    figure(folder / "nn-descent-phi.svg", "round", "phi(G), mean distance of an entry",
           {way: (range(len(rounds)), [r["phi"] for r in rounds]) for way, rounds in courses.items()})
    figure(folder / "nn-descent-recall.svg", "seconds", f"recall@{told['k']}",
           {way: ([r["seconds"] for r in rounds], [r["recall"] for r in rounds]) for way, rounds in courses.items()}, log_miss=True)
    ways = dict.fromkeys(m["way"] for m in told["merges"])
    figure(folder / "nn-descent-merge.svg", "seconds", f"recall@{told['k']}",
           {way: ([m["seconds"] for m in told["merges"] if m["way"] == way], [m["recall"] for m in told["merges"] if m["way"] == way]) for way in ways},
           log_miss=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="sift", help="u8 vectors, as bench/vectors.py names them")
    parser.add_argument("--data", default="/data")
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build/release/bench/descent_bench")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results" / machine_name())
    parser.add_argument("--figures", type=pathlib.Path, default=HERE.parent / "docs/figures")
    parser.add_argument("--draw-only", action="store_true", help="from the results that are there")
    options = parser.parse_args()
    path = options.results / "descent.json"
    if options.draw_only:
        told = json.loads(path.read_text())
    else:
        told = {"set": options.set, "date": time.strftime("%Y-%m-%d"), **measured(options.program, vectors.load(options.set, options.data).base)}
        options.results.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(told, indent=1) + "\n")
        (options.results / "descent.md").write_text(as_markdown(told))
    draw(told, options.figures)


if __name__ == "__main__":
    main()
