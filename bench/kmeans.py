#!/usr/bin/env python3
"""k-means against Faiss's Clustering and PyPI's superkmeans, in turns, in one process.

    bench/setup_peers && bench/.venv/bin/python bench/kmeans.py [--only sift] [--rounds 3]

20 iterations on all rows, from random rows. The objective of everyone's centroids is computed once, by Faiss's exact search; a peer whose
objective is more than 0.5 % above ours did less work, and the table says so. Then what Johnson et al. 2017 report: MNIST-like rows with 256
and 4,096 centroids (table 1), exact assignment to 85,000 centroids (section 6.2). Results go to bench/results/<machine>/kmeans.{json,md}.
"""

import importlib.metadata
import statistics
import time

import faiss
import numpy as np
import superkmeans

import kept
import vectors

ITERATIONS = 20
ROWS = [  # set, clusters, target against Faiss
    ("sift", 4096, 3.0),
    ("fashion", 1024, 3.0),
    ("fashion", 256, None),
    ("fashion", 4096, None),
    ("sift8", 256, None),  # as a product quantizer trains: 65,536 rows of 8 columns
]
ASSIGNED = ("sift", 85000)  # 200,000 rows, of which 85,000 are the centroids


def faiss_kmeans(rows, clusters, seed):
    clustering = faiss.Clustering(rows.shape[1], clusters)
    clustering.niter, clustering.seed = ITERATIONS, seed + 1
    clustering.min_points_per_centroid, clustering.max_points_per_centroid = 1, len(rows)
    index = faiss.IndexFlatL2(rows.shape[1])
    start = time.perf_counter()
    clustering.train(rows, index)
    seconds = time.perf_counter() - start
    return seconds, faiss.vector_to_array(clustering.centroids).reshape(clusters, -1).copy()


def super_kmeans(rows, clusters, seed, hierarchical):
    search = superkmeans.SuperKMeans(clusters, rows.shape[1], hierarchical=hierarchical, iters=ITERATIONS, early_termination=False,
                                     sampling_fraction=1.0, max_points_per_cluster=len(rows), seed=seed + 1, n_threads=faiss.omp_get_max_threads())
    start = time.perf_counter()
    centroids = search.train(rows)
    return time.perf_counter() - start, np.ascontiguousarray(centroids, np.float32)


def objective_of(rows, centroids):
    return float(faiss.knn(rows, centroids, 1)[0].sum(dtype=np.float64))


def measure(engine, name, clusters, target, arguments):
    if name == "sift8":
        base = np.ascontiguousarray(vectors.load("sift", arguments.data).base[:65536, :8].astype(np.float32))
    else:
        base = vectors.load(name, arguments.data).base
    floats = np.ascontiguousarray(base, np.float32)
    turns = {
        "gigaknn": lambda seed: engine.kmeans(base, clusters, ITERATIONS, seed),
        "faiss": lambda seed: faiss_kmeans(floats, clusters, seed),
        "superkmeans": lambda seed: super_kmeans(floats, clusters, seed, False),
    }
    if base.shape[1] < 64:  # it takes no rows that short
        del turns["superkmeans"]
    if len(floats) > 100000:  # its default there
        turns["superkmeans hierarchical"] = lambda seed: super_kmeans(floats, clusters, seed, True)
    seconds, objectives = {name: [] for name in turns}, {name: [] for name in turns}
    for seed in range(arguments.rounds):
        for peer, run in turns.items():
            taken, centroids = run(seed)
            seconds[peer].append(taken)
            objectives[peer].append(objective_of(floats, centroids))
            time.sleep(0.05)
    result = {"row": f"{name} {clusters}", "set": name, "n": len(base), "d": base.shape[1], "dtype": base.dtype.name, "clusters": clusters,
              "iterations": ITERATIONS, "rounds": arguments.rounds, "commit": engine.commit(), "target": target,
              "seconds": {peer: statistics.median(values) for peer, values in seconds.items()},
              "spread": {peer: [min(values), max(values)] for peer, values in seconds.items()},
              "objective": {peer: statistics.median(values) for peer, values in objectives.items()}}
    return result


