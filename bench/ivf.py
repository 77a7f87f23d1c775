#!/usr/bin/env python3
"""Inverted files against Faiss IndexIVFFlat with the same centroids, in turns, in one process.

    bench/setup_peers && bench/.venv/bin/python bench/ivf.py [--only batch] [--rounds 5]

Both look into as many lists: the first of PROBES that reaches the recall asked. With the same centroids both must find rows at the same distances,
which is checked first. Rows of bytes are bytes to us and, to IndexIVFFlat, floats; IndexIVFScalarQuantizer (QT_8bit_direct), which keeps them as bytes, is
timed too. "sift f32" are the same rows as floats to both. Batches of 1,000 queries: queries a second. One query at a time: the
50th and the 99th of a hundred latencies. Building: centroids and lists, Faiss's with its own k-means. "open": a file of that index is mapped by both, and read by Faiss. "curve": batches at all of PROBES. Results go to bench/results/<machine>/ivf.{json,md}, the
curves to docs/figures/flat.svg.
"""

import pathlib
import tempfile
import time

import faiss
import numpy as np

import drawing
import kept
import vectors

K = 10
LEAST_S = 0.25
ITERATIONS = 10  # both libraries' default
PROBES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
BATCH = [("sift", 1024, 0.95, 4.0), ("sift", 1024, 0.99, 4.0), ("sift f32", 1024, 0.95, 4.0), ("sift f32", 1024, 0.99, 4.0),
         ("fashion", 1024, 0.95, None), ("fashion", 1024, 0.99, None)]
SINGLE = [("sift", 1024, 0.95, 1.0), ("sift", 1024, 0.99, 1.0), ("sift f32", 1024, 0.99, 1.0), ("fashion", 1024, 0.99, 1.0)]
CURVES = [("sift", 1024), ("fashion", 1024)]
BUILD = [("clusters-1000000x128", 1024, 2.0)]
OPEN = [("clusters-1000000x128", 1024)]


class Pair:
    """Both indexes of one set."""

    def __init__(self, engine, name, lists, data):
        found = vectors.load(name.removesuffix(" f32"), data)
        dtype = np.float32 if name.endswith(" f32") else found.base.dtype
        self.base, self.queries = found.base.astype(dtype), found.queries[:1000].astype(dtype)
        # Then the index's k-means draws no sample, and its centroids are those that engine.kmeans finds.
        assert len(self.base) <= 256 * lists
        self.floats = np.ascontiguousarray(self.queries, np.float32)
        base = np.ascontiguousarray(self.base, np.float32)
        self.ours = engine.ivf(self.base, "l2", f"IVF{lists},Flat", ITERATIONS)
        _, centroids = engine.kmeans(self.base, lists, ITERATIONS)
        self.quantizer = faiss.IndexFlatL2(base.shape[1])
        self.quantizer.add(centroids)
        self.theirs = {"faiss": faiss.IndexIVFFlat(self.quantizer, base.shape[1], lists)}
        if dtype == np.uint8:
            self.theirs["faiss 8 bits"] = faiss.IndexIVFScalarQuantizer(
                self.quantizer, base.shape[1], lists, faiss.ScalarQuantizer.QT_8bit_direct, faiss.METRIC_L2, False)
        for index in self.theirs.values():
            index.is_trained = True
            index.add(base)
        exact = faiss.IndexFlatL2(base.shape[1])
        exact.add(base)
        self.kth = exact.search(self.floats, K)[0][:, -1:]

    def recall(self, distances):
        return float((distances <= self.kth * (1 + 1e-6)).mean())

    def probes_for(self, recall):
        for nprobe in PROBES:
            if self.recall(self.ours.search(self.queries, K, nprobe, len(self.queries))[2]) >= recall:
                return nprobe
        raise SystemExit("the recall is out of reach")

    def search_theirs(self, peer, nprobe, batch):
        """As GigaknnIvf.search, through the bare C++ call."""
        self.theirs[peer].nprobe = nprobe
        ids, distances = np.empty((len(self.floats), K), np.int64), np.empty((len(self.floats), K), np.float32)
        seconds = []
        for begin in range(0, len(self.floats), batch):
            count = min(batch, len(self.floats) - begin)
            pointers = (faiss.swig_ptr(self.floats[begin:]), faiss.swig_ptr(distances[begin:]), faiss.swig_ptr(ids[begin:]))
            start = time.perf_counter()
            self.theirs[peer].search_c(count, pointers[0], K, pointers[1], pointers[2])
            seconds.append(time.perf_counter() - start)
        return np.array(seconds), ids, distances


def search_row(pair, kind, name, lists, recall, target, rounds, engine):
    result = {**measured_at(pair, kind, pair.probes_for(recall), rounds), "row": f"{kind} {name} {recall}", "kind": kind, "set": name, "n": len(pair.base), "d": pair.base.shape[1],
              "dtype": pair.base.dtype.name, "lists": lists, "recall_asked": recall, "rounds": rounds, "target": target, "commit": engine.commit()}
    for peer in pair.theirs:
        faster = result["gigaknn"]["qps"] / result[peer]["qps"] if kind == "batch" else result[peer]["p99_s"] / result["gigaknn"]["p99_s"]
        result["ratio" if peer == "faiss" else "ratio_8_bits"] = faster
    return result


