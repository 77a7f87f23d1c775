"""NNDescent, in place of pynndescent's."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np

from ._arguments import recall_of, refuse_complex_and_dates, seed_of, whole
from ._errors import Error, InvalidArgument, Unsupported
from ._masked import refuse_masked
from ._searcher import Searcher, bit_metrics, with_own_rows, zeros_in

if TYPE_CHECKING:
    from ._types import Array, Floats, Ids, Rows, Whole

# Of pynndescent's names.
_metrics = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "sqeuclidean": "l2",
    "cosine": "cosine",
    "manhattan": "l1",
    "taxicab": "l1",
    "cityblock": "l1",
    "l1": "l1",
    "chebyshev": "linf",
    "linfinity": "linf",
    "linfty": "linf",
    "linf": "linf",
    "hellinger": "hellinger",
    "bit_hamming": "hamming",
    "bit_jaccard": "jaccard",
}

# They steer trees, the descent and the search of a graph, of which there is none here.
_ignored = {
    "n_trees": None,
    "leaf_size": None,
    "pruning_degree_multiplier": 1.5,
    "diversify_prob": 1.0,
    "diversify_method": "standard",
    "degree_prune_aggressiveness": 1.0,
    "n_search_trees": None,
    "search_tree_leaf_size": None,
    "max_search_tree_depth": None,
    "search_tree_leaf_budget": 1,
    "quantization": None,
    "tree_init": True,
    "low_memory": True,
    "max_candidates": None,
    "max_rptree_depth": 200,
    "n_iters": None,
    "delta": 0.001,
    "parallel_batch_queries": False,
    "angular_trees": False,
}
_refused = {"init_graph": None, "init_dist": None, "bit_metric": False}
_warned = set()


class NNDescent:
    """As pynndescent's class of this name, by gigaknn: the graph of `data`, and queries.

    Fewer than 10,000 rows are compared exactly, graph and queries; with packed bits all queries are. Of more the graph is built for the recall, and queries are answered not by a walk along it, as in pynndescent,
    but by an index that is built for the recall at the first query, or by `prepare`.

    Rows of zeros are, by cosine and hellinger, 1 from any other row and 0 from each other, as `pynndescent.distances` has them. (Its class shows 1 by cosine also between two of them,
    and gives a query of zeros one row k times.)

    UMAP takes it whole, and then places new rows too: ``umap.UMAP(precomputed_knn=(*index.neighbor_graph, index))``.

    Parameters
    ----------
    data : array [n, d]
        As float32 (copied where it is not); for "bit_hamming" and "bit_jaccard" bits packed in uint8, and whole numbers from 0 to 255 of other
        types as these. Sparse matrices are refused.
    metric : str
        "euclidean" or "l2" (both true distances), "sqeuclidean", "cosine", "manhattan", "chebyshev", "hellinger" and what else pynndescent calls these, "minkowski" with
        ``metric_kwds={"p": 1, 2 or inf}``; "bit_hamming", "bit_jaccard". Others, and functions, are refused.
    n_neighbors : int
        Of the graph, each row among its own.
    random_state : int, RandomState or None
        None is 0.
    n_jobs : int
        Threads; None and -1: all that are allowed.
    compressed : bool
        True: after `prepare` there is no graph.
    verbose : bool
        Bars of tqdm.
    recall : float
        Share of the true neighbours that graph and queries are to have; not pynndescent's. 1: exact.
    device : str
        As of `knn`; not pynndescent's.
    **ignored
        n_trees, leaf_size, pruning_degree_multiplier, diversify_prob, diversify_method, degree_prune_aggressiveness, n_search_trees, search_tree_leaf_size,
        max_search_tree_depth, search_tree_leaf_budget, quantization, tree_init, low_memory, max_candidates, max_rptree_depth, n_iters, delta, parallel_batch_queries and angular_trees
        mean nothing here: what is not pynndescent's default is warned of, once. init_graph, init_dist and bit_metric are refused.

    Examples
    --------
    >>> import numpy as np
    >>> from gigaknn import NNDescent
    >>> x = np.random.default_rng(0).random((500, 8), dtype=np.float32)
    >>> index = NNDescent(x, n_neighbors=15)
    >>> ids, distances = index.neighbor_graph
    >>> ids.shape, bool((ids[:, 0] == np.arange(500)).all())
    ((500, 15), True)
    >>> index.query(x[:3], k=2)[0][:, 0]
    array([0, 1, 2], dtype=int32)
    """

    def __init__(
        self,
        data: Rows,
        metric: str = "euclidean",
        metric_kwds: Mapping[str, Any] | None = None,
        n_neighbors: Whole = 30,
        *,
        random_state: Any = None,
        n_jobs: Whole | None = None,
        compressed: bool = False,
        verbose: bool = False,
        recall: float = 0.98,
        device: str = "cpu",
        **ignored: Any,
    ) -> None:
        _tell_of(ignored)
        self.metric = metric
        self.metric_kwds = metric_kwds
        self.n_neighbors = whole(n_neighbors, "n_neighbors", 32)
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.compressed = bool(compressed)
        self.verbose = bool(verbose)
        self._metric = _metric_of(metric, metric_kwds)
        if self.n_neighbors < 1:
            raise InvalidArgument(f"n_neighbors must be at least 1, got {n_neighbors}")
        self._options = {"recall": recall_of(recall), "metric": self._metric, "device": device, "seed": _seed_of(random_state)}
        _threads_of(n_jobs)
        self._fit(self._as_rows(data, "data"))

    @property
    def neighbor_graph(self) -> tuple[Array, Floats] | None:
        """(ids [n, n_neighbors] int32, distances [n, n_neighbors] float32), each row first in its own list; -1 and inf where there are fewer rows. None once it is compressed."""
        if self._graph is None:
            warnings.warn("Compressed indexes do not have neighbor graph information.", stacklevel=2)
            return None
        return self._graph[0].copy(), self._graph[1].copy()

    _angular_trees = False  # UMAP asks, for the epsilon of a query

    @property
    def dim(self) -> int:
        return self._raw_data.shape[1]

    def prepare(self, compile_search: bool = False) -> None:
        """Builds what answers queries, for k as large as n_neighbors; otherwise the first query does.

        Parameters
        ----------
        compile_search : bool
            Means nothing: nothing is compiled.
        """
        self._searcher.index_for(min(self.n_neighbors, len(self._raw_data)), _threads_of(self.n_jobs))
        if self.compressed:
            self._graph = None

    def compress_index(self) -> None:
        """Leaves only what queries need. There is no graph from then on, and no `update`."""
        self.compressed = True
        self.prepare()

    def query(self, query_data: Rows, k: Whole = 10, epsilon: float = 0.1, *, return_distances: bool = True) -> Any:
        """The nearest rows of each query, of the recall that was asked for: by an index or, of few rows, an exact search.

        Parameters
        ----------
        query_data : array [q, d]
        k : int
        epsilon : float
            Means nothing here, as no graph is searched: `recall` of the class says how many are found.
        return_distances : bool
            False: the ids alone.

        Returns
        -------
        (ids, distances)
            In pynndescent's order: ids [q, k] int32 where they fit, else int64; distances [q, k] float32. -1 and inf where there are fewer than k rows, and only there.

        Examples
        --------
        >>> import numpy as np
        >>> from gigaknn import NNDescent
        >>> ids, distances = NNDescent(np.arange(9, dtype=np.float32)[:, None], n_neighbors=3).query([[3.2]], k=2)
        >>> ids
        array([[3, 4]], dtype=int32)
        """
        if epsilon != 0.1:
            _warn_once("epsilon", "epsilon is ignored: recall= of NNDescent says how many are found")
        k = whole(k, "k")
        if k < 1:
            raise InvalidArgument(f"k must be at least 1, got {k}")
        queries = self._as_rows(query_data, "query_data")
        found = min(k, len(self._raw_data))
        distances, ids = self._searcher.nearest(self._searched(queries), found, _threads_of(self.n_jobs))
        if not self._zeros_apart:  # a query of zeros is as far from every row
            zeros = _zeros_in(queries, self._metric)
            distances[zeros], ids[zeros] = 1, np.arange(found)
        shown = self._shown(distances, ids, k)
        return shown if return_distances else shown[0]

    def query_indices(self, query_data: Rows, k: Whole = 10, epsilon: float = 0.1) -> Array:
        """The ids that `query` finds.

        Parameters
        ----------
        query_data, k, epsilon
            As of `query`.

        Returns
        -------
        ids : array [q, k]

        Examples
        --------
        >>> import numpy as np
        >>> from gigaknn import NNDescent
        >>> NNDescent(np.arange(9, dtype=np.float32)[:, None], n_neighbors=3).query_indices([[3.2]], k=2)
        array([[3, 4]], dtype=int32)
        """
        return self.query(query_data, k, epsilon, return_distances=False)

    def update(self, xs_fresh: Rows = None, xs_updated: Rows = None, updated_indices: Ids | None = None) -> None:
        """Replaces some rows, then puts others behind; the graph is built anew, the index at the next query.

        Parameters
        ----------
        xs_fresh : array [m, d]
            Rows to come behind.
        xs_updated : array [u, d]
            In place of the rows `updated_indices`.
        updated_indices : array [u] int

        Raises
        ------
        Unsupported
            It is compressed.

        Examples
        --------
        >>> import numpy as np
        >>> from gigaknn import NNDescent
        >>> index = NNDescent(np.arange(9, dtype=np.float32)[:, None], n_neighbors=3)
        >>> index.update(xs_fresh=np.array([[9.0]], dtype=np.float32))
        >>> index.neighbor_graph[0][9]
        array([9, 8, 7], dtype=int32)
        """
        if self.compressed:
            raise Unsupported("a compressed NNDescent is not updated")
        if (xs_updated is None) != (updated_indices is None):
            raise InvalidArgument("xs_updated and updated_indices come together, or not at all")
        rows = self._raw_data
        if xs_updated is not None:
            refuse_masked(updated_indices, "updated_indices")
            new, ids = self._as_rows(xs_updated, "xs_updated"), np.asarray(updated_indices)
            if ids.dtype.kind not in "iu" or ids.shape != (len(new),):
                raise InvalidArgument(f"updated_indices must be a whole number for each of the {len(new)} rows of xs_updated, got shape {list(ids.shape)} of {ids.dtype}")
            if len(ids) and not (0 <= ids.min() and ids.max() < len(rows)):
                raise InvalidArgument(f"updated_indices must be from 0 to {len(rows) - 1}, got {ids.min()} to {ids.max()}")
            rows = rows.copy()
            rows[ids] = new
        if xs_fresh is not None:
            fresh = self._as_rows(xs_fresh, "xs_fresh")
            rows = np.concatenate((rows, fresh))
        self._fit(rows)

    def _fit(self, rows):
        """All of it, or nothing."""
        n, k = len(rows), self.n_neighbors
        others = min(k, n) - 1
        zeros_apart = bool(_zeros_in(rows, self._metric).any())
        searcher = Searcher(_with_zeros_apart(rows) if zeros_apart else rows, **self._options)
        if others == 0:
            lists = np.empty((n, 0), np.float32), np.empty((n, 0), np.int64)
        else:
            lists = searcher.nearest_others(others, _threads_of(self.n_jobs), self.verbose)
        self._raw_data, self._searcher, self._zeros_apart, self._graph = rows, searcher, zeros_apart, self._shown(*with_own_rows(*lists), k)

    def _searched(self, rows):
        return _with_zeros_apart(rows) if self._zeros_apart else rows

    def _as_rows(self, data, name):
        if hasattr(data, "tocsr"):
            raise Unsupported(f"{name} is sparse, and gigaknn has dense rows alone: {name}.toarray()")
        refuse_masked(data, name)
        try:
            rows = _bytes_of(data, name) if self._metric in bit_metrics else _floats_of(data)
        except Error:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"{name} must be rows of numbers of one length: {error}") from None
        least = 0 if name == "query_data" else 1
        if rows.ndim != 2 or rows.shape[0] < least:
            raise InvalidArgument(f"{name} must be rows, of shape [n, d] with n at least {least}; got shape {list(rows.shape)}")
        known = getattr(self, "_raw_data", rows)
        if rows.shape[1] != known.shape[1]:
            raise InvalidArgument(f"{name} has {rows.shape[1]} columns, expected {known.shape[1]}")
        if self._metric == "hellinger":  # pynndescent's is of distributions
            if (rows < 0).any():
                raise InvalidArgument(f"{name}: hellinger takes no value below zero")
            sums = rows.sum(axis=1, keepdims=True, dtype=np.float64)
            rows = (rows / np.where(sums == 0, 1, sums)).astype(np.float32)
        return rows

    def _shown(self, distances, ids, k):
        """(ids, distances) of k columns, as pynndescent has them."""
        if self._metric == "jaccard":  # pynndescent's is the logarithm of what the sets share
            with np.errstate(divide="ignore"):
                distances = np.abs(np.log1p(-distances))
        missing = ((0, 0), (0, k - ids.shape[1]))
        ids = ids.astype(np.int32 if ids.max(initial=0) < 2**31 else np.int64)
        return np.pad(ids, missing, constant_values=-1), np.pad(distances, missing, constant_values=np.inf)


def _floats_of(data):
    given = np.asarray(data)
    refuse_complex_and_dates(given)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(given, dtype=np.float32)


def _bytes_of(data, name):
    """Of packed bits: others would be other bits."""
    given = np.atleast_1d(np.asarray(data))
    refuse_complex_and_dates(given)
    if given.dtype == np.uint8:
        return np.ascontiguousarray(given)
    if given.dtype.kind not in "biuf":
        given = given.astype(np.float64)
    with np.errstate(invalid="ignore"):
        rows = np.ascontiguousarray(given, dtype=np.uint8)
    lost = np.argwhere(rows != given)
    if len(lost):
        at = tuple(lost[0])
        raise InvalidArgument(f"{name}: packed bits are whole numbers from 0 to 255, got {given[at]} in row {at[0]}")
    return rows


def _zeros_in(rows, metric):
    """[n] bool: rows that have no direction, where only that counts."""
    return zeros_in(rows) if metric in ("cosine", "hellinger") else np.zeros(len(rows), bool)


def _with_zeros_apart(rows):
    """A copy where rows of zeros have a dimension of their own: so they are 1 from any other row, and 0 from each other."""
    return np.concatenate((rows, zeros_in(rows)[:, None]), axis=1, dtype=rows.dtype, casting="unsafe")


def _metric_of(metric, metric_kwds):
    kwds = dict(metric_kwds or {})
    if metric == "minkowski":
        p = kwds.pop("p", 2)
        if p not in (1, 2, np.inf):
            raise Unsupported(f"p of minkowski must be 1, 2 or inf, got {p!r}")
        metric = {1: "l1", 2: "euclidean", np.inf: "linf"}[p]
    if not isinstance(metric, str) or metric not in _metrics:
        raise Unsupported(f"metric {metric!r} is not gigaknn's; allowed: {', '.join(_metrics)}, minkowski")
    if kwds:
        raise Unsupported(f"metric_kwds: {', '.join(map(str, kwds))} mean nothing to {metric}")
    return _metrics[metric]


def _tell_of(arguments):
    for name, value in arguments.items():
        if name in _refused:
            if value is not _refused[name]:
                raise Unsupported(f"{name} is not taken: gigaknn builds its graph from the rows alone")
        elif name not in _ignored:
            raise TypeError(f"NNDescent has no argument {name!r}")
        elif value != _ignored[name]:
            _warn_once(name, f"{name} is ignored: recall= says how good the graph is to be")


def _warn_once(name, text):
    if name not in _warned:
        _warned.add(name)
        warnings.warn(text, stacklevel=4)


def _seed_of(random_state):
    if random_state is None:
        return 0
    if hasattr(random_state, "randint"):
        return int(random_state.randint(2**31 - 1))
    return seed_of(random_state)


def _threads_of(n_jobs):
    if n_jobs is None or n_jobs == -1:
        return None
    if whole(n_jobs, "n_jobs") < 1:
        raise InvalidArgument(f"n_jobs must be None, -1 or at least 1, got {n_jobs}")
    return n_jobs
