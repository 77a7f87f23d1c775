#!/usr/bin/env python3
"""Compressed inverted files against Faiss's, in turns, in one process.

    bench/setup_peers && bench/.venv/bin/python bench/compressed.py [--only refined] [--rounds 7]

"codes": product codes alone, 16 and 32 bytes, at equal probes: recall, and queries a second, ours of 8 bits a part, of 6 (as many parts: 12 and 24 bytes) and of 4 (twice the parts) beside Faiss's
IndexIVFPQ (8 bits) and its fast-scan (4 bits); for fast-scan also our 8 bits at the fewest probes that reach its recall. Recall at equal probes is a mean of three trainings of each, by the seeds in SEEDS; QPS is of the first. "rabitq": RaBitQ's codes alone of 1 to 4 bits
a dimension after a random rotation, beside Faiss's IndexIVFRaBitQ and its fast-scan, at equal probes; of more than 1 bit Faiss's codes take 12 bytes more than ours. "scalar": 8, 6 and 4 bits a dimension, fitted to each of what centroids leave (SQ8d, SQ6, SQ4), and bytes by one step for all (SQ8), beside
Faiss's IndexIVFScalarQuantizer, at equal probes, on SIFT and Fashion-MNIST. "alone": the same codes, RaBitQ of 1 bit and the re-ranked, a query at a time. "refined": full vectors behind codes of at most 48
bytes; each contestant at the fastest of its settings (PROBES x REFINES) that reaches the recall on these queries. Ours: ivf_sq (44 dimensions of 8 bits, beside which a scan reads 4 bytes) and
ivf_pq (32 bytes, and 4); Faiss's: fast-scan of 16 and 32 bytes, the latter after PCA too, RaBitQ after a rotation, and PCA to 48 dimensions of 8 bits. Faiss's full vectors are bytes, as ours
(IndexScalarQuantizer, 8 bits direct). "build": centroids, codewords and codes, of 8 bits a part beside IVFPQ and of 4 beside fast-scan. Each library with its own training: 10 iterations of k-means for the lists, for
codewords each its default (ours 20, Faiss's 25). A measurement repeats its queries for a quarter of a second. Results go to bench/results/<machine>/compressed.{json,md}, the figures to docs/figures/{codes,bytes,refined}.svg; `--only nothing` draws and tabulates what was measured before.
"""

import time

import faiss
import numpy as np

import drawing
import kept
import vectors

K = 10
ITERATIONS = 10
LISTS = 1024
PROBES = [16, 24, 32, 40, 48, 56, 64, 80, 96, 128]
REFINES = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
SEEDS = (0, 1, 2)
LEAST_S = 0.25
OF_CODES = ("gigaknn", "gigaknn 6 bits", "gigaknn 4 bits", "faiss", "faiss fast-scan")
FEW_PROBES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]


class Problem:
    def __init__(self, name, data):
        found = vectors.load(name, data)
        self.base, self.queries = found.base, found.queries[:1000]
        self.floats = np.ascontiguousarray(self.queries, np.float32)
        self.base_floats = np.ascontiguousarray(self.base, np.float32)
        exact = faiss.IndexFlatL2(self.base.shape[1])
        exact.add(self.base_floats)
        self.truth = exact.search(self.floats, K)[1]

    def recall(self, ids):
        return float(np.mean([len(set(a) & set(b)) for a, b in zip(ids, self.truth)]) / K)


class Ours:
    def __init__(self, engine, problem, recipe, seed=0):
        self.problem = problem
        self.index = engine.ivf(problem.base, "l2", recipe.format(LISTS), ITERATIONS, seed)

    def search(self, nprobe, refine):
        seconds, ids, _ = self.index.search(self.problem.queries, K, nprobe, len(self.problem.queries), refine)
        return float(seconds.sum()), ids

    def alone(self, nprobe, refine):
        return self.index.search(self.problem.queries, K, nprobe, 1, refine)[0]

    def free(self):
        self.index.free()


