#!/usr/bin/env python3
"""k-NN graphs against pynndescent, hnswlib and Faiss at the same recall: the table of issue 3.

    bench/setup_peers && bench/.venv/bin/python bench/graphs.py [--only fashion] [--rounds 3] [--sweep]

Each run is a process of its own, so that its peak memory is its own. gigaknn and the fastest peer take turns, --rounds each; the others run once. What peers
that are not of this run took before is told with the commit of that run. A peer has a ladder of parameters,
cheapest first; what counts is its first rung whose recall@10 reaches the target (--sweep starts at the bottom; without, one below
the rung that the last sweep found on this machine). A peer that is three times as slow as the best so far is given up. Recall is that of 5,000 rows against
their true neighbours, found by Faiss's flat index; an entry as near as the tenth is a hit. Reading and converting the vectors,
numba's compilation and normalising for cosine are not counted for anybody.
Results go to bench/results/<machine>/graphs.{json,md}.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import kept
import peers
from machine import machine_name
import vectors

HERE = pathlib.Path(__file__).resolve().parent
K = 10
SAMPLE = 5000


@dataclasses.dataclass
class Row:
    name: str
    set: str
    recall: float
    metric: str = "l2"
    target: float = 3.0


ROWS = [
    Row("fashion", "fashion", 0.99),
    Row("sift", "sift", 0.98),
    Row("glove", "glove", 0.90, "cosine"),
    Row("1M", "clusters-1000000x128", 0.98),
]

# Cheapest first. pynndescent: neighbours kept while it runs. HNSW: degree, breadth
# while building, breadth of the search with the base. Faiss's NNDescent: neighbours kept, its L; samples S and R.
LADDERS = {
    "pynndescent": [dict(n_neighbors=k, n_trees=t) for k, t in
                    ((11, None), (13, None), (15, None), (16, None), (17, None), (18, None), (19, None), (20, None), (22, None), (24, None), (26, None), (30, None),
                     (40, None), (60, None))],
    "faiss-hnsw": [dict(M=32, build=b, search=s) for b, s in
                   ((20, 12), (30, 12), (40, 16), (40, 24), (40, 32), (40, 64), (80, 64), (120, 128), (200, 256))],
    "hnswlib": [dict(M=16, build=b, search=s) for b, s in
                ((40, 20), (60, 20), (60, 40), (80, 30), (80, 60), (100, 60), (200, 100), (200, 200))],
    "faiss-nndescent": [dict(kept=k, S=s, R=r) for k, s, r in
                        ((16, 5, 30), (20, 8, 50), (30, 10, 50), (40, 10, 50), (60, 10, 100), (100, 20, 100), (128, 30, 200))],
}


def as_floats(base, metric):
    if metric == "cosine":
        return peers.normalised(base)
    return np.ascontiguousarray(base, np.float32)


def run_gigaknn(base, row, threads, options):
    library = peers.Gigaknn(options["library"], options.get("device", "cpu"), threads)
    return library.build_graph(base, row.metric, K, options["method"], row.recall)


def run_pynndescent(base, row, threads, options):
    import pynndescent
    floats = as_floats(base, row.metric)
    metric = {"l2": "sqeuclidean", "cosine": "cosine"}[row.metric]

    def build(rows):
        return pynndescent.NNDescent(rows, metric=metric, n_neighbors=options["n_neighbors"], n_trees=options["n_trees"],
                                     n_jobs=threads, random_state=1).neighbor_graph
    build(floats[:2000])  # numba compiles
    start = time.perf_counter()
    ids, distances = build(floats)
    return time.perf_counter() - start, drop_self(ids), None


def run_faiss_hnsw(base, row, threads, options):
    import faiss
    faiss.omp_set_num_threads(threads)
    floats = as_floats(base, row.metric)
    index = faiss.IndexHNSWFlat(floats.shape[1], options["M"])
    index.hnsw.efConstruction, index.hnsw.efSearch = options["build"], options["search"]
    start = time.perf_counter()
    index.add(floats)
    _, ids = index.search(floats, K + 1)
    return time.perf_counter() - start, drop_self(ids), None


def run_hnswlib(base, row, threads, options):
    import hnswlib
    floats = as_floats(base, row.metric)
    index = hnswlib.Index(space=row.metric, dim=floats.shape[1])
    start = time.perf_counter()
    index.init_index(max_elements=len(floats), ef_construction=options["build"], M=options["M"])
    index.set_num_threads(threads)
    index.add_items(floats)
    index.set_ef(options["search"])
    ids, _ = index.knn_query(floats, K + 1)
    return time.perf_counter() - start, drop_self(ids.astype(np.int64)), None


def run_faiss_nndescent(base, row, threads, options):
    import faiss
    faiss.omp_set_num_threads(threads)
    floats = as_floats(base, row.metric)
    index = faiss.IndexNNDescentFlat(floats.shape[1], options["kept"])
    index.nndescent.S, index.nndescent.R, index.nndescent.L = options["S"], options["R"], options["kept"] + 20
    start = time.perf_counter()
    index.add(floats)
    seconds = time.perf_counter() - start
    ids = faiss.vector_to_array(index.nndescent.final_graph).reshape(len(floats), -1)
    return seconds, ids[:, :K].astype(np.int64), None


RUNNERS = {"gigaknn": run_gigaknn, "pynndescent": run_pynndescent, "faiss-hnsw": run_faiss_hnsw, "hnswlib": run_hnswlib,
           "faiss-nndescent": run_faiss_nndescent}


def drop_self(ids):
    """[n, more than K] -> [n, K] without i in row i; a row that does not list itself loses its last."""
    n = len(ids)
    order = np.argsort(ids == np.arange(n)[:, None], axis=1, kind="stable")
    return np.take_along_axis(ids, order, axis=1)[:, :K].astype(np.int64)


def one_run(request):
    """In a process of its own: one contender, once."""
    row, options = Row(**request["row"]), request["options"]
    base = np.load(request["base"])
    base = np.ascontiguousarray(base)
    sample = np.load(request["sample"])
    seconds, ids, more = RUNNERS[request["peer"]](base, row, request["threads"], options)
    np.save(request["ids"], ids[sample])
    # Not getrusage: its peak outlives exec, so it would be the parent's.
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, **(more or {})}))


def true_distances(base, row, sample, ids):
    """[sample, K] of what a graph lists, as float64; inf where it lists nothing or the row itself."""
    queries = base[sample].astype(np.float64)
    found = np.full(ids.shape, np.inf)
    for j in range(ids.shape[1]):
        valid = (ids[:, j] >= 0) & (ids[:, j] != sample)
        rows = base[np.where(valid, ids[:, j], 0)].astype(np.float64)
        if row.metric == "cosine":
            value = 1 - (queries * rows).sum(1) / np.sqrt((queries**2).sum(1) * (rows**2).sum(1))
        else:
            value = ((queries - rows)**2).sum(1)
        found[valid, j] = value[valid]
    for i in range(len(ids)):  # each id once
        _, first = np.unique(ids[i], return_index=True)
        again = np.setdiff1d(np.arange(ids.shape[1]), first)
        found[i, again] = np.inf
    return found


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gigaknn-graphs-"))
        self.commit = peers.Gigaknn(arguments.library, "cpu", arguments.threads).commit()

    def load(self, row):
        base = vectors.load(row.set, self.arguments.data).base
        np.save(self.folder / "base.npy", base)
        sample = np.sort(np.random.default_rng(5).choice(len(base), SAMPLE, replace=False))
        np.save(self.folder / "sample.npy", sample)
        import faiss
        faiss.omp_set_num_threads(self.arguments.threads)
        floats = as_floats(base, row.metric)
        index = faiss.IndexFlatIP(floats.shape[1]) if row.metric == "cosine" else faiss.IndexFlatL2(floats.shape[1])
        index.add(floats)
        _, near = index.search(floats[sample], K + 20)
        # Faiss's float32 distances are not exact: of a few more than needed, the K that are nearest.
        truth = np.sort(true_distances(base, row, sample, near), axis=1)[:, K - 1]
        return base, sample, truth

    def run(self, row, peer, options, base, sample, truth):
        request = {"row": dataclasses.asdict(row), "peer": peer, "options": options, "threads": self.arguments.threads,
                   "base": str(self.folder / "base.npy"), "sample": str(self.folder / "sample.npy"),
                   "ids": str(self.folder / "ids.npy")}
        environment = dict(os.environ, OMP_NUM_THREADS=str(self.arguments.threads),
                           NUMBA_NUM_THREADS=str(self.arguments.threads))
        done = subprocess.run([sys.executable, __file__, "--one", json.dumps(request)], capture_output=True, text=True,
                              env=environment)
        if done.returncode != 0:
            raise SystemExit(f"{peer} {options}: {done.stderr}")
        result = json.loads(done.stdout.splitlines()[-1])
        ids = np.load(self.folder / "ids.npy")
        found = true_distances(base, row, sample, ids)
        result["recall"] = float((found <= truth[:, None] * (1 + 1e-9)).sum() / (SAMPLE * K))
        result.update(peer=peer, options={k: v for k, v in options.items() if k != "library"})
        print(f"  {peer:16} {str(result['options']):60} {result['seconds']:8.2f} s  recall {result['recall']:.4f}  "
              f"peak {result['peak_bytes'] / 1e6:.0f} MB", flush=True)
        return result

    def measure(self, row, before):
        print(row.name, flush=True)
        base, sample, truth = self.load(row)
        ours = {"library": str(self.arguments.library), "method": self.arguments.method}
        runs = [self.run(row, "gigaknn", ours, base, sample, truth)]
        rungs, best = {}, None
        for peer in self.arguments.peers:
            ladder = LADDERS[peer]
            start = 0 if self.arguments.sweep else (before.get("rungs") or {}).get(peer, 0) - 1
            for rung in range(max(start, 0), len(ladder)):
                result = self.run(row, peer, ladder[rung], base, sample, truth)
                runs.append(result)
                if best and result["seconds"] > 3 * best:
                    break  # the others are far ahead
                if result["recall"] >= row.recall:
                    rungs[peer] = rung
                    break
            reached = [r["seconds"] for r in runs if r["peer"] != "gigaknn" and r["recall"] >= row.recall]
            best = min(reached) if reached else None
        fastest = min((r for r in runs if r["peer"] != "gigaknn" and r["recall"] >= row.recall),
                      key=lambda r: r["seconds"], default=None)
        mine, theirs = [runs[0]["seconds"]], [fastest["seconds"]] if fastest else []
        for _ in range(self.arguments.rounds - 1):
            mine.append(self.run(row, "gigaknn", ours, base, sample, truth)["seconds"])
            if fastest:
                theirs.append(self.run(row, fastest["peer"], fastest["options"], base, sample, truth)["seconds"])
        mine_s = statistics.median(mine)
        result = {"name": row.name, "set": row.set, "n": len(base), "d": base.shape[1], "dtype": str(base.dtype),
                  "metric": row.metric, "asked": row.recall, "seconds": mine_s, "recall": runs[0]["recall"],
                  "peak_bytes": runs[0]["peak_bytes"], "method": runs[0]["text"], "measured": runs[0]["measured"],
                  "target": row.target, "peers": self.arguments.peers, "rungs": rungs if self.arguments.sweep else before.get("rungs", {}), "runs": runs, "commit": self.commit, "date": time.strftime("%Y-%m-%d"),
                  "threads": self.arguments.threads, "system": platform.platform(), "rounds": self.arguments.rounds, "sampled": SAMPLE}
        # Peers that were not run this time, as they were found before: the first rung that reached the recall.
        found = dict(before.get("slower_before", {}))
        for run in before.get("runs", []):
            if run["peer"] != "gigaknn" and run["recall"] >= row.recall:
                found.setdefault(run["peer"], {**run, "commit": before["commit"], "date": before["date"]})
        result["slower_before"] = {peer: run for peer, run in found.items() if peer not in self.arguments.peers}
        if fastest:
            theirs_s = statistics.median(theirs)
            result.update(peer=fastest["peer"], peer_options=fastest["options"], peer_seconds=theirs_s,
                          peer_recall=fastest["recall"], peer_peak_bytes=fastest["peak_bytes"], ratio=theirs_s / mine_s)
        return result


def write(folder, results):
    folder.mkdir(parents=True, exist_ok=True)
    head = {"machine": machine_name(), "rows": results}
    (folder / "graphs.json").write_text(json.dumps(head, indent=1) + "\n")
    (folder / "graphs.md").write_text(markdown(results, head["machine"]))


def markdown(results, machine):
    lines = ["# k-NN graphs against the fastest peer", "", "Made by `bench/graphs.py`; do not edit.", "",
             f"- machine: {machine}", *kept.origins([{**r, "peers": ", ".join(r["peers"])} for r in results], "name"), "",
             "Seconds are medians of so many runs in turns, gigaknn's and the fastest peer's, as the row's `rounds` in the json; recall@10 of the rows sampled against true neighbours. The peer is the fastest "
             "of those tried in that run that reach the recall asked. What other peers took \"before\", below, is one run each of an earlier commit, not in turns with the row's.", "",
             "| set | n x d | recall asked | gigaknn s | recall | peak MB | fastest peer | s | recall | peak MB | ratio | target | met |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        peer = [r.get("peer", "none reached it"), f"{r['peer_seconds']:.2f}", f"{r['peer_recall']:.4f}",
                f"{r['peer_peak_bytes'] / 1e6:.0f}", f"{r['ratio']:.1f}x"] if "peer" in r else ["none reached it", "", "", "", ""]
        met = "peer" in r and r["ratio"] >= r["target"]
        lines.append(f"| {r['name']} {r['metric']} | {r['n']} x {r['d']} | {r['asked']} | {r['seconds']:.2f} | {r['recall']:.4f} | "
                     f"{r['peak_bytes'] / 1e6:.0f} | " + " | ".join(peer) + f" | {r['target']}x | "
                     f"{'yes' if met and r['recall'] >= r['asked'] else 'no'} |")
    lines += ["", "How gigaknn built each:", ""] + [f"- {r['name']}: {r['method']}; commit {r['commit']}; {r['sampled']:,} rows sampled; peers tried: "
                                                       f"{', '.join(r['peers'])}" + "".join(
        f"; {peer} before, one run beside commit {run['commit']}: {run['seconds']:.2f} s at {run['recall']:.4f}"
        for peer, run in r.get("slower_before", {}).items()) for r in results]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--only", help="rows whose name has this in it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sweep", action="store_true", help="climb each peer's ladder from the bottom")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(LADDERS), help="of " + ",".join(LADDERS))
    parser.add_argument("--method", default="auto")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--data", default="/data")
    parser.add_argument("--library", type=pathlib.Path, default=HERE.parent / "build/release/libgigaknn_bench.so")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results" / machine_name())
    arguments = parser.parse_args()
    if arguments.one:
        return one_run(json.loads(arguments.one))
    path = arguments.results / "graphs.json"
    before = kept.before(json.loads(path.read_text()), "name") if path.exists() else {}
    bench = Bench(arguments)
    for row in ROWS:
        if arguments.only and arguments.only not in row.name:
            continue
        before[row.name] = bench.measure(row, before.get(row.name, {}))
        write(arguments.results, [before[r.name] for r in ROWS if r.name in before])


if __name__ == "__main__":
    main()
