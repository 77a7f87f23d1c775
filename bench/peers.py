"""gigaknn and Faiss behind the same four words: prepare, search, graph, free."""

import ctypes
import time

import faiss
import numpy as np


DTYPES = {"float32": "f32", "float16": "f16", "uint8": "u8", "int8": "i8"}


class Gigaknn:
    """libgigaknn_bench.so; times are taken inside it."""

    def __init__(self, path, device, threads):
        self.library = ctypes.CDLL(str(path))
        self.device, self.threads = device.encode(), threads
        for name, result in (("error", ctypes.c_char_p), ("commit", ctypes.c_char_p), ("isa", ctypes.c_char_p),
                             ("prepare", ctypes.c_void_p), ("search", ctypes.c_double),
                             ("graph", ctypes.c_double), ("build_graph", ctypes.c_double), ("kmeans", ctypes.c_double),
                             ("assign", ctypes.c_double), ("ivf", ctypes.c_void_p), ("ivf_search", ctypes.c_double), ("ivf_save", ctypes.c_double), ("ivf_open", ctypes.c_double), ("bytes", ctypes.c_int64), ("peak", ctypes.c_double)):
            getattr(self.library, f"gigaknn_bench_{name}").restype = result
        if self.isa() is None:
            raise SystemExit(self.library.gigaknn_bench_error().decode())

    def isa(self):
        name = self.library.gigaknn_bench_isa(self.device)
        return name.decode() if name else None

    def commit(self):
        return self.library.gigaknn_bench_commit().decode()

    def peak(self, kind):
        """(multiply-adds a second, the loop that reached them)."""
        name = ctypes.c_char_p()
        return self.library.gigaknn_bench_peak(kind.encode(), self.threads, ctypes.byref(name)), name.value.decode()

    def build_graph(self, base, metric, k, method, recall):
        """(seconds, ids [n, k], {what the library says})."""
        ids, distances = np.empty((len(base), k), np.int64), np.empty((len(base), k), np.float32)
        measured, text = ctypes.c_double(), ctypes.create_string_buffer(400)
        seconds = self.library.gigaknn_bench_build_graph(
            self.device, ctypes.c_void_p(base.ctypes.data), ctypes.c_int64(base.shape[0]), ctypes.c_int64(base.shape[1]),
            DTYPES[base.dtype.name].encode(), metric.encode(), ctypes.c_int64(k), method.encode(), ctypes.c_double(recall),
            self.threads, ctypes.c_void_p(ids.ctypes.data), ctypes.c_void_p(distances.ctypes.data), ctypes.byref(measured),
            text, ctypes.c_int64(len(text)))
        if seconds < 0:
            raise RuntimeError(self.library.gigaknn_bench_error().decode())
        return seconds, ids, {"measured": measured.value, "text": text.value.decode()}

    def kmeans(self, rows, clusters, iterations, seed=0):
        """(seconds, centroids [clusters, d])."""
        centroids = np.empty((clusters, rows.shape[1]), np.float32)
        seconds = self.library.gigaknn_bench_kmeans(
            self.device, ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(rows.shape[0]), ctypes.c_int64(rows.shape[1]),
            DTYPES[rows.dtype.name].encode(), ctypes.c_int64(clusters), iterations, ctypes.c_uint64(seed), self.threads,
            ctypes.c_void_p(centroids.ctypes.data))
        if seconds < 0:
            raise RuntimeError(self.library.gigaknn_bench_error().decode())
        return seconds, centroids

    def assign(self, rows, centroids):
        """(seconds, ids [n], distances [n])."""
        ids, distances = np.empty(len(rows), np.int64), np.empty(len(rows), np.float32)
        seconds = self.library.gigaknn_bench_assign(
            self.device, ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(rows.shape[0]), ctypes.c_int64(rows.shape[1]),
            DTYPES[rows.dtype.name].encode(), ctypes.c_void_p(centroids.ctypes.data), ctypes.c_int64(len(centroids)), self.threads,
            ctypes.c_void_p(ids.ctypes.data), ctypes.c_void_p(distances.ctypes.data))
        if seconds < 0:
            raise RuntimeError(self.library.gigaknn_bench_error().decode())
        return seconds, ids, distances

    def ivf(self, base, metric, recipe, iterations, seed=0):
        return GigaknnIvf(self, base, metric, recipe, iterations, seed)

    def open(self, path):
        """Seconds until a file is mapped as an index."""
        seconds = self.library.gigaknn_bench_ivf_open(str(path).encode())
        if seconds < 0:
            raise RuntimeError(self.library.gigaknn_bench_error().decode())
        return seconds

    def prepare(self, base, metric, k, queries, batch, self_search):
        return GigaknnIndex(self, base, metric, k, queries, batch, self_search)