class Theirs:
    def __init__(self, problem, factory, refined, seed=None):
        self.problem = problem
        self.index = faiss.index_factory(problem.base.shape[1], factory)
        self.lists = faiss.extract_index_ivf(self.index)
        self.lists.cp.niter = ITERATIONS
        if seed is not None:
            self.lists.cp.seed = self.index.pq.cp.seed = seed  # of codes alone the index is these lists
        self.index.train(problem.base_floats)
        self.index.add(problem.base_floats)
        self.searched = self.index
        if refined:
            self.full = faiss.IndexScalarQuantizer(problem.base.shape[1], faiss.ScalarQuantizer.QT_8bit_direct)
            self.full.add(problem.base_floats)
            self.searched = faiss.IndexRefine(self.index, self.full)

    def search(self, nprobe, refine):
        self.lists.nprobe = nprobe
        if self.searched is not self.index:
            self.searched.k_factor = float(refine)
        queries = self.problem.floats
        ids, distances = np.empty((len(queries), K), np.int64), np.empty((len(queries), K), np.float32)
        pointers = (faiss.swig_ptr(queries), faiss.swig_ptr(distances), faiss.swig_ptr(ids))
        start = time.perf_counter()
        self.searched.search_c(len(queries), pointers[0], K, pointers[1], pointers[2])
        return time.perf_counter() - start, ids

    def alone(self, nprobe, refine):
        self.lists.nprobe = nprobe
        if self.searched is not self.index:
            self.searched.k_factor = float(refine)
        ids, distances = np.empty((1, K), np.int64), np.empty((1, K), np.float32)
        outs = faiss.swig_ptr(distances), faiss.swig_ptr(ids)
        seconds = []
        for i in range(len(self.problem.floats)):
            query = faiss.swig_ptr(self.problem.floats[i : i + 1])
            start = time.perf_counter()
            self.searched.search_c(1, query, K, *outs)
            seconds.append(time.perf_counter() - start)
        return np.array(seconds)

    def free(self):
        del self.searched, self.lists, self.index


def repeated(contestant, setting, least_s):
    """Seconds of one search, of as many as take `least_s`."""
    total, count = 0.0, 0
    while total < least_s:
        total += contestant.search(*setting)[0]
        count += 1
    return total / count


def timed(contestants, settings, rounds):
    """Median queries a second of each at its setting, in turns; and their recalls."""
    times = {name: [] for name in contestants}
    recalls = {name: c.problem.recall(c.search(*settings[name])[1]) for name, c in contestants.items()}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            time.sleep(0.05)
            contestant.search(*settings[name])  # wakes threads up
            times[name].append(repeated(contestant, settings[name], LEAST_S))
    rate = lambda name, seconds: len(contestants[name].problem.queries) / float(seconds)
    return {name: {"qps": rate(name, np.median(times[name])), "slowest": rate(name, max(times[name])), "fastest": rate(name, min(times[name])), "recall": recalls[name], "nprobe": settings[name][0],
                   "refine": settings[name][1]} for name, c in contestants.items()}


def codes_contestant(engine, problem, name, code_bytes, seed):
    bits = {"gigaknn": 8, "faiss": 8, "gigaknn 6 bits": 6}.get(name, 4)
    recipe = f"IVF{LISTS},PQ{code_bytes * 2 if bits == 4 else code_bytes}x{bits}"
    if name.startswith("gigaknn"):
        return Ours(engine, problem, recipe, seed)
    return Theirs(problem, recipe + "fs" * name.endswith("fast-scan"), False, seed)


def codes_contestants(engine, problem, code_bytes):
    return {name: codes_contestant(engine, problem, name, code_bytes, SEEDS[0]) for name in OF_CODES}


