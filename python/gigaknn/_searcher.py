"""Rows that are searched for other libraries' sakes: exactly where they are few, else by what reaches a recall."""

import numpy as np

from . import _index
from ._graph import knn_graph

_fewest_rows_for_an_index = 10_000
bit_metrics = ("hamming", "jaccard")


def with_own_rows(distances, ids):
    """Lists that begin with the row itself."""
    n = len(ids)
    return np.concatenate((np.zeros((n, 1), distances.dtype), distances), axis=1), np.concatenate((np.arange(n)[:, None], ids), axis=1)


class Searcher:
    """The rows that were fitted, and an index of them from the first search on, which is not pickled."""

    def __init__(self, rows, recall, **options):
        self._rows = rows
        few = len(rows) < _fewest_rows_for_an_index
        self._graph_recall = 1.0 if few else recall
        self._recall = None if few or recall == 1 or options.get("metric") in bit_metrics else recall  # of packed bits there are graphs for a recall, but no indexes
        self._options = options
        self._k = 0
        self._index = None

    @property
    def approximate(self):
        return self._recall is not None

    def __getstate__(self):
        return {**self.__dict__, "_index": None, "_k": 0}

    def nearest(self, X, k, threads):
        """(distances, ids), [q, k]."""
        return self.index_for(k, threads).search(X, k, threads=threads)

    def index_for(self, k, threads):
        index = self._index
        if index is None or (self._recall is not None and self._k < k):
            wanted = {"index": "Flat"} if self._recall is None else {"recall": self._recall}
            index = _index.build(self._rows, k=k, threads=threads, **wanted, **self._options)
            self._index, self._k = index, k
        return index

    def nearest_others(self, k, threads):
        """(distances, ids), [n, k], of each row that was fitted, itself left out."""
        graph = self.graph(k, threads)
        return graph.distances, graph.ids

    def graph(self, k, threads, progress=None):
        return knn_graph(self._rows, k, recall=self._graph_recall, threads=threads, progress=progress, **self._options)
