#!/usr/bin/env python3
"""Exact search against Faiss, in turns, in one process: the table of issue 2.

    bench/setup_peers && bench/.venv/bin/python bench/exact.py [--only fashion] [--quick]

For each row: prepare both, run each once and compare the answers, then time A B A B ... and print one JSON
line with both medians and their ratio. Results go to bench/results/<machine>/exact.{json,md}; rows that a run does not measure stay there as they were.
"""

import argparse
import dataclasses
import gc
import json
import pathlib
import platform
import re
import statistics
import time

import numpy as np

import kept
import peers
from machine import machine_name
import vectors

HERE = pathlib.Path(__file__).resolve().parent
REST_S = 0.05  # lets one library's spinning threads sleep before the other's turn


@dataclasses.dataclass
class Row:
    name: str
    set: str
    metric: str = "l2"
    k: int = 10
    batch: int = 10000
    queries: int = 10000
    graph: bool = False
    single: bool = False  # Faiss at 1 and at all threads, the better counts
    panorama: bool = False
    target: float | None = None  # gigaknn's compute against IndexFlat's
    target_prepared: float | None = None  # with both preparations counted


def rows():
    """The target table, then the grid."""
    yield Row("fashion search", "fashion", panorama=True, target=8, target_prepared=5)
    yield Row("fashion graph", "fashion", graph=True, panorama=True, target=12)
    yield Row("sift search", "sift", queries=1000, panorama=True, target=4)
    yield Row("sift graph", "sift", graph=True, panorama=True, target=6)
    yield Row("glove search", "glove", metric="cosine", target=1.3)
    every_set = [("fashion", "l2"), ("sift", "l2"), ("glove", "cosine"), ("bigann10k", "l2"), ("covtype", "l2"),
                 ("covtype", "l1")]
    for name, metric in every_set:
        yield Row(f"{name} {metric} one at a time", name, metric, batch=1, queries=200, single=True, target=1.5)
    for d in (16, 32, 64, 128, 256):
        yield Row(f"bustos {d} dims", f"uniform-262144x{d}", "l1", k=1, queries=1000, target=2)
    for n in (1000000, 2000000, 4000000, 7500000):
        yield Row(f"bustos {n} rows", f"uniform-{n}x16", "l1", k=1, queries=1000, target=2)
    yield Row("bustos covtype", "covtype", "l1", k=1, queries=1000, target=2)
    for order in ("shuffled", "sorted", "sentinels"):  # which must make no difference
        yield Row(f"any order {order}", f"{order}-20000x32", queries=2000)
    for name, metric in every_set:
        for k in (1, 10, 100, 1000):
            for batch in (1, 16, 10000):
                yield Row(f"grid {name} {metric} k={k} batch={batch}", name, metric, k=k, batch=batch,
                          queries=min(10000, {1: 50, 16: 320}.get(batch, batch)), single=batch == 1, target=1)


def true_distances(query, base_rows, metric):
    query, base_rows = query.astype(np.float64), base_rows.astype(np.float64)
    if metric == "cosine":
        norms = np.linalg.norm(base_rows, axis=1) * np.linalg.norm(query)
        return 1 - base_rows @ query / np.where(norms == 0, np.nan, norms)
    difference = base_rows - query
    return np.abs(difference).sum(1) if metric == "l1" else (difference**2).sum(1)


def compare(queries, base, metric, ids, their_ids, most=500):
    """Places where the ids differ, and those among them where the other library's row is truly nearer.

    Nearer by what both return: distances that are one float32 are a tie, which gigaknn gives to the smaller id.
    """
    differ = worse = 0
    for i in np.unique(np.linspace(0, len(their_ids) - 1, min(most, len(their_ids)), dtype=int)):
        places = np.flatnonzero(ids[i] != their_ids[i])
        if len(places) == 0:
            continue
        both = ids[i] >= 0, their_ids[i] >= 0
        if not (both[0].all() and both[1].all()):
            differ, worse = differ + len(places), worse + len(places)
            continue
        ours, theirs = (np.sort(true_distances(queries[i], base[found], metric)) for found in (ids[i], their_ids[i]))
        differ += len(places)
        beyond_rounding = ours > theirs * (1 + 1e-9) + 1e-12
        worse += int((beyond_rounding & (ours.astype(np.float32) > theirs.astype(np.float32))).sum())
    return differ, worse


