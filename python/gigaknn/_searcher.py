"""Rows that are searched for other libraries' sakes: exactly where they are few, else by what reaches a recall.

These libraries take -1 for the last row. What is approximate may look at fewer than k rows for some query, and ends its list in -1: such lists are searched exactly,
so that none of -1 comes out of here where there are k rows.
"""

import numpy as np

from . import _index
from ._graph import knn_graph, radius_graph
from ._search import radius_search, with_whole_lists

_fewest_rows_for_an_index = 10_000
bit_metrics = ("hamming", "jaccard")


def with_own_rows(distances, ids):
    """Lists that begin with the row itself."""
    n = len(ids)
    return np.concatenate((np.zeros((n, 1), distances.dtype), distances), axis=1), np.concatenate((np.arange(n)[:, None], ids), axis=1)


def zeros_in(rows):
    """[n] bool: rows of zeros, which have no direction."""
    return ~rows.any(axis=1)


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

    def __getstate__(self):
        return {**self.__dict__, "_index": None, "_k": 0}

    def nearest(self, X, k, threads):
        """(distances, ids), [q, k]."""
        index = self.index_for(k, threads)
        # One that missed its recall is searched as well as it was ever measured.
        best = index.curve[-1] if index.recall is None and index.curve else None
        effort = {} if best is None else {"nprobe": best.nprobe, "refine": best.refine}
        distances, ids = index.search(X, k, threads=threads, **effort)
        return self._whole(distances, ids, X, threads=threads)

    def index_for(self, k, threads):
        index = self._index
        if index is None or (self._recall is not None and self._k < k):
            exact = self._recall is None or k > len(self._rows) * 9 // 10  # an index for a recall holds rows out
            wanted = {"index": "Flat"} if exact else {"recall": self._recall}
            index = _index.build(self._rows, k=k, threads=threads, **wanted, **self._options)
            self._index, self._k = index, k
        return index

    def nearest_others(self, k, threads, progress=None):
        """(distances, ids), [n, k], of each row that was fitted, itself left out: the caller's own, as of `nearest`."""
        graph = knn_graph(self._rows, k, recall=self._graph_recall, threads=threads, progress=progress, **self._options)
        distances, ids = self._whole(graph.distances, graph.ids, None, threads=threads, progress=progress)
        return (distances.copy(), ids.copy()) if ids is graph.ids else (distances, ids)  # a graph's are read-only

    def _whole(self, distances, ids, X, **run):
        return with_whole_lists(distances, ids, X, self._rows, **self._of_exact_searches(), **run)

    def _of_exact_searches(self):
        return {name: self._options[name] for name in ("metric", "device")}

    def within(self, X, radius, threads):
        """(offsets, distances, ids) of all rows at most `radius` from each of X, exactly; of None: from each that was fitted, itself left out."""
        options = self._of_exact_searches()
        if X is None:
            return radius_graph(self._rows, radius, threads=threads, **options)
        return radius_search(X, self._rows, radius, threads=threads, **options)


class CosineSearcher:
    """By cosine as scikit-learn has it: rows of zeros are 1 from every row, and from each other. The others alone are searched; those of zeros are put between what is found."""

    def __init__(self, rows, recall, **options):
        zeros = zeros_in(rows)
        self._n, self._zeros, self._others = len(rows), np.flatnonzero(zeros), np.flatnonzero(~zeros)
        self._searcher = Searcher(rows[self._others] if len(self._zeros) else rows, recall, metric="cosine", **options)

    def nearest(self, X, k, threads):
        """(distances, ids), [q, k]."""
        zeros = zeros_in(X)
        distances, ids = np.ones((len(X), k), np.float32), np.tile(np.arange(k), (len(X), 1))
        if not zeros.all():
            among = min(k, len(self._others))
            found = self._searcher.nearest(X[~zeros] if zeros.any() else X, among, threads) if among else self._nothing(np.sum(~zeros))
            distances[~zeros], ids[~zeros] = self._with_zeros(*found, k)
        return distances, ids

    def nearest_others(self, k, threads):
        """(distances, ids), [n, k], of each row that was fitted, itself left out."""
        among = min(k, len(self._others) - 1)
        found = self._searcher.nearest_others(among, threads) if among > 0 else self._nothing(len(self._others))
        distances, ids = np.ones((self._n, k), np.float32), np.tile(np.arange(k), (self._n, 1))
        ids += ids >= np.arange(self._n)[:, None]
        distances[self._others], ids[self._others] = self._with_zeros(*found, k)
        return distances, ids

    def within(self, X, radius, threads):
        """As that of `Searcher`."""
        asked = zeros_in(X) if X is not None else np.isin(np.arange(self._n), self._zeros)
        of_others = np.flatnonzero(~asked)
        if len(of_others) and len(self._others):
            offsets, distances, ids = self._searcher.within(None if X is None else X[of_others] if asked.any() else X, radius, threads)
        else:
            offsets, distances, ids = np.zeros(len(of_others) + 1, np.int64), np.empty(0, np.float32), np.empty(0, np.int64)
        queries, ids = np.repeat(of_others, np.diff(offsets)), self._others[ids]
        if radius >= 1:
            pairs = [(np.repeat(of_others, len(self._zeros)), np.tile(self._zeros, len(of_others)))]
            of_zeros = np.flatnonzero(asked)
            own, every = np.repeat(of_zeros, self._n), np.tile(np.arange(self._n), len(of_zeros))
            pairs.append((own, every) if X is not None else (own[own != every], every[own != every]))
            more_queries, more_ids = (np.concatenate(column) for column in zip(*pairs))
            queries, ids = np.concatenate((queries, more_queries)), np.concatenate((ids, more_ids))
            distances = np.concatenate((distances, np.ones(len(more_ids), np.float32)))
        order = np.lexsort((ids, distances, queries))
        return np.searchsorted(queries[order], np.arange(len(asked) + 1)), distances[order], ids[order]

    def _nothing(self, q):
        return np.empty((q, 0), np.float32), np.empty((q, 0), np.int64)

    def _with_zeros(self, distances, ids, k):
        """The k nearest of what was found among the others, and of rows of zeros; of equal distances the smaller id first."""
        q, zeros = len(ids), self._zeros[:k]
        if len(zeros) == 0:
            return distances, ids
        distances = np.concatenate((distances, np.ones((q, len(zeros)), np.float32)), axis=1)
        ids = np.concatenate((np.where(ids < 0, -1, self._others[ids] if len(self._others) else ids), np.tile(zeros, (q, 1))), axis=1)
        order = np.lexsort((ids, distances), axis=1)[:, :k]
        return np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1)