def curve_row(pair, name, lists, rounds, engine):
    points = [measured_at(pair, "batch", nprobe, rounds) for nprobe in PROBES]
    return {"row": f"curve {name}", "kind": "curve", "set": name, "n": len(pair.base), "d": pair.base.shape[1], "lists": lists, "rounds": rounds, "commit": engine.commit(), "points": points,
            "distances_that_differ": sum(point["distances_that_differ"] for point in points)}


def differing(ours, theirs):
    """Distances; beside no neighbour Faiss has the largest float, we infinity."""
    return int((~np.isclose(ours[2], np.where(theirs[1] < 0, np.inf, theirs[2]), rtol=1e-5)).sum())


def measured_at(pair, kind, nprobe, rounds):
    """Of both in turns, at so many lists: of batches, as many searches as take LEAST_S; of single queries each once a turn."""
    batch = len(pair.queries) if kind == "batch" else 1

    def search(peer):
        return pair.ours.search(pair.queries, K, nprobe, batch) if peer == "gigaknn" else pair.search_theirs(peer, nprobe, batch)

    ours = search("gigaknn")
    differ = sum(differing(ours, search(peer)) for peer in pair.theirs)
    times = {peer: [] for peer in ("gigaknn", *pair.theirs)}
    for _ in range(rounds):
        for peer, measured in times.items():
            time.sleep(0.05)
            search(peer)  # wakes threads up
            searches = [search(peer)[0]]
            while kind == "batch" and sum(seconds.sum() for seconds in searches) < LEAST_S:
                searches.append(search(peer)[0])
            measured.append(np.mean(searches, axis=0))
    result = {"nprobe": nprobe, "recall": pair.recall(ours[2]), "distances_that_differ": differ}
    for peer, all_rounds in times.items():
        if kind == "batch":
            result[peer] = {"qps": len(pair.queries) / float(np.median([seconds.sum() for seconds in all_rounds]))}
        else:
            p50, p99 = np.median([np.percentile(seconds, (50, 99)) for seconds in all_rounds], axis=0)
            result[peer] = {"p50_s": float(p50), "p99_s": float(p99)}
    return result


def build_row(engine, name, lists, target, arguments):
    base = vectors.load(name, arguments.data).base
    floats = np.ascontiguousarray(base, np.float32)
    ours, theirs = [], []
    for _ in range(min(3, arguments.rounds)):
        index = engine.ivf(base, "l2", f"IVF{lists},Flat", ITERATIONS)
        ours.append(index.build_s)
        index.free()
        quantizer = faiss.IndexFlatL2(base.shape[1])
        other = faiss.IndexIVFFlat(quantizer, base.shape[1], lists)
        start = time.perf_counter()
        other.train(floats)
        other.add(floats)
        theirs.append(time.perf_counter() - start)
        del other
    return {"row": f"build {name}", "kind": "build", "set": name, "n": len(base), "d": base.shape[1], "dtype": base.dtype.name, "lists": lists,
            "rounds": len(ours), "target": target, "commit": engine.commit(), "gigaknn": {"seconds": float(np.median(ours))},
            "faiss": {"seconds": float(np.median(theirs))}, "ratio": float(np.median(theirs) / np.median(ours))}


def open_row(engine, name, lists, arguments):
    base = vectors.load(name, arguments.data).base
    floats = np.ascontiguousarray(base, np.float32)
    ours = engine.ivf(base, "l2", f"IVF{lists},Flat", 1)
    quantizer = faiss.IndexFlatL2(base.shape[1])
    theirs = faiss.IndexIVFFlat(quantizer, base.shape[1], lists)
    theirs.train(floats)
    theirs.add(floats)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(pathlib.Path(folder) / file) for file in ("ours.gknn", "theirs.faiss")]
        ours.save(paths[0])
        faiss.write_index(theirs, paths[1])
        times = {"gigaknn": [], "faiss": [], "faiss read": []}
        for _ in range(arguments.rounds):
            times["gigaknn"].append(engine.open(paths[0]))
            for peer, flags in (("faiss", faiss.IO_FLAG_MMAP), ("faiss read", 0)):
                start = time.perf_counter()
                opened = faiss.read_index(paths[1], flags)
                times[peer].append(time.perf_counter() - start)
                del opened
        sizes = [pathlib.Path(path).stat().st_size for path in paths]
    ours.free()
    medians = {peer: {"seconds": float(np.median(seconds))} for peer, seconds in times.items()}
    return {"row": f"open {name}", "kind": "open", "set": name, "n": len(base), "d": base.shape[1], "dtype": base.dtype.name, "lists": lists, "rounds": arguments.rounds,
            "target": None, "commit": engine.commit(), "file_bytes": sizes, **medians, "ratio": medians["faiss"]["seconds"] / medians["gigaknn"]["seconds"]}


