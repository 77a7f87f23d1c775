"""gigaknn for ann-benchmarks. Copy this folder to ann_benchmarks/algorithms/gigaknn there, install the wheel, and `python run.py --local --algorithm gigaknn`."""

import gigaknn
import numpy as np

from ..base.module import BaseANN

METRICS = {"euclidean": "euclidean", "angular": "cosine", "hamming": "hamming", "jaccard": "jaccard"}


class GigaKNN(BaseANN):
    """An index of a recipe of `gigaknn.build`. Single queries are searched by one thread, batches by all."""

    def __init__(self, metric, recipe):
        if metric not in METRICS:
            raise NotImplementedError(f"gigaknn has no metric {metric!r}")
        self._metric = METRICS[metric]
        self._recipe = recipe
        self._search = {}
        self.name = f"gigaknn({recipe})"

    def fit(self, X):
        self._index = gigaknn.build(self._rows(X), index=self._recipe, metric=self._metric)

    def set_query_arguments(self, nprobe, refine=None):
        self._search = {"nprobe": nprobe, "refine": refine}
        self.name = f"gigaknn({self._recipe}, nprobe={nprobe}{'' if refine is None else f', refine={refine}'})"

    def query(self, v, n):
        return self._index.search(self._rows(v[None]), n, threads=1, **self._search).ids[0]

    def batch_query(self, X, n):
        self._found = self._index.search(self._rows(X), n, **self._search).ids

    def get_batch_results(self):
        return self._found

    def _rows(self, X):
        if self._metric in ("hamming", "jaccard"):
            return np.packbits(np.asarray(X, dtype=bool), axis=1)
        return np.ascontiguousarray(X, dtype=np.float32)

    def __str__(self):
        return self.name