def without_self(ids, first, k):
    """The first k of each list that are not the row itself (duplicates may push it out of the list)."""
    others = np.empty((len(ids), k), ids.dtype)
    for i, found in enumerate(ids):
        others[i] = found[found != first + i][:k]
    return others


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.engine = peers.Gigaknn(arguments.library, arguments.device, arguments.threads)
        self.loaded = None  # the last set; rows of one set stand together

    def vectors(self, name):
        if self.loaded is None or self.loaded.name != name:
            self.loaded = None
            gc.collect()
            self.loaded = vectors.load(name, self.arguments.data)
        return self.loaded

    def rounds(self, row, warm_s):
        least, most = (2, 3) if self.arguments.quick else (3, 9)
        seconds = self.arguments.seconds / (4 if row.name.startswith("grid") else 1)
        return int(np.clip(seconds / max(warm_s, 1e-9), least, most))

    def measure(self, row):
        data = self.vectors(row.set)
        if len(data.base) < row.k:
            raise vectors.Missing(f"k = {row.k} of {len(data.base)} rows")
        queries = data.base if row.graph else data.queries[:row.queries]
        ours = self.engine.prepare(data.base, row.metric, row.k, max(len(queries), 10000), row.batch, row.graph)
        flat = peers.FaissIndex("flat", data.base, row.metric)
        floats = flat.as_floats(queries)
        fraction = self.arguments.graph_fraction if row.graph else 1.0
        part = floats[:max(1, int(len(floats) * fraction))]
        their_k = row.k + 1 if row.graph else row.k
        threads = self.arguments.threads

        def run_ours():
            return ours.graph(row.k) if row.graph else ours.search(queries, row.k, row.batch)

        def run_faiss(index, on_threads):
            seconds, ids, distances = index.search(part, their_k, row.batch, on_threads)
            return seconds * len(floats) / len(part), ids, distances

        turns = {"gigaknn": run_ours, "flat": lambda: run_faiss(flat, threads)}
        if row.single and threads > 1:
            turns["flat_1_thread"] = lambda: run_faiss(flat, 1)
        if row.panorama and row.metric == "l2":
            panorama = peers.FaissIndex("panorama", data.base, row.metric)
            # Many times slower than flat on graphs: a slice of the rows, scaled, tells by how much.
            few = floats[:1000] if row.graph else part

            def run_panorama():
                seconds, ids, distances = panorama.search(few, their_k, row.batch, threads)
                return seconds * len(floats) / len(few), ids, distances

            turns["panorama"] = run_panorama

        warm = {}
        for name, run in turns.items():
            warm[name] = run()
            time.sleep(REST_S)
        their_ids = warm["flat"][1]
        if row.graph:
            their_ids = without_self(their_ids, 0, row.k)
        differ, worse = compare(queries, data.base, row.metric, warm["gigaknn"][1], their_ids)
        rounds = self.rounds(row, sum(seconds for seconds, _, _ in warm.values()))
        warm.clear()
        times = {name: [] for name in turns}
        for _ in range(rounds):
            for name, run in turns.items():
                times[name].append(run()[0])
                time.sleep(REST_S)
        medians = {name: statistics.median(values) for name, values in times.items()}

        faiss_s = min(medians[name] for name in ("flat", "flat_1_thread") if name in medians)
        n, d = data.base.shape
        pairs = n * (n - 1) / 2 if row.graph else n * len(queries)
        result = {
            "row": row.name, "commit": self.engine.commit(), "isa": self.engine.isa(), "threads": threads,
            "set": row.set, "n": n, "d": d, "dtype": data.base.dtype.name, "metric": row.metric, "k": row.k,
            "queries": len(queries), "batch": min(row.batch, len(queries)), "rounds": rounds,
            "gigaknn_s": medians["gigaknn"], "faiss_s": faiss_s,
            "faiss": {name: value for name, value in medians.items() if name != "gigaknn"},
            "spread": {name: [min(values), max(values)] for name, values in times.items()},
            "ratio": faiss_s / medians["gigaknn"],
            "gigaknn_prepare_s": ours.prepare_s, "faiss_prepare_s": flat.prepare_s,
            "ratio_with_preparation": (faiss_s + flat.prepare_s) / (medians["gigaknn"] + ours.prepare_s),
            "target": row.target, "target_with_preparation": row.target_prepared,
            "ids_that_differ": differ, "ids_truly_worse": worse,
            "multiply_adds_per_s": pairs * d / medians["gigaknn"],
            "bytes": ours.bytes(), "description": ours.description(),
        }
        if "panorama" in medians:
            result["ratio_panorama"] = medians["panorama"] / medians["gigaknn"]
        if fraction < 1:
            result["faiss_extrapolated_from"] = len(part)
        ours.free()
        return result


def verdict(result):
    if result["ids_truly_worse"]:
        return "WRONG"
    met = result["target"] is None or result["ratio"] >= result["target"]
    if result["target_with_preparation"]:
        met = met and result["ratio_with_preparation"] >= result["target_with_preparation"]
    return "yes" if met else "no"


def times(value):
    return "" if value is None else f"{value:.2f}x"


