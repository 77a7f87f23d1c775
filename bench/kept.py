"""What bench/kmeans.py, bench/ivf.py, bench/compressed.py and bench/python_overhead.py share: their options, and results that stay where a run does not
measure them again. Each row says of which run it is (FACTS), since a file has rows of several; bench/exact.py and bench/graphs.py keep theirs the same way."""

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
FACTS = ("commit", "date", "isa", "threads", "system", "peers")


def start(description, rounds, example):
    """(arguments, gigaknn, FACTS of this run)."""
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


def before(told, key="row"):
    """{name: row} of a file's content. Rows had no date until 2026-11-27, and a file one header, of its last run: rows of that commit are of that run, others were
    measured by then. What else of a header those have is the same in all headers that were ever committed; the system is not."""
    header = told.get("header", told)
    found = {}
    for row in told.get("results") or told.get("rows") or []:
        if "date" not in row and row["commit"] == header.get("commit"):
            row = {**{fact: header[fact] for fact in FACTS if fact in header}, **row}
        elif "date" not in row:
            row = {**{fact: header[fact] for fact in ("isa", "threads", "peers") if fact in header}, **row, "date": f"not after {header['date']}"}
        found[row[key]] = row
    return found


def origins(results, key="row"):
    """Lines of a list: of which run each row is."""
    runs = {}
    for row in results:
        runs.setdefault(tuple(f"{row[fact]} threads" if fact == "threads" else str(row[fact]) for fact in FACTS if fact in row), []).append(row[key])
    most = max(runs.values(), key=len, default=[])
    named = lambda rows: "all rows" if len(runs) == 1 else "all rows not named here" if rows is most and len(rows) > 20 else ", ".join(rows)
    return [f"- {named(rows)}: commit {', '.join(facts)}" for facts, rows in runs.items()]


def run(name, work, markdown, header, arguments):
    """Runs `work` {row: call} and writes NAME.json and NAME.md after every row, NAME.md also where nothing is run; returns all rows."""
    folder = arguments.output / arguments.machine
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    kept = before(json.loads(path.read_text())) if path.exists() else {}
    results = lambda: [kept[known] for known in work if known in kept]
    for row, measure in work.items():
        if not re.search(arguments.only, row):
            continue
        kept[row] = {**header, **measure()}
        print(json.dumps(kept[row]), flush=True)
        lines = ",\n".join(json.dumps(line) for line in results())
        path.write_text(f'{{"results": [\n{lines}\n]}}\n')
        (folder / f"{name}.md").write_text(markdown(results()))
    if kept:
        (folder / f"{name}.md").write_text(markdown(results()))
        print(markdown(results()))
    return list(kept.values())
