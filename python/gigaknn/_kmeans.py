"""k-means."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import _core
from ._arguments import flag, floats, rows, run_of, seed_of, whole, word
from ._errors import InvalidArgument

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._types import Floats, Integers, Memory, Progress, Rows, Whole


class Round(NamedTuple):
    """What one round of k-means found, before it moved the centroids."""

    objective: float  #: sum over the rows of weight times distance (l2: squared) to the nearest centroid
    imbalance: float  #: 1 where all clusters are alike, the number of clusters where one has all rows
    moved: int  #: rows whose nearest centroid is another than the round before
    empty: int  #: clusters without rows


class NearestCentroids(NamedTuple):
    """The nearest centroid of each row."""

    distances: Floats  #: [n] float32, "l2": the square
    ids: Integers  #: [n] int64; -1 of rows with NaN or infinity (cosine: of zeros)


class KMeans(NamedTuple):
    """Centroids, and the rows that are theirs."""

    centroids: Floats  #: [clusters, d] float32
    labels: Integers | None  #: [n] int64, the nearest centroid of each row; -1 of rows with NaN or infinity (cosine: of zeros)
    distances: Floats | None  #: [n] float32, to it
    rounds: list[Round]
    trained_rows: int
    metric: str

    def predict(
        self,
        x: Rows,
        *,
        device: str = "cpu",
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> NearestCentroids:
        """The nearest centroid of each row, exactly.

        Parameters
        ----------
        x : array [n, d] of any type, or a file
        device, threads, memory, progress
            As of `kmeans`.

        Returns
        -------
        NearestCentroids
            (distances [n] float32, ids [n] int64), -1 of rows with NaN or infinity (cosine: of zeros).

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> found = gigaknn.kmeans(np.array([[0.0], [1.0], [10.0], [11.0]], dtype=np.float32), 2)
        >>> found.predict(np.array([[3.0]], dtype=np.float32)).distances
        array([6.25], dtype=float32)
        """
        return nearest_centroids(x, self.centroids, metric=self.metric, device=device, threads=threads, memory=memory, progress=progress)


def kmeans(
    x: Rows,
    clusters: Whole,
    *,
    metric: str = "l2",
    iterations: Whole = 20,
    start: str = "random",
    levels: Whole | None = None,
    rows_per_cluster: Whole = 256,
    balanced: bool = False,
    weights: npt.ArrayLike | None = None,
    labels: bool = True,
    seed: Whole = 0,
    device: str = "cpu",
    shards: Whole = 1,
    allow_nonfinite: bool = False,
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
) -> KMeans:
    """Divides the rows of `x` [n, d] among centroids, by Lloyd's method; every assignment is exact.

    Parameters
    ----------
    x : array [n, d], or a file
    clusters : int
    metric : str
        "l2", or "cosine": rows count by direction alone (spherical k-means).
    iterations : int
        Rounds at most; it ends before where no row moved.
    start : str
        "random" or "plus-plus".
    levels : int
        1: every row is compared with every centroid; 2: regions first, then their clusters; by default 2 from 2**15 clusters on.
    rows_per_cluster : int
        Of larger sets that many times `clusters` rows are drawn; 0: all are used.
    balanced : bool
        Small clusters begin anew beside the centroids of large ones, with which they divide their rows.
    weights : array [n]
        Finite and not negative.
    labels : bool
        False: the centroids alone.
    shards : int
        Of several GPUs: parts of the centroids, each held by one GPU of a group.
    seed, device, allow_nonfinite, threads, memory, progress
        As of `knn_graph`.

    Returns
    -------
    KMeans
        ``.centroids`` [clusters, d] float32; ``.labels`` [n] int64 and ``.distances`` [n] float32, of each row to the nearest of these (-1 and inf of rows with NaN or
        infinity, cosine: of zeros), or None without `labels`; ``.rounds``: what each round found; ``.trained_rows``: how many rows were used; ``.metric``.

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> x = np.array([[0.0], [1.0], [10.0], [11.0]], dtype=np.float32)
    >>> found = gigaknn.kmeans(x, 2)
    >>> sorted(found.centroids.ravel().tolist())
    [0.5, 10.5]
    """
    base = rows(x, "x")
    clusters, iterations, metric = whole(clusters, "clusters"), whole(iterations, "iterations", 32), word(metric, "metric")
    if iterations < 0:
        raise InvalidArgument(f"iterations must be at least 0, got {iterations}")
    if base.shape[0] == 0:
        raise InvalidArgument("k-means needs at least 1 row, got 0")
    rows_per_cluster = whole(rows_per_cluster, "rows_per_cluster")
    if rows_per_cluster < 0:
        raise InvalidArgument(f"rows_per_cluster must be at least 0, got {rows_per_cluster}")
    if weights is not None:
        weights = floats(weights, "weights", 1)
        if weights.shape != (base.shape[0],):
            raise InvalidArgument(f"weights must be one for each of the {base.shape[0]} rows, got shape {list(weights.shape)}")
    labels = flag(labels, "labels")
    centroids, trained, rounds = _core.kmeans(
        base,
        clusters,
        iterations,
        metric,
        word(start, "start"),
        None if levels is None else whole(levels, "levels", 32),
        rows_per_cluster,
        flag(balanced, "balanced"),
        weights,
        seed_of(seed),
        word(device, "device"),
        whole(shards, "shards", 32),
        flag(allow_nonfinite, "allow_nonfinite"),
        run_of(threads, memory, progress),
    )
    distances, nearest = nearest_centroids(base, centroids, metric=metric, device=device, threads=threads, memory=memory, progress=progress) if labels else (None, None)
    return KMeans(centroids, nearest, distances, [Round(*found) for found in rounds], trained, metric)


def nearest_centroids(
    x: Rows,
    centroids: Rows,
    *,
    metric: str = "l2",
    device: str = "cpu",
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
) -> NearestCentroids:
    """The nearest of some centroids of each row, exactly; equal ones by number.

    Parameters
    ----------
    x : array [n, d] of any type, or a file
    centroids : array [c, d] of float32
    metric : str
        Any but "hamming" and "jaccard".
    device, threads, memory, progress
        As of `knn_graph`.

    Returns
    -------
    NearestCentroids
        (distances [n] float32, ids [n] int64), -1 of rows with NaN or infinity (cosine: of zeros).

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> gigaknn.nearest_centroids(np.array([[1.0], [9.0]], dtype=np.float32), np.array([[0.0], [10.0]], dtype=np.float32)).ids
    array([0, 1])
    """
    found = _core.nearest_centroids(rows(x, "x"), rows(centroids, "centroids"), word(metric, "metric"), word(device, "device"), run_of(threads, memory, progress))
    return NearestCentroids(*found)