def markdown(results, header, skipped):
    lines = ["# Exact search against Faiss", "", "Made by `bench/exact.py`; do not edit.", ""]
    lines += [f"- machine: {header['machine']}", *kept.origins(results)]
    lines += [f"- peak, {kind}, of the last run: {peak['per_s'] / 1e9:.0f} G multiply-adds/s ({peak['loop']})"
              for kind, peak in header["peak"].items()]
    lines += [f"- skipped: {name} ({why})" for name, why in skipped]
    lines += ["", "Ratios are Faiss's median time over gigaknn's. \"With preparation\" counts `add` for Faiss and `prepare`",
              "for gigaknn; reading, converting and normalising for Faiss are free.", "",
              "| work | n x d | k | batch | gigaknn s | Faiss s | ratio | Panorama | with preparation | target | met |",
              "|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        target = times(r["target"])
        if r["target_with_preparation"]:
            target += f", {times(r['target_with_preparation'])} prepared"
        scaled = f" (scaled from {r['faiss_extrapolated_from']} rows)" if "faiss_extrapolated_from" in r else ""
        lines.append(f"| {r['row']} | {r['n']} x {r['d']} | {r['k']} | {r['batch']} | {r['gigaknn_s']:.4g} | "
                     f"{r['faiss_s']:.4g}{scaled} | {times(r['ratio'])} | {times(r.get('ratio_panorama'))} | "
                     f"{times(r['ratio_with_preparation'])} | {target} | {verdict(r)} |")
    lines += ["", "## Roofline", "",
              "Multiply-adds that a plain search would make (a graph: each pair once) per second of compute. Above 100 % means",
              "that most of them were proven unnecessary.", "",
              "| work | G multiply-adds/s | of the f32 peak | of the int8 peak | prepared as |", "|---|---|---|---|---|"]
    for r in results:
        if r["row"].startswith("grid"):
            continue
        shares = [f"{100 * r['multiply_adds_per_s'] / peak['per_s']:.0f} %" if peak["per_s"] else "-"
                  for peak in header["peak"].values()]
        lines.append(f"| {r['row']} | {r['multiply_adds_per_s'] / 1e9:.1f} | {shares[0]} | {shares[1]} | "
                     f"{r['description']} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name this regular expression finds")
    parser.add_argument("--quick", action="store_true", help="2 or 3 rounds instead of 3 to 9")
    parser.add_argument("--seconds", type=float, default=60, help="aim for this much timing a row, a quarter in the grid (default 60)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help='"cpu", or "cpu:avx2" and its kind')
    parser.add_argument("--data", default="/data", help="folder of the unpacked sets (default /data)")
    parser.add_argument("--graph-fraction", type=float, default=1.0,
                        help="give Faiss this part of a graph's rows and scale its time; labelled so")
    parser.add_argument("--library", default=HERE.parent / "build" / "release" / "libgigaknn_bench.so")
    parser.add_argument("--output", default=HERE / "results", type=pathlib.Path)
    parser.add_argument("--machine", default=machine_name(), help="name of the folder of results")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    arguments = parser.parse_args()

    chosen = [row for row in rows() if re.search(arguments.only, row.name)]
    if arguments.list:
        print("\n".join(row.name for row in chosen))
        return
    bench = Bench(arguments)
    header = {
        "commit": bench.engine.commit(), "isa": bench.engine.isa(), "threads": arguments.threads,
        "machine": arguments.machine, "system": platform.platform(),
        "peers": f"faiss-cpu {peers.faiss.__version__} ({peers.faiss.get_compile_options().strip()}), numpy {np.__version__}",
        "date": time.strftime("%Y-%m-%d"),
        "peak": {kind: dict(zip(("per_s", "loop"), bench.engine.peak(kind))) for kind in ("f32", "int8")},
    }
    print(json.dumps(header), flush=True)
    folder = arguments.output / arguments.machine
    folder.mkdir(parents=True, exist_ok=True)
    known = {}
    if (folder / "exact.json").exists():
        known = kept.before(json.loads((folder / "exact.json").read_text()))
    skipped = {}
    wrong = False
    for row in chosen:
        try:
            result = {**{fact: header[fact] for fact in kept.FACTS}, **bench.measure(row)}
        except vectors.Missing as missing:
            skipped[row.name] = str(missing)
            print(json.dumps({"row": row.name, "skipped": str(missing)}), flush=True)
            continue
        print(json.dumps(result), flush=True)
        known[row.name] = result
        wrong = wrong or result["ids_truly_worse"] > 0
        # Written after every row: a run that is stopped keeps what it has.
        results = [known[other.name] for other in rows() if other.name in known]
        lines = ",\n".join(json.dumps(line) for line in results)
        (folder / "exact.json").write_text(f'{{"header": {json.dumps(header)},\n"results": [\n{lines}\n]}}\n')
        (folder / "exact.md").write_text(markdown(results, header, skipped.items()))
    print(markdown([known[row.name] for row in chosen if row.name in known], header, skipped.items()))
    if wrong:
        raise SystemExit("some answers were wrong")
    if len(skipped) == len(chosen):
        raise SystemExit("nothing was measured")


if __name__ == "__main__":
    main()
