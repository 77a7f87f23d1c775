#!/usr/bin/env python3
"""k-NN graphs by a search of their own index, as in Figure 5 of Johnson, Douze, Jégou 2017, beside those of `gigaknn graph --recall`.

    bench/setup_peers && bench/.venv/bin/python bench/index_graphs.py [--set sift | --set clusters-10000000x96] [--data /data]

`gigaknn graph --index IVF<lists>,PQ<bytes>` with codes of 16, 32 and 64 bytes alone, and with full vectors behind those of 32, at 1 to 256 probes: the seconds of the whole command, which trains and
adds too, against recall@10 of 10,000 sampled rows. Beside them `--method nn-descent` and the quickest method, at the recalls in RECALLS; peaks are what the system counts of the process. One run each.
`--lists`, `--probes`, `--recalls` and `--memory` say otherwise, for a set on which all of it would take days; with a budget all are held to it, but a method that it is too small for, whose peak then tells.
`--known LOG`: what an earlier run of the same program printed, which is not measured again. Results go to bench/results/<machine>/index_graphs.{json,md}, the figure to
docs/figures/index_graphs.svg; of other sets than SIFT the set's name is in theirs.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np

import drawing
import kept
from machine import machine_name
import vectors

HERE = pathlib.Path(__file__).resolve().parent
PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RECALLS = (0.7, 0.8, 0.9, 0.95, 0.98)
SAMPLE = 10000


class TooSmall(Exception):
    """A budget is."""


class Graphs:
    def __init__(self, program, version, base, folder, known):
        self.program, self.version, self.base, self.folder, self.known = program, version, base, folder, known

    def build(self, *options):
        options = list(map(str, options))
        for told in self.known:
            if told["options"] == options:
                return {key: value for key, value in told.items() if key != "options"}
        output, record = self.folder / "g.knng", self.folder / "g.json"
        record.unlink(missing_ok=True)
        start = time.monotonic()
        done = subprocess.run([self.program, "graph", self.base, "-k", "10", "-o", output, "--json", record, "--quiet", *options], capture_output=True, text=True)
        seconds = time.monotonic() - start
        if "budget" in done.stderr and "too small" in done.stderr:
            raise TooSmall
        if done.returncode not in (0, 4):
            raise SystemExit(f"{' '.join(options)}: {done.stderr}")
        told = json.loads(record.read_text())
        # Measuring the recall is no part of building.
        result = dict(seconds=seconds - told["seconds"]["evaluate"], recall=told["recall"]["value"], peak=told["memory"]["peak_bytes"])
        print(json.dumps(dict(options=options, version=self.version, **result)), flush=True)
        return result


def numbers(kind):
    return lambda text: tuple(kind(number) for number in text.split(","))


def draw(results, path):
    pyplot = drawing.pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name, runs in results["curves"].items():
        axes.plot([run["seconds"] for run in runs], [run["recall"] for run in runs], marker="o", markersize=3, label=name)
    axes.set_xscale("log")
    axes.set_xlabel("seconds, training and adding included")
    axes.set_ylabel("recall@10")
    axes.set_title(f"{results['set']}: {results['rows']:,} x {results['dims']}")
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def markdown(results):
    lines = ["# k-NN graphs by a search of their own index\n\nMade by `bench/index_graphs.py`; do not edit.\n", f"- machine: {results['machine']}", f"- date: {results['date']}",
             f"- {results['version']}\n", f"{results['set']}: {results['rows']:,} x {results['dims']}, k = 10; recall of {SAMPLE:,} rows, of graphs that are built as such of the rows that they draw" + (f"; --memory {results['memory']}" if results.get("memory") else "") + ".\n", "| graph | probes, or recall asked | s | recall@10 | peak MiB |",
             "|---|---|---|---|---|"]
    for name, runs in results["curves"].items():
        lines += [f"| {name} | {run['at']} | {run['seconds']:.2f} | {run['recall']:.4f} | {run['peak'] >> 20} |" for run in runs]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="sift")
    parser.add_argument("--data", default="/data")
    parser.add_argument("--program", default=HERE.parent / "build" / "release" / "gigaknn")
    parser.add_argument("--output", default=HERE / "results", type=pathlib.Path)
    parser.add_argument("--lists", type=int)
    parser.add_argument("--probes", type=numbers(int), default=PROBES)
    parser.add_argument("--recalls", type=numbers(float), default=RECALLS)
    parser.add_argument("--memory")
    parser.add_argument("--known", type=pathlib.Path)
    options = parser.parse_args()
    base = vectors.load(options.set, options.data).base
    lists = options.lists or round(4 * len(base) ** 0.5)
    budget = ("--memory", options.memory) if options.memory else ()
    version = subprocess.run([options.program, "--version"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "base.u8bin"
        with open(path, "wb") as file:
            np.array(base.shape, np.uint32).tofile(file)
            np.ascontiguousarray(base).tofile(file)
        known = [json.loads(line) for line in options.known.read_text().splitlines() if line.startswith("{")] if options.known else []
        if any(told.pop("version") != version for told in known):
            raise SystemExit(f"{options.known} was printed for another program than {version}")
        graphs = Graphs(options.program, version, path, folder, known)
        recipes = [f"IVF{lists},PQ{size}" for size in (16, 32, 64)] + [f"IVF{lists},PQ32,RFlat"]
        curves = {recipe: [dict(at=probes, **graphs.build("--index", recipe, "--nprobe", probes, "--sample", SAMPLE, *budget)) for probes in options.probes] for recipe in recipes}
        descent = lambda *beside: [dict(at=recall, **graphs.build("--method", "nn-descent", "--recall", recall, *beside)) for recall in options.recalls]
        try:
            curves["--method nn-descent"] = descent(*budget)
        except TooSmall:
            curves["--method nn-descent, which needs more memory"] = descent()
        curves["--recall"] = [dict(at=recall, **graphs.build("--recall", recall, *budget)) for recall in options.recalls]
    results = dict(machine=machine_name(), date=time.strftime("%Y-%m-%d"), version=version, set=options.set, rows=len(base), dims=base.shape[1], memory=options.memory, curves=curves)
    target = options.output / results["machine"]
    target.mkdir(parents=True, exist_ok=True)
    name = "index_graphs" if options.set == "sift" else f"index_graphs_{options.set}"
    (target / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (target / f"{name}.md").write_text(markdown(results))
    draw(results, HERE.parent / "docs" / "figures" / f"{name}.svg")
    print(markdown(results))


if __name__ == "__main__":
    main()
