"""Estimators of scikit-learn (1.6 and later), for pipelines and whatever else takes one.

>>> import numpy as np
>>> from sklearn.manifold import Isomap
>>> from sklearn.pipeline import make_pipeline
>>> from gigaknn.sklearn import KNNTransformer
>>> x = np.random.default_rng(0).random((200, 8), dtype=np.float32)
>>> make_pipeline(KNNTransformer(n_neighbors=10), Isomap(n_neighbors=10, metric="precomputed")).fit_transform(x).shape
(200, 2)

Rows of float32, float16, uint8 and int8 are used as they are, others as float32. Distances are float32. ``n_jobs`` counts threads; None and
-1 are all that are allowed, -2 all but one, and so on. By "cosine" rows of zeros are 1 from every row and from each other, as scikit-learn has
them. With ``recall`` below 1 sets of 10,000 rows and more are searched approximately, by what reaches that recall; lists that this leaves short are searched exactly, so that
no id is -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from . import _kmeans, _search
from ._arguments import number, recall_of, whole
from ._core import available_threads
from ._errors import InvalidArgument, Unsupported
from ._masked import refuse_masked
from ._searcher import CosineSearcher, Searcher, with_own_rows, zeros_in

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Self

    from ._types import Floats, Whole

__all__ = ["KMeans", "KNNTransformer", "NearestNeighbors"]

_types = [np.float32, np.float16, np.uint8, np.int8]
_metrics = {
    "l2": "euclidean",  # what scikit-learn calls so
    "sqeuclidean": "l2",
    "manhattan": "l1",
    "cityblock": "l1",
    "chebyshev": "linf",
    "infinity": "linf",
    **{name: name for name in ("euclidean", "cosine", "l1", "linf", "chi2", "hellinger")},
}


def _metric_of(metric, p):
    if metric == "minkowski":
        if p not in (1, 2, np.inf):
            raise InvalidArgument(f"p must be 1, 2 or inf, got {p!r}")
        return {1: "l1", 2: "euclidean", np.inf: "linf"}[p]
    if metric not in _metrics:
        raise InvalidArgument(f"metric must be one of minkowski, {', '.join(sorted(_metrics))}, got {metric!r}")
    return _metrics[metric]


def _threads_of(n_jobs):
    if n_jobs is None or n_jobs == -1:
        return None
    n_jobs = whole(n_jobs, "n_jobs")
    if n_jobs == 0:
        raise InvalidArgument("n_jobs must be None, at least 1, or below 0 (-1: all threads, -2: all but one), got 0")
    return n_jobs if n_jobs > 0 else max(1, available_threads() + 1 + n_jobs)


def _seed_of(random_state):
    if random_state is None:
        return 0  # the same result each time, which nothing forbids
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _validated(estimator, X, **options):
    """As scikit-learn checks them, which drops masks."""
    refuse_masked(X, "X")
    return validate_data(estimator, X, order="C", **options)


def _weights_of(sample_weight, X):
    refuse_masked(sample_weight, "sample_weight")
    return None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float32)


def _matrix_of(distances, ids, columns, mode):
    """Lists of k rows each, none of them -1, as a sparse matrix, in their order."""
    n, k = ids.shape
    values = np.ones(ids.size) if mode == "connectivity" else distances.ravel()
    return csr_matrix((values, ids.ravel(), np.arange(0, n * k + 1, k)), shape=(n, columns))


_algorithms = ("auto", "brute", "kd_tree", "ball_tree")


class _Neighbors(BaseEstimator):
    def fit(self, X: Any, y: Any = None) -> Self:
        """Takes the rows X [n, d]."""
        X = _validated(self, X, dtype=_types)
        if self.n_neighbors is not None and whole(self.n_neighbors, "n_neighbors") < 1:
            raise InvalidArgument(f"n_neighbors must be at least 1, got {self.n_neighbors}")
        if self.algorithm not in _algorithms:
            raise InvalidArgument(f"algorithm must be one of {', '.join(_algorithms)}, got {self.algorithm!r}")
        if self.metric_params:
            raise Unsupported(f"metrics have no parameters here, got metric_params={self.metric_params!r}")
        _threads_of(self.n_jobs)
        self.effective_metric_ = _metric_of(self.metric, self.p)
        self.n_samples_fit_ = X.shape[0]
        self._fit_X = X
        options = {"seed": _seed_of(self.random_state), "device": self.device}
        recall = recall_of(self.recall)
        self._searcher = CosineSearcher(X, recall, **options) if self.effective_metric_ == "cosine" else Searcher(X, recall, metric=self.effective_metric_, **options)
        return self

    def kneighbors(self, X: Any = None, n_neighbors: Whole | None = None, return_distance: bool = True) -> Any:
        """(distances, ids), both [q, n_neighbors], or the ids alone; without X of the rows that were fitted, themselves left out."""
        check_is_fitted(self)
        k = self._check_k(self.n_neighbors if n_neighbors is None else n_neighbors, X is None)
        threads = _threads_of(self.n_jobs)
        distances, ids = self._searcher.nearest_others(k, threads) if X is None else self._searcher.nearest(self._checked_queries(X), k, threads)
        return (distances, ids) if return_distance else ids

    def kneighbors_graph(self, X: Any = None, n_neighbors: Whole | None = None, mode: str = "connectivity") -> Any:
        """The same as a sparse matrix [q, n]; mode "distance" or "connectivity"."""
        _check_mode(mode)
        distances, ids = self.kneighbors(X, n_neighbors)
        return _matrix_of(distances, ids, self.n_samples_fit_, mode)

    def _check_k(self, n_neighbors, without_self):
        k = whole(n_neighbors, "n_neighbors")
        if k < 1:
            raise InvalidArgument(f"Expected n_neighbors > 0. Got {k}")
        if k > self.n_samples_fit_ - without_self:
            raise InvalidArgument(
                f"Expected n_neighbors {'<' if without_self else '<='} n_samples_fit, but n_neighbors = {k}, n_samples_fit = {self.n_samples_fit_}, n_samples = {self.n_samples_fit_}"
            )
        return k

    def _checked_queries(self, X):
        """Of the type of the rows that were fitted; float32 alone rounds what it does not hold."""
        fitted = self._fit_X.dtype
        X = _validated(self, X, dtype=fitted if fitted == np.float32 else "numeric", reset=False)
        if X.dtype == fitted:
            return X
        with np.errstate(over="ignore", invalid="ignore"):
            queries = X.astype(fitted)
        lost = np.argwhere(queries != X)
        if len(lost):
            row, column = lost[0]
            raise InvalidArgument(f"X: row {row}, column {column} is {X[row, column]}, which {fitted} does not hold, the type of the rows that were fitted")
        return queries


class NearestNeighbors(_Neighbors):
    """As scikit-learn's, by gigaknn.

    Parameters
    ----------
    n_neighbors : int
    radius : float
    metric : str
        "minkowski" with p of 1, 2 or inf, "euclidean", "sqeuclidean", "cosine", "manhattan", "chebyshev", "chi2" or "hellinger".
    p : float
    algorithm, leaf_size
        As scikit-learn's, "auto", "brute", "kd_tree" or "ball_tree", and a number; they change nothing: gigaknn has one way for each `recall`.
    metric_params : None
    recall : float
        1: exact; below, see above.
    device : str
    random_state : int, RandomState or None
        None is 0.
    n_jobs : int
    """

    def __init__(
        self,
        n_neighbors: Whole = 5,
        radius: float = 1.0,
        *,
        algorithm: str = "auto",
        leaf_size: Whole = 30,
        metric: str = "minkowski",
        p: float = 2,
        metric_params: Any = None,
        recall: float = 1.0,
        device: str = "cpu",
        random_state: Any = None,
        n_jobs: Whole | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.recall = recall
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs

    def radius_neighbors(self, X: Any = None, radius: float | None = None, return_distance: bool = True, sort_results: bool = True) -> Any:
        """(distances, ids), both arrays [q] of arrays, nearest first; without X of the rows that were fitted, themselves left out."""
        check_is_fitted(self)
        offsets, distances, ids = self._within(X, radius)
        lists = [np.empty(len(offsets) - 1, dtype=object) for _ in range(2)]
        for i, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:])):
            lists[0][i], lists[1][i] = distances[begin:end], ids[begin:end]
        return tuple(lists) if return_distance else lists[1]

    def radius_neighbors_graph(self, X: Any = None, radius: float | None = None, mode: str = "connectivity", sort_results: bool = True) -> Any:
        """The same as a sparse matrix [q, n]."""
        check_is_fitted(self)
        _check_mode(mode)
        offsets, distances, ids = self._within(X, radius)
        return csr_matrix((np.ones(len(ids)) if mode == "connectivity" else distances, ids, offsets), shape=(len(offsets) - 1, self.n_samples_fit_))

    def _within(self, X, radius):
        radius = number(self.radius if radius is None else radius, "radius")
        return self._searcher.within(None if X is None else self._checked_queries(X), radius, _threads_of(self.n_jobs))


class KNNTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Neighbors):
    """As scikit-learn's KNeighborsTransformer, by gigaknn: rows become their distances to their nearest neighbours.

    Every row of the result begins with itself and has as many entries as the others, nearest first: what scanpy
    (``sc.pp.neighbors(transformer=...)``), UMAP, t-SNE, Isomap and DBSCAN on precomputed graphs expect.

    Parameters
    ----------
    n_neighbors : int
        With mode "distance" a row has one more entry: itself.
    mode : str
        "distance" or "connectivity".
    metric, p, metric_params, algorithm, leaf_size, recall, device, random_state, n_jobs
        As of `NearestNeighbors`.
    """

    def __init__(
        self,
        n_neighbors: Whole = 5,
        *,
        mode: str = "distance",
        algorithm: str = "auto",
        leaf_size: Whole = 30,
        metric: str = "minkowski",
        p: float = 2,
        metric_params: Any = None,
        recall: float = 1.0,
        device: str = "cpu",
        random_state: Any = None,
        n_jobs: Whole | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.recall = recall
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:
        """Takes the rows X [n, d]."""
        _check_mode(self.mode)
        super().fit(X)
        self._n_features_out = self.n_samples_fit_
        return self

    def transform(self, X: Any) -> Any:
        """The sparse matrix [q, n] of the rows that were fitted nearest to each of X."""
        check_is_fitted(self)
        X = self._checked_queries(X)
        k = self._check_k(whole(self.n_neighbors, "n_neighbors") + (self.mode == "distance"), False)
        return _matrix_of(*self._searcher.nearest(X, k, _threads_of(self.n_jobs)), self.n_samples_fit_, self.mode)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """The sparse matrix [n, n] of X itself."""
        self.fit(X)
        others = whole(self.n_neighbors, "n_neighbors") - (self.mode == "connectivity")
        if others == 0:
            return self.transform(X)
        lists = self._searcher.nearest_others(self._check_k(others, True), _threads_of(self.n_jobs))
        return _matrix_of(*with_own_rows(*lists), self.n_samples_fit_, self.mode)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _check_mode(mode):
    if mode not in ("distance", "connectivity"):
        raise InvalidArgument(f"mode must be distance or connectivity, got {mode!r}")


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """As scikit-learn's, by gigaknn: Lloyd's method on all rows, every assignment exact; it ends where no row moves.

    Parameters
    ----------
    n_clusters : int
    init : str
        "k-means++" or "random". Centroids of one's own are refused.
    n_init : int or "auto"
        So many times, of which the best is taken; "auto" is 1 for "k-means++" and 10 for "random", as scikit-learn has it.
    max_iter : int
    tol : float
        As scikit-learn's, and changes nothing: here it ends where no row moves, or at `max_iter`.
    verbose, copy_x, algorithm
        As scikit-learn's, and change nothing: every assignment is exact, X stays as it is, and nothing is printed.
    metric : str
        "euclidean", or "cosine": spherical k-means.
    device, random_state, n_jobs
        As of `NearestNeighbors`.

    Attributes
    ----------
    cluster_centers_ : array [n_clusters, d] float32
    labels_ : array [n] int32
        By "cosine" 0 of rows of zeros, which are 1 from every centroid.
    inertia_ : float
        Sum of the squared distances (cosine: distances) of rows to their centroids, by weight.
    n_iter_ : int
    """

    def __init__(
        self,
        n_clusters: Whole = 8,
        *,
        init: Any = "k-means++",
        n_init: Any = 1,
        max_iter: Whole = 300,
        tol: float = 1e-4,
        verbose: Whole = 0,
        copy_x: bool = True,
        algorithm: str = "lloyd",
        metric: str = "euclidean",
        device: str = "cpu",
        random_state: Any = None,
        n_jobs: Whole | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.copy_x = copy_x
        self.algorithm = algorithm
        self.metric = metric
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Finds the centroids of X [n, d]."""
        X = _validated(self, X, dtype=_types)
        if not isinstance(self.init, str):
            raise InvalidArgument("init must be k-means++ or random: gigaknn begins with no centroids of the caller's")
        if self.init not in ("k-means++", "random"):
            raise InvalidArgument(f"init must be k-means++ or random, got {self.init!r}")
        if self.metric not in ("euclidean", "cosine"):
            raise InvalidArgument(f"metric must be euclidean or cosine, got {self.metric!r}")
        if whole(self.n_clusters, "n_clusters") > X.shape[0]:
            raise InvalidArgument(f"n_samples={X.shape[0]} should be >= n_clusters={self.n_clusters}.")
        weights = _weights_of(sample_weight, X)
        runs = (10 if self.init == "random" else 1) if isinstance(self.n_init, str) and self.n_init == "auto" else whole(self.n_init, "n_init")
        if runs < 1:
            raise InvalidArgument(f"n_init must be at least 1, or auto, got {self.n_init}")
        if whole(self.max_iter, "max_iter") < 1:
            raise InvalidArgument(f"max_iter must be at least 1, got {self.max_iter}")
        if self.algorithm not in ("lloyd", "elkan"):
            raise InvalidArgument(f"algorithm must be lloyd or elkan, got {self.algorithm!r}")
        if number(self.tol, "tol") < 0:
            raise InvalidArgument(f"tol must be at least 0, got {self.tol}")
        options = {"metric": self._metric(), "iterations": self.max_iter, "start": "plus-plus" if self.init == "k-means++" else "random", "rows_per_cluster": 0}
        seed = _seed_of(self.random_state)
        best = None
        for run in range(runs):
            found = _kmeans.kmeans(X, self.n_clusters, weights=weights, seed=seed + run, device=self.device, threads=_threads_of(self.n_jobs), **options)
            distances, labels = self._with_zeros(X, found.centroids, found.distances, found.labels)
            inertia = self._inertia(distances, weights)
            if best is None or inertia < self.inertia_:
                best, self.inertia_, self.labels_ = found, inertia, labels.astype(np.int32)
        self.cluster_centers_ = best.centroids
        self.n_iter_ = max(len(best.rounds), 1)
        self._n_features_out = len(best.centroids)
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int32]:
        """The nearest centroid of each row, [n] int32."""
        return self._nearest(X)[1].astype(np.int32)

    def transform(self, X: Any) -> Floats:
        """The distance of each row to each centroid, [n, n_clusters] float32."""
        check_is_fitted(self)
        X = _validated(self, X, dtype=[np.float32], reset=False)
        clusters = len(self.cluster_centers_)
        metric = "euclidean" if self.metric == "euclidean" else "cosine"
        distances, ids = _search.knn(X, self.cluster_centers_, clusters, metric=metric, device=self.device, threads=_threads_of(self.n_jobs))
        if self.metric == "cosine":
            distances[np.isinf(distances)] = 1  # what has no direction, as in `_with_zeros`
        result = np.empty_like(distances)
        np.put_along_axis(result, ids, distances, axis=1)
        return result

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The negative of the inertia of X."""
        distances, _ = self._nearest(X)
        return -self._inertia(distances, _weights_of(sample_weight, X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _metric(self):
        return "l2" if self.metric == "euclidean" else "cosine"

    def _nearest(self, X):
        check_is_fitted(self)
        X = _validated(self, X, dtype=_types, reset=False)
        found = _kmeans.nearest_centroids(X, self.cluster_centers_, metric=self._metric(), device=self.device, threads=_threads_of(self.n_jobs))
        return self._with_zeros(X, self.cluster_centers_, *found)

    def _with_zeros(self, X, centroids, distances, ids):
        """(distances, ids) of what was found, where by cosine rows of zeros are 1 from every centroid, and centroids of zeros 1 from every row: to the library they have no distance."""
        if self.metric != "cosine":
            return distances, ids
        zeros = zeros_in(centroids)
        if zeros.any():
            first = np.argmax(zeros)
            nearer = (distances > 1) | ((distances == 1) & (ids > first))
            distances, ids = np.where(nearer, np.float32(1), distances), np.where(nearer, first, ids)
        zeros = zeros_in(X)
        return np.where(zeros, np.float32(1), distances), np.where(zeros, 0, ids)

    @staticmethod
    def _inertia(distances, weights):
        return float(np.sum(distances if weights is None else distances * weights, dtype=np.float64))