def codes_row(engine, problem, code_bytes, rounds):
    contestants = codes_contestants(engine, problem, code_bytes)
    points = [timed(contestants, {name: (nprobe, 0) for name in contestants}, rounds) for nprobe in (4, 8, 16, 32, 64)]
    for name in contestants:
        recalls = [[point[name]["recall"] for point in points]]
        for seed in SEEDS[1:]:
            again = codes_contestant(engine, problem, name, code_bytes, seed)
            recalls.append([problem.recall(again.search(point[name]["nprobe"], 0)[1]) for point in points])
            again.free()
        for point, recall in zip(points, np.mean(recalls, axis=0)):
            point[name]["mean_recall"] = float(recall)
    ours = contestants["gigaknn"]
    # Where nothing reaches it, the most.
    reached = {nprobe: problem.recall(ours.search(nprobe, 0)[1]) for nprobe in FEW_PROBES}
    for point in points:
        enough = [nprobe for nprobe in FEW_PROBES if reached[nprobe] >= point["faiss fast-scan"]["recall"]] or FEW_PROBES[-1:]
        pair = {"gigaknn": ours, "faiss fast-scan": contestants["faiss fast-scan"]}
        point["equal recall"] = timed(pair, {"gigaknn": (enough[0], 0), "faiss fast-scan": (point["faiss fast-scan"]["nprobe"], 0)}, rounds)
    return {"points": points, "ratio": min(p["gigaknn"]["qps"] / p["faiss"]["qps"] for p in points),
            "recall_margin": min(p["gigaknn"]["mean_recall"] - p["faiss"]["mean_recall"] for p in points),
            "ratio_fast_scan": min(p["gigaknn"]["qps"] / p["faiss fast-scan"]["qps"] for p in points),
            "ratio_fast_scan_6": min(p["gigaknn 6 bits"]["qps"] / p["faiss fast-scan"]["qps"] for p in points),
            "recall_margin_fast_scan_6": min(p["gigaknn 6 bits"]["mean_recall"] - p["faiss fast-scan"]["mean_recall"] for p in points),
            "recall_margin_fast_scan": min(p["gigaknn"]["mean_recall"] - p["faiss fast-scan"]["mean_recall"] for p in points),
            "ratio_equal_recall": min(p["equal recall"]["gigaknn"]["qps"] / p["equal recall"]["faiss fast-scan"]["qps"] for p in points)}


def rabitq_contestants(engine, problem, bits):
    contestants = {"gigaknn": Ours(engine, problem, f"IVF{LISTS},RaBitQ{bits}")}
    for name, code in (("faiss", "RaBitQ"), ("faiss fast-scan", "RaBitQfs")):
        contestants[name] = Theirs(problem, f"RR,IVF{LISTS},{code}{bits if bits > 1 else ''}", False)
    return contestants