def markdown(results):
    lines = ["# Inverted files against Faiss", "", "Made by `bench/ivf.py`; do not edit.", ""]
    lines += kept.origins(results)
    lines += ["", f"IVF-Flat, recall@{K}; ratios above 1 are in our favour (one query: of the 99th percentile). Searches: the same centroids and as many lists.",
              "Building: each with its own k-means of 10 iterations.", "",
              "| work | n x d | lists | nprobe | recall | gigaknn | Faiss IVFFlat | ratio | target | met | Faiss 8 bits | ratio |",
              "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in (r for r in results if r["kind"] != "curve"):
        words = {"batch": lambda p: f"{p['qps']:.0f} QPS", "single": lambda p: f"p50 {1e3 * p['p50_s']:.3g} ms, p99 {1e3 * p['p99_s']:.3g} ms",
                 "build": lambda p: f"{p['seconds']:.3g} s", "open": lambda p: f"{1e3 * p['seconds']:.3g} ms"}[r["kind"]]
        target, met = ("", "") if r["target"] is None else (f"{r['target']}x", "yes" if r["ratio"] >= r["target"] else "no")
        if r.get("distances_that_differ"):
            met = "WRONG"
        other = f"{words(r['faiss 8 bits'])} | {r['ratio_8_bits']:.2f}x" if "faiss 8 bits" in r else f"read: {words(r['faiss read'])} | " if "faiss read" in r else " | "
        lines.append(f"| {r['row']} | {r['n']} x {r['d']} {r['dtype']} | {r['lists']} | {r.get('nprobe', '')} | "
                     f"{format(r['recall'], '.4f') if 'recall' in r else ''} | {words(r['gigaknn'])} | {words(r['faiss'])} | {r['ratio']:.2f}x | "
                     f"{target} | {met} | {other} |")
    for r in (r for r in results if r["kind"] == "curve"):
        peers = [peer for peer in ("faiss", "faiss 8 bits") if peer in r["points"][0]]
        lines += ["", f"## {r['row']}", "", f"{r['n']} x {r['d']}, {r['lists']} lists.", "", "| nprobe | recall | gigaknn | " + " | ".join(f"{peer} | ratio" for peer in peers) + " |",
                  "|---|---|---|" + "---|---|" * len(peers)]
        for p in r["points"]:
            theirs = " | ".join(f"{p[peer]['qps']:.0f} QPS | {p['gigaknn']['qps'] / p[peer]['qps']:.2f}x" for peer in peers)
            lines.append(f"| {p['nprobe']} | {p['recall']:.4f} | {p['gigaknn']['qps']:.0f} QPS | {theirs} |")
    return "\n".join(lines) + "\n"


def draw(results, folder):
    """Recall against queries a second."""
    curves = [r for r in results if r["kind"] == "curve"]
    if not curves:
        return
    pyplot = drawing.pyplot()
    figure, axes = pyplot.subplots(1, len(curves), figsize=(5 * len(curves), 4), squeeze=False)
    names = {"gigaknn": "gigaknn", "faiss": "Faiss IVFFlat (of floats)", "faiss 8 bits": "Faiss, rows kept as bytes"}
    for axis, r in zip(axes[0], curves):
        for (peer, name), style in zip(names.items(), ("o-", "s--", "^:")):
            if peer in r["points"][0]:
                axis.plot([p["recall"] for p in r["points"]], [p[peer]["qps"] for p in r["points"]], style, label=name, markersize=4)
        axis.set_title(f"{r['set']}, {r['n']} x {r['d']} of bytes; 1 to {r['points'][-1]['nprobe']} of {r['lists']} lists")
        axis.set_xlabel(f"recall@{K}")
        axis.set_yscale("log")
        axis.grid(True, which="both", alpha=0.3)
    axes[0][0].set_ylabel("queries a second, 2 threads")
    axes[0][-1].legend()
    figure.tight_layout()
    figure.savefig(folder / "flat.svg", metadata={"Date": None})


def main():
    arguments, engine, header = kept.start(__doc__, 7, "batch sift 0.95, build ...")
    pairs = {}

    def pair(name, lists):
        if (name, lists) not in pairs:
            pairs.clear()
            pairs[name, lists] = Pair(engine, name, lists, arguments.data)
        return pairs[name, lists]

    work = {}
    for kind, rows in (("batch", BATCH), ("single", SINGLE)):
        for name, lists, recall, target in rows:
            work[f"{kind} {name} {recall}"] = lambda row=(kind, name, lists, recall, target): search_row(
                pair(row[1], row[2]), *row, arguments.rounds, engine)
    for name, lists in CURVES:
        work[f"curve {name}"] = lambda row=(name, lists): curve_row(pair(*row), *row, arguments.rounds, engine)
    for name, lists, target in BUILD:
        work[f"build {name}"] = lambda row=(name, lists, target): build_row(engine, *row, arguments)
    for name, lists in OPEN:
        work[f"open {name}"] = lambda row=(name, lists): open_row(engine, *row, arguments)
    results = kept.run("ivf", work, markdown, header, arguments)
    draw(results, kept.HERE.parent / "docs" / "figures")
    if any(r.get("distances_that_differ") for r in results):
        raise SystemExit("some answers were wrong")


if __name__ == "__main__":
    main()
