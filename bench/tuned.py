#!/usr/bin/env python3
"""Whether a recall that is asked for is reached: `gigaknn build --recall`, `search --recall`.

    bench/setup_peers && bench/.venv/bin/python bench/tuned.py [--trials 4]

A trial takes 1,000 rows out of a set, which are then queries that no index has seen, builds with --recall 0.95 from the rest (which chooses the index, and
holds out rows of its own to measure with), and searches with --recall 0.90, 0.95 and 0.99. Reached: recall@10 of these queries, by an exact search, is no more than a
point below what was asked. "from elsewhere" asks the same of the set's own queries, which come from other photos, words or clothes than its rows, by a curve of held-out rows and by one
of `gigaknn tune --queries` with half of them. "fitted": recall at one nprobe of rows that centroids were fitted to (themselves left out), beside that of those
held out and of strangers. Results go to bench/results/<machine>/tuned.{json,md}.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np

from machine import machine_name
import vectors

HERE = pathlib.Path(__file__).resolve().parent
SETS = {"fashion": "l2", "sift": "l2", "glove": "cosine", "clusters-1000000x128": "l2"}
RECALLS = (0.90, 0.95, 0.99)
STRANGERS = 1000
K = 10
SUFFIX = {"uint8": "u8bin", "float16": "hbin", "float32": "fbin"}


def write_bin(path, rows):
    path = path.with_suffix("." + SUFFIX[str(rows.dtype)])
    with open(path, "wb") as file:
        np.array(rows.shape, np.uint32).tofile(file)
        np.ascontiguousarray(rows).tofile(file)
    return path


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def __call__(self, *arguments):
        """Its record; None where it exits with 4 and did nothing."""
        record = self.folder / "record.json"
        record.unlink(missing_ok=True)
        done = subprocess.run([self.path, *map(str, arguments), "--json", record, "--quiet"], capture_output=True, text=True)
        if done.returncode == 4:
            return json.loads(record.read_text()) if record.exists() else None
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr}")
        return json.loads(record.read_text())

    def version(self):
        return subprocess.run([self.path, "--version"], capture_output=True, text=True).stdout.strip()


def asked(program, index, queries, count, recall):
    record = program("search", index, "--queries", queries, "-k", K, "-o", program.folder / "ids.npy", "--recall", recall, "--sample", count)
    if record is None:
        return dict(asked=recall, found=None)
    return dict(asked=recall, found=record["recall"]["value"], nprobe=record["nprobe"], refine=record.get("refine"), qps=count / record["seconds"]["compute"])


def trial(program, name, metric, base, seed):
    chosen = np.sort(np.random.default_rng([seed, 7]).choice(len(base), STRANGERS, replace=False))
    left = np.ones(len(base), bool)
    left[chosen] = False
    rows, queries = write_bin(program.folder / "rows", base[left]), write_bin(program.folder / "strangers", base[chosen])
    index = program.folder / "x.gknn"
    start = time.perf_counter()
    built = program("build", rows, "-o", index, "--metric", metric, "--recall", 0.95, "--seed", seed)
    seconds = time.perf_counter() - start
    return dict(set=name, seed=seed, recipe=built["method"], tried={t["recipe"]: t.get("seconds") and round(1 / t["seconds"]) for t in built["tried"]},
                seconds=seconds, build_seconds=built["seconds"]["compute"], searches=[asked(program, index, queries, STRANGERS, recall) for recall in RECALLS])


def from_elsewhere(program, name, metric, found):
    rows = write_bin(program.folder / "rows", found.base)
    order = np.random.default_rng(3).permutation(len(found.queries))[:2000]
    halves = [write_bin(program.folder / f"half{i}", found.queries[order[i::2]]) for i in range(2)]
    count = len(order) // 2
    index = program.folder / "x.gknn"
    program("build", rows, "-o", index, "--metric", metric, "--recall", 0.95)
    by_rows = [asked(program, index, halves[1], count, recall) for recall in RECALLS]
    program("tune", index, "--queries", halves[0])
    return dict(set=name, by_rows=by_rows, by_queries=[asked(program, index, halves[1], count, recall) for recall in RECALLS])


def fitted(program, base, nprobe):
    """Recall@10 at one nprobe of three kinds of rows; those of the base look for 11, and themselves are dropped."""
    generator = np.random.default_rng(11)
    chosen = np.sort(generator.choice(len(base), STRANGERS, replace=False))
    left = np.ones(len(base), bool)
    left[chosen] = False
    rest = base[left]
    rows, index = write_bin(program.folder / "rows", rest), program.folder / "x.gknn"
    built = program("build", rows, "-o", index, "--index", "IVF,Flat", "--recall", 0.9)
    point = min(built["curve"]["points"], key=lambda p: abs(p["nprobe"] - nprobe))

    def recall(queries, self_rows):
        k = K + (self_rows is not None)
        path = write_bin(program.folder / "some", queries)
        ids = {}
        for which, extra in (("found", ("--nprobe", point["nprobe"])), ("true", ("--nprobe", 1 << 30))):
            program("search", index, "--queries", path, "-k", k, "-o", program.folder / "ids.npy", "--sample", 0, *extra)
            ids[which] = np.load(program.folder / "ids.npy")
        hits = 0
        for i in range(len(queries)):
            pair = [[x for x in ids[which][i] if self_rows is None or x != self_rows[i]][:K] for which in ("found", "true")]
            hits += len(set(pair[0]) & set(pair[1]))
        return hits / (K * len(queries))

    some = np.sort(generator.choice(len(rest), STRANGERS, replace=False))
    return dict(nprobe=point["nprobe"], held_out=point["recall"], strangers=recall(base[chosen], None), fitted=recall(rest[some], some))


def share(trials, recall=None):
    searches = [s for t in trials for s in t["searches"] if recall is None or s["asked"] == recall]
    reached = [s for s in searches if s["found"] is not None and s["found"] >= s["asked"] - 0.01]
    return len(reached), len(searches)


def text(search):
    return "beyond the curve" if search["found"] is None else f"{search['found']:.3f} ({search['qps']:,.0f})"


def markdown(results):
    lines = ["# A recall that is asked for\n\nMade by `bench/tuned.py`; do not edit.\n", f"- machine: {results['machine']}, {results['threads']} threads",
             f"- date: {results['date']}", f"- {results['version']}\n"]
    reached, of = share(results["trials"])
    lines += [f"Reached within a point: {reached} of {of} searches, {reached / of:.1%} (target: 95 %); "
              + ", ".join("{} of {} at {}".format(*share(results["trials"], recall), recall) for recall in RECALLS) + ".\n",
              "Recall@10 of 1,000 queries that no index has seen; in brackets queries a second of a command that first prepares its lists.\n",
              "| set | seed | index chosen | build and measure s | asked 0.90 | asked 0.95 | asked 0.99 |", "|---|---|---|---|---|---|---|"]
    for t in results["trials"]:
        lines.append(f"| {t['set']} | {t['seed']} | {t['recipe']} | {t['seconds']:.1f} | " + " | ".join(text(s) for s in t["searches"]) + " |")
    lines += ["\n## Queries from elsewhere\n", "| set | curve | asked 0.90 | asked 0.95 | asked 0.99 |", "|---|---|---|---|---|"]
    for row in results["elsewhere"]:
        lines.append(f"| {row['set']} | held-out rows | " + " | ".join(text(s) for s in row["by_rows"]) + " |")
        lines.append(f"| {row['set']} | tune --queries, other half | " + " | ".join(text(s) for s in row["by_queries"]) + " |")
    f = results["fitted"]
    lines += ["\n## Rows held out, rows fitted to\n", f"sift, IVF,Flat, nprobe {f['nprobe']}, recall@10: strangers {f['strangers']:.3f}, rows held out {f['held_out']:.3f}, rows that "
              f"centroids were fitted to {f['fitted']:.3f}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4, help="of each set")
    parser.add_argument("--data", default="/data")
    parser.add_argument("--program", default=HERE.parent / "build" / "release" / "gigaknn")
    parser.add_argument("--output", default=HERE / "results", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Program(options.program, pathlib.Path(folder))
        results = dict(machine=machine_name(), threads=2, date=time.strftime("%Y-%m-%d"), version=program.version(), trials=[], elsewhere=[])
        for name, metric in SETS.items():
            found = vectors.load(name, options.data)
            for seed in range(options.trials):
                results["trials"].append(trial(program, name, metric, found.base, seed))
                print(json.dumps(results["trials"][-1]), flush=True)
            if not name.startswith("clusters"):
                results["elsewhere"].append(from_elsewhere(program, name, metric, found))
                print(json.dumps(results["elsewhere"][-1]), flush=True)
        results["fitted"] = fitted(program, vectors.load("sift", options.data).base, 20)
        target = options.output / results["machine"]
        target.mkdir(parents=True, exist_ok=True)
        (target / "tuned.json").write_text(json.dumps(results, indent=1) + "\n")
        (target / "tuned.md").write_text(markdown(results))
        print(markdown(results))


if __name__ == "__main__":
    main()