def rabitq_row(engine, problem, bits, rounds):
    contestants = rabitq_contestants(engine, problem, bits)
    points = [timed(contestants, {name: (nprobe, 0) for name in contestants}, rounds) for nprobe in (4, 16, 64)]
    peers = ("faiss", "faiss fast-scan")
    return {"points": points, "bytes": {"gigaknn": problem.base.shape[1] * bits // 8 + 8, **{name: int(contestants[name].lists.code_size) for name in peers}},
            "ratio": min(p["gigaknn"]["qps"] / max(p[name]["qps"] for name in peers) for p in points),
            "recall_margin": min(p["gigaknn"]["recall"] - max(p[name]["recall"] for name in peers) for p in points)}


def scalar_contestants(engine, problem, bits):
    contestants = {"gigaknn": Ours(engine, problem, f"IVF{LISTS},SQ{bits}" + "d" * (bits == 8))}
    if bits == 8:
        contestants["gigaknn one step"] = Ours(engine, problem, f"IVF{LISTS},SQ8")
    contestants["faiss"] = Theirs(problem, f"IVF{LISTS},SQ{bits}", False)
    return contestants


def scalar_row(engine, problem, bits, rounds):
    contestants = scalar_contestants(engine, problem, bits)
    points = [timed(contestants, {name: (nprobe, 0) for name in contestants}, rounds) for nprobe in (4, 16, 64)]
    return {"points": points, "bytes": dict.fromkeys(contestants, problem.base.shape[1] * bits // 8), "ratio": min(p["gigaknn"]["qps"] / p["faiss"]["qps"] for p in points),
            "recall_margin": min(p["gigaknn"]["recall"] - p["faiss"]["recall"] for p in points)}


def alone_row(contestants, settings, rounds):
    """Seconds of each query by itself, with so many lists and so many times K candidates: median and 99th percentile, medians of the rounds."""
    found = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            time.sleep(0.05)
            contestant.alone(*settings[name])  # wakes threads up
            found[name].append(np.percentile(contestant.alone(*settings[name]), (50, 99)))
    times = {name: dict(zip(("p50_s", "p99_s"), map(float, np.median(values, axis=0)))) for name, values in found.items()}
    best = lambda start: min(value["p99_s"] for name, value in times.items() if name.startswith(start))
    return {"contestants": {name: {**value, "nprobe": settings[name][0], "refine": settings[name][1]} for name, value in times.items()}, "ratio": best("faiss") / best("gigaknn")}


def fastest(contestant, recall):
    """(nprobe, refine) of the quickest setting that reaches the recall; None where none does."""
    best = None
    for refine in REFINES:
        for nprobe in PROBES:
            seconds, ids = contestant.search(nprobe, refine)
            if contestant.problem.recall(ids) < recall:
                continue
            seconds = repeated(contestant, (nprobe, refine), 0.1)
            if best is None or seconds < best[0]:
                best = seconds, (nprobe, refine)
            break  # more probes take longer
    return best and best[1]


def refined_contestants(engine, problem):
    contestants = {"gigaknn ivf_sq 44": Ours(engine, problem, "PCA44,IVF{},SQ8,RFlat"), "gigaknn ivf_pq 32": Ours(engine, problem, "IVF{},PQ32,RFlat")}
    for name, factory in (("PQ32x4fs", "IVF{},PQ32x4fs"), ("PQ64x4fs", "IVF{},PQ64x4fs"), ("PCA64, PQ64x4fs", "PCA64,IVF{},PQ64x4fs"), ("RR, RaBitQfs", "RR128,IVF{},RaBitQfs"), ("PCA48, SQ8", "PCA48,IVF{},SQ8")):
        contestants[f"faiss {name}"] = Theirs(problem, factory.format(LISTS), True)
    return contestants


def refined_row(contestants, recall, rounds):
    settings = {name: fastest(contestant, recall) for name, contestant in contestants.items()}
    able = {name: contestant for name, contestant in contestants.items() if settings[name]}
    found = timed(able, settings, rounds)
    ours = max(value["qps"] for name, value in found.items() if name.startswith("gigaknn"))
    theirs = max(value["qps"] for name, value in found.items() if name.startswith("faiss"))
    return {"recall_asked": recall, "contestants": found, "out_of_reach": sorted(set(contestants) - set(able)), "ratio": ours / theirs}


def alone_refined_row(contestants, recall, rounds):
    """Each at its fastest setting for batches that reaches the recall."""
    settings = {name: fastest(contestant, recall) for name, contestant in contestants.items()}
    return alone_row({name: contestant for name, contestant in contestants.items() if settings[name]}, settings, rounds)


def build_row(engine, name, code_bytes, arguments):
    base = vectors.load(name, arguments.data).base
    floats = np.ascontiguousarray(base, np.float32)
    recipes = {"gigaknn": f"PQ{code_bytes}", "gigaknn 4 bits": f"PQ{2 * code_bytes}x4", "faiss": f"PQ{code_bytes}", "faiss fast-scan": f"PQ{2 * code_bytes}x4fs"}
    seconds = {contestant: [] for contestant in recipes}
    for _ in range(min(3, arguments.rounds)):
        for contestant, codes in recipes.items():
            if contestant.startswith("gigaknn"):
                index = engine.ivf(base, "l2", f"IVF{LISTS},{codes}", ITERATIONS)
                seconds[contestant].append(index.build_s)
                index.free()
                continue
            other = faiss.index_factory(base.shape[1], f"IVF{LISTS},{codes}")
            other.cp.niter = ITERATIONS
            start = time.perf_counter()
            other.train(floats)
            other.add(floats)
            seconds[contestant].append(time.perf_counter() - start)
            del other
    times = {contestant: {"seconds": float(np.median(found))} for contestant, found in seconds.items()}
    of = lambda contestant: times[contestant]["seconds"]
    return {"set": name, "n": len(base), "d": base.shape[1], **times, "ratio": of("faiss") / of("gigaknn"), "ratio_fast_scan": of("faiss fast-scan") / of("gigaknn 4 bits")}


def markdown(results):
    lines = ["# Compressed inverted files against Faiss", "", "Made by `bench/compressed.py`; do not edit.", ""]
    lines += kept.origins(results)
    lines += ["", f"Recall@{K}, batches of 1,000 queries, {LISTS} lists; ratios above 1 are in our favour. Bytes are those of codes, as files have them: beside each of ours but RaBitQ's a scan reads a term of 4.", ""]
    for r in results:
        if r["kind"] == "codes":
            lines += [f"## {r['row']}", "", "| nprobe | gigaknn, 8 bits | Faiss IVFPQ | ratio | Faiss fast-scan | ratio | gigaknn, 6 bits, 3/4 of the bytes | ratio to fast-scan | gigaknn, 4 bits | ratio to fast-scan | 8 bits at its recall | ratio |",
                      "|---|---|---|---|---|---|---|---|---|---|---|---|"]
            words = lambda p: f"{recall_of(p):.4f}, {p['qps']:.0f} QPS"
            # Rows that were measured before there were any have none.
            six = lambda p: f"{words(p['gigaknn 6 bits'])} | {p['gigaknn 6 bits']['qps'] / p['faiss fast-scan']['qps']:.2f}x" if "gigaknn 6 bits" in p else " | "
            for p in r["points"]:
                equal, ours, fast = p["equal recall"], p["gigaknn"], p["faiss fast-scan"]
                lines.append(f"| {ours['nprobe']} | {words(ours)} | {words(p['faiss'])} | {ours['qps'] / p['faiss']['qps']:.2f}x | {words(fast)} | {ours['qps'] / fast['qps']:.2f}x | "
                             f"{six(p)} | {words(p['gigaknn 4 bits'])} | {p['gigaknn 4 bits']['qps'] / fast['qps']:.2f}x | nprobe {equal['gigaknn']['nprobe']}: {words(equal['gigaknn'])} | "
                             f"{equal['gigaknn']['qps'] / equal['faiss fast-scan']['qps']:.2f}x |")
            lines += ["", f"8 bits against IVFPQ: {r['ratio']:.2f}x or more (target {r['target']}x), mean recall above by {r['recall_margin']:+.4f} or more; against fast-scan at equal probes: "
                      f"{r['ratio_fast_scan']:.2f}x or more, mean recall above by {r['recall_margin_fast_scan']:+.4f} or more" +
                      (f"; of 6 bits, with 3/4 of its bytes, {r['ratio_fast_scan_6']:.2f}x or more, {r['recall_margin_fast_scan_6']:+.4f} or more." if "ratio_fast_scan_6" in r else "."), ""]
        elif r["kind"] in ("rabitq", "scalar"):
            names, theirs = list(r["bytes"]), [name for name in r["bytes"] if name.startswith("faiss")]
            lines += [f"## {r['row']}", "", "| nprobe | " + " | ".join(f"{name}, {r['bytes'][name]} bytes" for name in names) + " | ratio to the faster |", "|---" * (len(names) + 2) + "|"]
            for p in r["points"]:
                cells = " | ".join(f"{p[name]['recall']:.4f}, {p[name]['qps']:.0f} QPS" for name in names)
                lines.append(f"| {p['gigaknn']['nprobe']} | {cells} | {p['gigaknn']['qps'] / max(p[name]['qps'] for name in theirs):.2f}x |")
            lines += ["", f"Against the faster of Faiss's: {r['ratio']:.2f}x or more; recall against the better: {r['recall_margin']:+.4f} or more.", ""]
        elif r["kind"] == "alone":
            lines += [f"## {r['row']}", "", "One query at a time.", "", "| contestant | nprobe | refine | median | p99 |", "|---|---|---|---|---|"]
            lines += [f"| {name} | {c['nprobe']} | {c['refine']} | {1e3 * c['p50_s']:.3f} ms | {1e3 * c['p99_s']:.3f} ms |" for name, c in r["contestants"].items()]
            lines += ["", f"Their least p99 to our least: {r['ratio']:.2f} (target: 1 or more).", ""]
        elif r["kind"] == "refined":
            lines += [f"## {r['row']}", "", "| contestant | recall | nprobe | refine | QPS | slowest to fastest round |", "|---|---|---|---|---|---|"]
            lines += [f"| {name} | {c['recall']:.4f} | {c['nprobe']} | {c['refine']} | {c['qps']:.0f} | {c['slowest']:.0f} to {c['fastest']:.0f} |" for name, c in r["contestants"].items()]
            lines += [f"| {name} | out of reach | | | | |" for name in r["out_of_reach"]]
            lines += ["", f"Our best against theirs: {r['ratio']:.2f}x (target {r['target'] or 'none'}).", ""]
        else:
            lines += [f"## {r['row']}", "", f"{r['n']} x {r['d']}: gigaknn {r['gigaknn']['seconds']:.3g} s, Faiss IVFPQ {r['faiss']['seconds']:.3g} s, {r['ratio']:.2f}x (target {r['target']}x); "
                      f"of 4 bits a part gigaknn {r['gigaknn 4 bits']['seconds']:.3g} s, Faiss fast-scan {r['faiss fast-scan']['seconds']:.3g} s, {r['ratio_fast_scan']:.2f}x.", ""]
    return "\n".join(lines)


def recall_of(point):
    return point.get("mean_recall", point["recall"])


def draw_codes(results, pyplot):
    """Recall against queries a second, of codes alone."""
    rows = [r for r in results if r["kind"] == "codes"]
    figure, axes = pyplot.subplots(1, len(rows), figsize=(5 * len(rows), 4), sharey=True, squeeze=False)
    names = {"gigaknn": "gigaknn, 8 bits a part", "gigaknn 6 bits": "gigaknn, 6 bits a part, 3/4 of the bytes", "gigaknn 4 bits": "gigaknn, 4 bits a part", "faiss": "Faiss IVFPQ, 8 bits a part", "faiss fast-scan": "Faiss fast-scan, 4 bits a part"}
    for axis, r in zip(axes[0], rows):
        for (key, name), style in zip(names.items(), ("o-", "d-", "v-", "s--", "^:")):
            points = [p[key] for p in r["points"] if key in p]
            axis.plot([recall_of(p) for p in points], [p["qps"] for p in points], style, label=name)
        axis.set_title(f"{r['row'].split()[-1]} bytes a row; 4 to 64 of {LISTS} lists")
        axis.set_xlabel(f"recall@{K}")
        axis.set_yscale("log")
        axis.grid(True, which="both", alpha=0.3)
    axes[0][0].set_ylabel("queries a second, 2 threads")
    axes[0][-1].legend()
    return figure


def draw_bytes(results, pyplot):
    """Recall against bytes a row, of codes alone at the most lists; beside each point its queries a second."""
    lines = {}
    for r in results:
        if r["kind"] not in ("codes", "rabitq"):
            continue
        point = r["points"][-1]
        for key, contestant in point.items():
            if key == "equal recall":
                continue
            size = int(r["row"].split()[-1]) * (6 if key == "gigaknn 6 bits" else 8) // 8 if r["kind"] == "codes" else r["bytes"][key]
            kind = {"faiss fast-scan": "4 bits a part, fast-scan", "gigaknn 4 bits": "4 bits a part", "gigaknn 6 bits": "6 bits a part"}.get(key, "8 bits a part") if r["kind"] == "codes" else "RaBitQ" + ", fast-scan" * key.endswith("fast-scan")
            lines.setdefault(("Faiss, " if key.startswith("faiss") else "gigaknn, ") + kind, []).append((size, recall_of(contestant), contestant["qps"]))
    figure, axis = pyplot.subplots(figsize=(8, 5))
    for name, points in sorted(lines.items(), key=lambda line: line[0].lower(), reverse=True):
        ours = name.startswith("gigaknn")
        axis.plot([p[0] for p in points], [p[1] for p in points], "o-" if ours else "s--", label=name, markersize=4)
        for size, recall, qps in points:
            axis.annotate(f"{qps / 1000:.0f}k", (size, recall), textcoords="offset points", xytext=(-16 if "4 bits" in name or "fast" in name else 4, 5 if ours else -11), fontsize=7)
    axis.set_title(f"64 of {LISTS} lists; at each point thousands of queries a second, 2 threads")
    axis.set_xlabel("bytes a row")
    axis.set_ylabel(f"recall@{K}")
    axis.grid(True, alpha=0.3)
    axis.legend(fontsize=8)
    return figure


def draw_refined(results, pyplot):
    """Recall against queries a second, with full vectors behind codes."""
    lines = {}
    for r in results:
        if r["kind"] == "refined":
            for name, contestant in r["contestants"].items():
                lines.setdefault(name, []).append((contestant["recall"], contestant["qps"]))
    figure, axis = pyplot.subplots(figsize=(8, 4.5))
    for name, points in lines.items():
        axis.plot([p[0] for p in points], [p[1] for p in points], "o-" if name.startswith("gigaknn") else "s--", label=name, markersize=4)
    axis.set_title("full vectors behind codes: each at its quickest setting for recall 0.9, 0.95, 0.99")
    axis.set_xlabel(f"recall@{K}")
    axis.set_ylabel("queries a second, 2 threads")
    axis.set_yscale("log")
    axis.grid(True, which="both", alpha=0.3)
    axis.legend(fontsize=8)
    return figure


def draw(results, folder):
    pyplot = drawing.pyplot()
    for name, kind, figure_of in (("codes", "codes", draw_codes), ("bytes", "codes", draw_bytes), ("refined", "refined", draw_refined)):
        if any(r["kind"] == kind for r in results):
            figure = figure_of(results, pyplot)
            figure.tight_layout()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def main():
    arguments, engine, header = kept.start(__doc__, 7, "codes sift 16, refined ...")
    problems = {}

    def problem(name):
        if name not in problems:
            problems.clear()
            problems[name] = Problem(name, arguments.data)
        return problems[name]

    def row(name, kind, target, measure):
        return lambda: {"row": name, "kind": kind, "target": target, "commit": engine.commit(), "rounds": arguments.rounds, **measure()}

    work = {}
    for code_bytes in (16, 32):
        name = f"codes sift {code_bytes}"
        work[name] = row(name, "codes", 1.3, lambda b=code_bytes: codes_row(engine, problem("sift"), b, arguments.rounds))
        name = f"alone sift {code_bytes}"
        work[name] = row(name, "alone", 1.0, lambda b=code_bytes: alone_row(contestants := codes_contestants(engine, problem("sift"), b), dict.fromkeys(contestants, (16, 0)), arguments.rounds))
    for bits in (1, 2, 3, 4):
        work[f"rabitq sift {bits}"] = row(f"rabitq sift {bits}", "rabitq", None, lambda b=bits: rabitq_row(engine, problem("sift"), b, arguments.rounds))
    for name in ("sift", "fashion"):
        for bits in (8, 6, 4):
            work[f"scalar {name} {bits}"] = row(f"scalar {name} {bits}", "scalar", None, lambda n=name, b=bits: scalar_row(engine, problem(n), b, arguments.rounds))
    work["alone rabitq 1"] = row("alone rabitq 1", "alone", 1.0, lambda: alone_row(contestants := rabitq_contestants(engine, problem("sift"), 1), dict.fromkeys(contestants, (16, 0)), arguments.rounds))
    made = {}

    def contestants():
        if not made:
            made.update(refined_contestants(engine, problem("sift")))
        return made

    for recall in (0.9, 0.95, 0.99):
        name = f"refined sift {recall}"
        work[name] = row(name, "refined", 1.5 if recall == 0.95 else None, lambda r=recall: refined_row(contestants(), r, arguments.rounds))
    work["alone refined 0.95"] = row("alone refined 0.95", "alone", 1.0, lambda: alone_refined_row(contestants(), 0.95, arguments.rounds))
    work["build clusters-1000000x128 32"] = row("build clusters-1000000x128 32", "build", 2.0,
                                                lambda: build_row(engine, "clusters-1000000x128", 32, arguments))
    draw(kept.run("compressed", work, markdown, header, arguments), kept.HERE.parent / "docs" / "figures")


if __name__ == "__main__":
    main()