def measure_assignment(engine, arguments):
    name, clusters = ASSIGNED
    base = vectors.load(name, arguments.data).base
    floats = np.ascontiguousarray(base, np.float32)
    centroids = floats[np.random.default_rng(1).choice(len(floats), clusters, replace=False)].copy()
    index = faiss.IndexFlatL2(floats.shape[1])
    index.add(centroids)
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        seconds, ids, distances = engine.assign(base, centroids)
        ours.append(seconds)
        start = time.perf_counter()
        their_distances, their_ids = index.search(floats, 1)
        theirs.append(time.perf_counter() - start)
    # Of equal distances Faiss may name either.
    differ = int(((ids != their_ids[:, 0]) & (np.abs(distances - their_distances[:, 0]) > 1e-5 * distances)).sum())
    return {"row": f"assign {clusters}", "set": name, "n": len(base), "d": base.shape[1], "dtype": base.dtype.name, "clusters": clusters,
            "rounds": arguments.rounds, "commit": engine.commit(), "target": None, "ids_that_differ": differ,
            "seconds": {"gigaknn": statistics.median(ours), "faiss": statistics.median(theirs)}}


def markdown(results):
    lines = ["# k-means against Faiss and superkmeans", "", "Made by `bench/kmeans.py`; do not edit.", ""]
    lines += kept.origins(results)
    lines += ["", f"{ITERATIONS} iterations on all rows. Objectives are relative to ours; above 1.005 a peer is no longer comparable.", "",
              "| rows | clusters | gigaknn s | Faiss s | superkmeans s | against Faiss | against superkmeans | their objectives | target | met |",
              "|---|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        ours, theirs = r["seconds"]["gigaknn"], r["seconds"]
        if "objective" not in r:
            lines += ["", f"Exact assignment of {r['n']} x {r['d']} to {r['clusters']} centroids: {ours:.3g} s, Faiss {theirs['faiss']:.3g} s "
                      f"({theirs['faiss'] / ours:.1f}x); {r['ids_that_differ']} differ."]
            continue
        relative = {peer: value / r["objective"]["gigaknn"] for peer, value in r["objective"].items()}
        comparable = [peer for peer in theirs if peer.startswith("superkmeans") and relative[peer] <= 1.005]
        fastest = min((theirs[peer] for peer in comparable), default=None)
        fair = min(relative.values()) >= 1 / 1.005  # ours is no worse than anyone's
        met = "" if r["target"] is None else "yes" if fair and theirs["faiss"] / ours >= r["target"] and (fastest is None or fastest >= ours) else "no"
        names = ", ".join(f"{peer} {value:.4f}" for peer, value in relative.items() if peer != "gigaknn")
        supers = ", ".join(f"{theirs[peer]:.3g}" for peer in theirs if peer.startswith("superkmeans"))
        lines.append(f"| {r['set']} {r['n']} x {r['d']} | {r['clusters']} | {ours:.3g} | {theirs['faiss']:.3g} | {supers} | "
                     f"{theirs['faiss'] / ours:.1f}x | {'-' if fastest is None else f'{fastest / ours:.1f}x'} | {names} | "
                     f"{'' if r['target'] is None else str(r['target']) + 'x'} | {met} |")
    return "\n".join(lines) + "\n"


def main():
    arguments, engine, header = kept.start(__doc__, 3, "fashion 256, assign 85000")
    header["peers"] += f", superkmeans {importlib.metadata.version('superkmeans')}"
    work = {f"{name} {clusters}": (lambda row=(name, clusters, target): measure(engine, *row, arguments)) for name, clusters, target in ROWS}
    work[f"assign {ASSIGNED[1]}"] = lambda: measure_assignment(engine, arguments)
    kept.run("kmeans", work, markdown, header, arguments)


if __name__ == "__main__":
    main()
