"""What bench/kmeans.py, bench/ivf.py and bench/compressed.py share: their options, and results that stay where a run does not measure them again."""

import argparse
import json
import pathlib
import platform
import re
import time

import faiss

import peers
from machine import machine_name

HERE = pathlib.Path(__file__).resolve().parent


def start(description, rounds, example):
    """(arguments, gigaknn, {what the results' header says})."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"rows whose name this regular expression finds ({example})")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default="/data", help="folder of the unpacked sets (default /data)")
    parser.add_argument("--library", default=HERE.parent / "build" / "release" / "libgigaknn_bench.so")
    parser.add_argument("--output", default=HERE / "results", type=pathlib.Path)
    parser.add_argument("--machine", default=machine_name())
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(arguments.threads)
    engine = peers.Gigaknn(arguments.library, arguments.device, arguments.threads)
    return arguments, engine, {"commit": engine.commit(), "isa": engine.isa(), "threads": arguments.threads, "system": platform.platform(),
                               "peers": f"faiss-cpu {faiss.__version__}", "date": time.strftime("%Y-%m-%d")}


def pyplot():
    """matplotlib's, whose figures of the same rows are the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gigaknn"
    from matplotlib import pyplot

    return pyplot


def run(name, work, markdown, header, arguments):
    """Runs `work` {row: call} and writes NAME.json and NAME.md after every row; returns all rows."""
    folder = arguments.output / arguments.machine
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    kept = {result["row"]: result for result in json.loads(path.read_text())["results"]} if path.exists() else {}
    for row, measure in work.items():
        if not re.search(arguments.only, row):
            continue
        kept[row] = measure()
        print(json.dumps(kept[row]), flush=True)
        results = [kept[known] for known in work if known in kept]
        lines = ",\n".join(json.dumps(line) for line in results)
        path.write_text(f'{{"header": {json.dumps(header)},\n"results": [\n{lines}\n]}}\n')
        (folder / f"{name}.md").write_text(markdown(results, header))
    if kept:
        print((folder / f"{name}.md").read_text())
    return list(kept.values())
