#!/usr/bin/env python3
"""Seconds of the neighbour phase of UMAP on Fashion-MNIST (60,000 x 784, k = 15): gigaknn.knn_graph against pynndescent.NNDescent, at the recall that pynndescent
reaches, measured on 1,000 rows; and knn_graph from Python against the command line on the same file.

By an environment that has the gigaknn of a wheel, pynndescent and NumPy. In turns, medians; the compiling of pynndescent's first call is left out.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from machine import machine_name

HERE = pathlib.Path(__file__).resolve().parent
K = 15  # itself included, as UMAP has it


def timed(call):
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the images as .u8bin (default: made of Debian's package)")
    parser.add_argument("--rows", type=int, default=60000, help="fewer: to see that it works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", default=HERE / "results", type=pathlib.Path)
    parser.add_argument("--machine", default=machine_name())
    arguments = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = str(arguments.threads)  # before numba is there

    import gigaknn
    import numpy as np
    import pynndescent

    import vectors

    if arguments.data is None:
        arguments.data = vectors.file_of("fashion")
    u8 = np.array(gigaknn.read_vectors(arguments.data)[: arguments.rows])
    x = u8.astype(np.float32)
    sample = np.sort(np.random.default_rng(0).choice(len(x), min(1000, len(x)), replace=False))
    truth = gigaknn.knn(x[sample], x, K, metric="euclidean")

    def recall_of(graph):
        """By distance: ties are hits."""
        return float(np.mean(graph[1][sample] <= truth.distances[:, -1:] * (1 + 1e-5)))

    def pynn():
        return pynndescent.NNDescent(x, n_neighbors=K, random_state=0, n_jobs=arguments.threads).neighbor_graph

    wanted = recall_of(pynn())  # which also compiles
    asked = min(wanted, 0.9999)  # of 1 it would be exact

    def ours():
        return gigaknn.knn_graph(x, K - 1, recall=asked, threads=arguments.threads).to_umap()

    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/base.fbin", "wb") as file:
            np.array(x.shape, "<u4").tofile(file)
            x.tofile(file)
        command = [sys.executable, "-m", "gigaknn", "graph", f"{folder}/base.fbin", "-k", str(K - 1), "--recall", repr(asked), "--threads", str(arguments.threads), "-o", f"{folder}/x.knng"]

        def by_command():
            subprocess.run(command, check=True, capture_output=True)

        def by_python():
            gigaknn.knn_graph(f"{folder}/base.fbin", K - 1, recall=asked, threads=arguments.threads).save(f"{folder}/y.knng")

        work = {"gigaknn.knn_graph": ours, "pynndescent.NNDescent": pynn, "knn_graph of a file, saved": by_python, "gigaknn graph": by_command}
        seconds = {name: [] for name in work}
        recalls = {}
        for _ in range(arguments.rounds):
            for name, call in work.items():
                took, graph = timed(call)
                seconds[name].append(took)
                if graph is not None:
                    recalls[name] = recall_of(graph)
        assert pathlib.Path(folder, "x.knng").read_bytes() == pathlib.Path(folder, "y.knng").read_bytes()  # both did the same
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    header = {"commit": gigaknn.__commit__, "isa": gigaknn.isa_of("cpu"), "threads": arguments.threads, "system": platform.platform(), "rows": len(x), "rounds": arguments.rounds,
              "peers": f"pynndescent {pynndescent.__version__}", "date": time.strftime("%Y-%m-%d")}
    rows = [{"row": name, "seconds": medians[name], "all_seconds": seconds[name], "recall": recalls.get(name)} for name in work]
    ratios = {"pynndescent / gigaknn": medians["pynndescent.NNDescent"] / medians["gigaknn.knn_graph"],
              "Python / command line": medians["knn_graph of a file, saved"] / medians["gigaknn graph"]}
    lines = ["# The neighbour phase of UMAP", "", f"Fashion-MNIST, {len(x):,} x {x.shape[1]} float32, k = {K}, {arguments.threads} threads, commit {header['commit']}, {header['peers']}, "
             f"medians of {arguments.rounds} rounds in turns; bench/umap_phase.py.", "", "| | seconds | recall |", "|---|---|---|"]
    lines += [f"| {row['row']} | {row['seconds']:.2f} | {'' if row['recall'] is None else format(row['recall'], '.4f')} |" for row in rows]
    lines += ["", *(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()), ""]
    folder = arguments.output / arguments.machine
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "umap_phase.json").write_text(json.dumps({"header": header, "results": rows, "ratios": ratios}, indent=1) + "\n")
    (folder / "umap_phase.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