class GigaknnIndex:
    def __init__(self, owner, base, metric, k, queries, batch, self_search):
        self.owner, self.base = owner, base
        seconds = ctypes.c_double()
        dtype = DTYPES[base.dtype.name]
        self.handle = ctypes.c_void_p(owner.library.gigaknn_bench_prepare(
            owner.device, ctypes.c_void_p(base.ctypes.data), ctypes.c_int64(base.shape[0]),
            ctypes.c_int64(base.shape[1]), dtype.encode(), metric.encode(), ctypes.c_int64(k),
            ctypes.c_int64(queries), ctypes.c_int64(batch), self_search, owner.threads, ctypes.byref(seconds)))
        self.prepare_s = self._seconds(seconds.value)

    def _seconds(self, value):
        if value < 0:
            raise RuntimeError(self.owner.library.gigaknn_bench_error().decode())
        return value

    def search(self, queries, k, batch):
        """Batch by batch -> (seconds, ids [q, k], distances [q, k])."""
        ids, distances = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        call, seconds = self.owner.library.gigaknn_bench_search, 0.0
        for begin in range(0, len(queries), batch):
            part = queries[begin:begin + batch]
            seconds += self._seconds(call(
                self.handle, ctypes.c_void_p(part.ctypes.data), ctypes.c_int64(len(part)), ctypes.c_int64(k),
                self.owner.threads, ctypes.c_void_p(ids[begin:].ctypes.data),
                ctypes.c_void_p(distances[begin:].ctypes.data)))
        return seconds, ids, distances

    def graph(self, k):
        ids, distances = np.empty((len(self.base), k), np.int64), np.empty((len(self.base), k), np.float32)
        seconds = self._seconds(self.owner.library.gigaknn_bench_graph(
            self.handle, ctypes.c_int64(k), self.owner.threads, ctypes.c_void_p(ids.ctypes.data),
            ctypes.c_void_p(distances.ctypes.data)))
        return seconds, ids, distances

    def description(self):
        text = ctypes.create_string_buffer(400)
        self.owner.library.gigaknn_bench_describe(self.handle, text, ctypes.c_int64(len(text)))
        return text.value.decode()

    def bytes(self):
        return self.owner.library.gigaknn_bench_bytes(self.handle)

    def free(self):
        self.owner.library.gigaknn_bench_free(self.handle)


class GigaknnIvf:
    """An inverted file by its recipe ("IVF1024,PQ16")."""

    def __init__(self, owner, base, metric, recipe, iterations, seed):
        self.owner, self.base = owner, base
        seconds = ctypes.c_double()
        self.handle = ctypes.c_void_p(owner.library.gigaknn_bench_ivf(
            owner.device, ctypes.c_void_p(base.ctypes.data), ctypes.c_int64(base.shape[0]), ctypes.c_int64(base.shape[1]),
            DTYPES[base.dtype.name].encode(), metric.encode(), recipe.encode(), iterations,
            ctypes.c_int64(seed), owner.threads, ctypes.byref(seconds)))
        if not self.handle:
            raise RuntimeError(owner.library.gigaknn_bench_error().decode())
        self.build_s = seconds.value

    def search(self, queries, k, nprobe, batch, refine=0):
        """(seconds of each batch, ids [q, k], distances [q, k])."""
        ids, distances = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        seconds = np.empty((len(queries) + batch - 1) // batch)
        if self.owner.library.gigaknn_bench_ivf_search(
                self.handle, ctypes.c_void_p(queries.ctypes.data), ctypes.c_int64(len(queries)), DTYPES[queries.dtype.name].encode(),
                ctypes.c_int64(k), ctypes.c_int64(nprobe), ctypes.c_int64(refine), ctypes.c_int64(batch), self.owner.threads, ctypes.c_void_p(ids.ctypes.data),
                ctypes.c_void_p(distances.ctypes.data), ctypes.c_void_p(seconds.ctypes.data)) < 0:
            raise RuntimeError(self.owner.library.gigaknn_bench_error().decode())
        return seconds, ids, distances

    def save(self, path):
        if self.owner.library.gigaknn_bench_ivf_save(self.handle, str(path).encode()) < 0:
            raise RuntimeError(self.owner.library.gigaknn_bench_error().decode())

    def free(self):
        self.owner.library.gigaknn_bench_ivf_free(self.handle)


def normalised(rows):
    wide = rows.astype(np.float32)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(norms == 0, 1, norms)


class FaissIndex:
    """A flat Faiss index over float32 copies. Converting and normalising are not counted against it."""

    def __init__(self, kind, base, metric):
        d = base.shape[1]
        self.as_floats = normalised if metric == "cosine" else lambda rows: np.ascontiguousarray(rows, np.float32)
        if kind == "panorama":
            # Eight levels, as its authors use; every level needs a coordinate.
            self.index = faiss.IndexFlatL2Panorama(d, min(8, d))
        elif metric == "l2":
            self.index = faiss.IndexFlatL2(d)
        elif metric == "cosine":
            self.index = faiss.IndexFlatIP(d)
        else:
            self.index = faiss.IndexFlat(d, {"l1": faiss.METRIC_L1}[metric])
        floats = self.as_floats(base)
        start = time.perf_counter()
        self.index.add(floats)
        self.prepare_s = time.perf_counter() - start

    def search(self, floats, k, batch, threads):
        """As GigaknnIndex.search; through the bare C++ call, so that Python costs as little as there."""
        faiss.omp_set_num_threads(threads)
        ids, distances = np.empty((len(floats), k), np.int64), np.empty((len(floats), k), np.float32)
        search, seconds = self.index.search_c, 0.0
        for begin in range(0, len(floats), batch):
            count = min(batch, len(floats) - begin)
            pointers = (faiss.swig_ptr(floats[begin:]), faiss.swig_ptr(distances[begin:]), faiss.swig_ptr(ids[begin:]))
            start = time.perf_counter()
            search(count, pointers[0], k, pointers[1], pointers[2])
            seconds += time.perf_counter() - start
        return seconds, ids, distances
