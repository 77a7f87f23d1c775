"""Exact searches, and what searches return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core
from ._arguments import device_for, flag, neighbors_of, number, rows, rows_anywhere, run_of, whole, word
from ._bfloat16 import array_of
from ._device import results_like
from ._keys import keys_of, with_keys

if TYPE_CHECKING:
    from ._types import Array, Floats, Integers, Keys, Memory, Paths, Progress, Rows, Whole


class _Neighbors(NamedTuple):
    distances: Floats  #: [q, k] float32; +inf (inner_product: -inf) where an id is missing
    ids: Integers  #: [q, k] int64; -1 where there are fewer than k


class Neighbors(_Neighbors):
    """The k nearest rows of each query, nearest first; equal distances: the smaller id first.

    Attributes
    ----------
    distances : array [q, k] float32
        +inf (inner_product: -inf) where an id is missing.
    ids : array [q, k] int64
        -1 where there are fewer than k.
    keys : array [q, k] or None
        What the rows are called, where ``keys=`` said so; None in an array of objects where an id is missing. No part of the tuple.
    """

    keys: Any = None


class _RadiusNeighbors(NamedTuple):
    offsets: Integers  #: [q + 1] int64
    distances: Floats  #: [found] float32
    ids: Integers  #: [found] int64


class RadiusNeighbors(_RadiusNeighbors):
    """All rows within a radius. Query i owns the entries from offsets[i] to offsets[i + 1], nearest first.

    Attributes
    ----------
    offsets : array [q + 1] int64
    distances : array [found] float32
    ids : array [found] int64
    keys : array [found] or None
        As of `Neighbors`.
    """

    keys: Any = None


def knn(
    queries: Rows,
    base: Rows,
    k: Whole = 10,
    *,
    metric: str = "l2",
    keys: Keys = None,
    device: str | None = None,
    shards: Whole = 1,
    allow_nonfinite: bool = False,
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
    stream: object = None,
) -> Neighbors:
    """The k nearest rows of `base` of each query, exactly.

    Parameters
    ----------
    queries : array [q, d], or a file
    base : array [n, d] of the same type, or a file
        float32, float16, bfloat16, uint8 or int8, by the buffer protocol, DLPack or as lists of Arrow: not copied. A path, or a list of them, is read.
        Arrays in the memory of a GPU (`to_device`, PyTorch, CuPy, JAX) are read there.
    k : int
    metric : str
        "l2" (the square), "euclidean", "inner_product" (larger is nearer), "cosine", "l1", "linf", "chi2", "hellinger"; of bits packed in
        uint8 (``numpy.packbits(x, axis=1)``) "hamming" and "jaccard".
    keys : array [n]
        What the rows of `base` are called: numbers, strings, the index of a data frame. The result then has ``.keys``, of the shape of the ids.
    device : str
        One of ``gigaknn.devices()``, several as "cuda:0,cuda:1". No result depends on it. By default "cpu", or the GPU that has the rows.
    shards : int
        Of several GPUs: parts of the base that each group of them holds.
    allow_nonfinite : bool
        Rows with NaN or infinity are farthest, not refused.
    threads : int
        All that are allowed, by default. No result depends on it.
    memory : int or str
        A budget for what the call allocates, in bytes or as "4GiB".
    progress : bool or callable
        True: a bar of tqdm. Otherwise called with (stage, done, total).
    stream : int or object
        Of arrays on a GPU: the stream of CUDA's whose work has to be done before they are read, as a number or as an object of PyTorch or
        CuPy. By default the current one of the array's library, else CUDA's default one. Results are complete when the call returns.

    Returns
    -------
    Neighbors
        (distances [q, k] float32, ids [q, k] int64); of queries on a GPU on that GPU, as arrays of their library or as `DeviceArray`.

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> base = np.array([[0, 0], [3, 4], [6, 8]], dtype=np.float32)
    >>> distances, ids = gigaknn.knn(base[:1], base, k=2, metric="euclidean")
    >>> distances
    array([[0., 5.]], dtype=float32)
    >>> ids
    array([[0, 1]])
    >>> gigaknn.knn(base[:1], base, k=2, keys=["a", "b", "c"]).keys
    array([['a', 'b']], dtype=object)
    """
    asked, queries, base = queries, rows_anywhere(queries, "queries", stream), rows_anywhere(base, "base", stream)
    keys = keys_of(keys, base.shape[0])
    found = Neighbors(
        *_core.knn(queries, base, neighbors_of(k, queries), word(metric, "metric"), device_for(device, base, queries), whole(shards, "shards", 32), flag(allow_nonfinite, "allow_nonfinite"), run_of(threads, memory, progress))
    )
    return _beside(with_keys(found, keys), asked, queries.device)


def with_whole_lists(distances, ids, queries, base, **options):
    """Lists [q, k] of an approximate search that end in -1 are those of an exact one instead; the others stay as they are.

    `queries` is an array [q, d]; of None each row of `base` is one, and not in its own list. `base` has at least k rows, or k others: no -1 is left.
    """
    k = ids.shape[1]
    short = np.flatnonzero(ids[:, -1] < 0) if k else []
    if len(short) == 0:
        return distances, ids
    own = queries is None
    found = knn((base if own else queries)[short], base, k + own, **options)
    others = found.ids != short[:, None] if own else np.ones(found.ids.shape, bool)
    others[others.all(axis=1), k:] = False  # where k copies of a row come before it
    distances, ids = distances.copy(), ids.copy()  # those of a graph are read-only
    distances[short], ids[short] = found.distances[others].reshape(-1, k), found.ids[others].reshape(-1, k)
    return distances, ids


def _beside(found, queries, device):
    """What was found, in the memory that has the queries."""
    if device == "cpu":
        return found
    there = type(found)(*results_like(queries, device, *found))
    there.keys = found.keys
    return there


def radius_search(
    queries: Rows,
    base: Rows,
    radius: float,
    *,
    metric: str = "l2",
    keys: Keys = None,
    device: str | None = None,
    shards: Whole = 1,
    allow_nonfinite: bool = False,
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
    stream: object = None,
) -> RadiusNeighbors:
    """All rows of `base` at most `radius` away from each query (inner_product: of at least this product), exactly.

    Parameters
    ----------
    queries : array [q, d], or a file
    base : array [n, d] of the same type, or a file
    radius : float
        In the unit of the metric's distances: squared for "l2".
    metric, keys, device, shards, allow_nonfinite, threads, memory, progress, stream
        As of `knn`.

    Returns
    -------
    RadiusNeighbors
        (offsets [q + 1] int64, distances [found] float32, ids [found] int64)

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> base = np.array([[0, 0], [3, 4], [6, 8]], dtype=np.float32)
    >>> offsets, distances, ids = gigaknn.radius_search(base[:2], base, 5, metric="euclidean")
    >>> offsets
    array([0, 2, 5])
    >>> ids
    array([0, 1, 1, 0, 2])
    """
    asked, queries, base = queries, rows_anywhere(queries, "queries", stream), rows_anywhere(base, "base", stream)
    keys = keys_of(keys, base.shape[0])
    found = RadiusNeighbors(
        *_core.radius_search(
            queries, base, number(radius, "radius"), word(metric, "metric"), device_for(device, base, queries), whole(shards, "shards", 32), flag(allow_nonfinite, "allow_nonfinite"), run_of(threads, memory, progress)
        )
    )
    return _beside(with_keys(found, keys), asked, queries.device)


def duplicates(
    x: Rows,
    radius: float,
    *,
    metric: str = "l2",
    device: str = "cpu",
    shards: Whole = 1,
    allow_nonfinite: bool = False,
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
) -> Integers:
    """Groups rows that are (nearly) the same: rows that a chain of steps of at most `radius` joins are one group.

    Parameters
    ----------
    x : array [n, d], or a file
    radius : float
        In the unit of the metric's distances: squared for "l2".
    metric, device, shards, allow_nonfinite, threads, memory, progress
        As of `knn`; not "inner_product", which is no distance.

    Returns
    -------
    array [n] int64
        For each row the first row of its group.

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> x = np.array([[0.0], [5.0], [0.1], [0.2]], dtype=np.float32)
    >>> gigaknn.duplicates(x, 0.15, metric="l1")
    array([0, 1, 0, 0])
    """
    return _core.duplicates(rows(x, "x"), number(radius, "radius"), word(metric, "metric"), word(device, "device"), whole(shards, "shards", 32), flag(allow_nonfinite, "allow_nonfinite"), run_of(threads, memory, progress))


def read_vectors(path: Paths) -> Array:
    """The vectors of a file, or of a list of files that stand for one behind the other.

    Parameters
    ----------
    path : path, or list of paths
        .fvecs .bvecs .ivecs, .fbin .hbin .bf16bin .u8bin .i8bin .ibin, .npy, IDX (also .gz), or a folder of shards.

    Returns
    -------
    array [n, d], read-only
        Of the file's type, and mapped where the format allows, not read. Those of bfloat16 are of ml_dtypes' type, or, where that is not installed, in a copy as float32.

    Raises
    ------
    FileError, CorruptFile
        The file cannot be read, or does not hold what its format promises.

    Examples
    --------
    >>> import os, tempfile, numpy as np, gigaknn
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.npy")
    ...     np.save(path, np.eye(2, 3, dtype=np.float32))
    ...     gigaknn.read_vectors(path)
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    found = rows(path, "path")
    return array_of(found.numpy()) if found.dtype == "bf16" else found.numpy()
