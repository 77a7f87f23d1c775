"""Indexes: built once, searched often."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core
from ._arguments import flag, ids_of, neighbors_of, number, path_of, path_to_write, recall_of, rows, run_of, seconds_of, seed_of, warn, whole, whole_array, word
from ._bfloat16 import array_of, dtype_of_numpy
from ._changes import Changes
from ._errors import CorruptFile, Error, InvalidArgument, InvalidData, RecallWarning, Unsupported
from ._eval import Recall
from ._files import replace
from ._keys import are_keys, in_order, is_empty, keys_of, with_keys
from ._names import Names
from ._search import Neighbors, RadiusNeighbors

if TYPE_CHECKING:
    from ._types import Array, FilePath, Ids, Integers, Keys, Memory, Progress, Rows, Whole


_dtypes = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "u8": "uint8", "i8": "int8"}


class OperatingPoint(NamedTuple):
    """What searches with these parameters find, and what they take."""

    recall: Recall
    nprobe: int
    refine: int
    seconds: float  #: a query, of many that are asked together

    @classmethod
    def _of(cls, point):
        return cls(Recall._of(point.recall), point.nprobe, point.refine, point.seconds)


class Index:
    """An index of vectors. Made by `build` and `open`.

    Searches may run in several threads at once, also beside a change: each sees the index as it was before or after the whole of it.
    What `progress` of a change calls may search, too, but neither change the index nor pickle it where it has keys: that would wait for the
    change, and raises `Unsupported`.
    An index that was built of an array may read its rows there: the array lives as long as the index, and must not be changed.

    Attributes
    ----------
    recall : float or None
        What `search` is to find where it is not told more.
    """

    def __init__(self, index: _core.Index, curve: _core.RecallCurve | None = None, recall: float | None = None, keys: Keys = None) -> None:
        self._index = index
        self._names = None if keys is None else Names(index, keys)
        self._changes = Changes()
        self._curve = curve
        self._lists = index.lists
        self.recall = recall

    # ---- what it is

    def __len__(self) -> int:
        return self._index.rows

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dimensions)"""
        return self._index.rows, self._index.cols

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of rows and queries; bfloat16 is that of ml_dtypes, and refused where that is not installed."""
        return dtype_of_numpy() if self._index.dtype == "bf16" else np.dtype(_dtypes[self._index.dtype])

    @property
    def metric(self) -> str:
        return self._index.metric

    @property
    def kind(self) -> str:
        """"flat", "ivf_flat", "ivf_pq", "ivf_sq" or "ivf_transformed"."""
        return self._index.kind

    @property
    def lists(self) -> int:
        """Inverted lists; 0: every row is looked at."""
        return self._lists

    @property
    def keeps_rows(self) -> bool:
        """Full vectors are there; otherwise distances are to what codes stand for."""
        return self._index.keeps_rows

    @property
    def description(self) -> str:
        """One line for people: how searches are answered."""
        return self._index.description

    @property
    def next_id(self) -> int:
        """One more than the largest id that was ever given."""
        return self._index.next_id

    def __repr__(self) -> str:
        rows, cols = self.shape
        return f"<Index {self.kind} of {rows} x {cols} {_dtypes[self._index.dtype]}, metric {self.metric}>"

    def __reduce__(self):
        """As the bytes of its file, with its keys: what is made of these is on the CPU, and has the rows for itself."""
        of_one_moment = contextlib.nullcontext() if self._names is None else self._alone()
        with tempfile.TemporaryDirectory() as folder, of_one_moment:
            try:
                self.save(f"{folder}/x.gknn")
            except Unsupported as error:
                raise TypeError(f"this index is neither pickled nor copied: {error}") from None
            return _unpickled, (Path(folder, "x.gknn").read_bytes(), self.recall, self.row_keys)

    # ---- searches

    def search(
        self,
        queries: Rows,
        k: Whole = 10,
        *,
        recall: float | None = None,
        nprobe: Whole | None = None,
        refine: Whole | None = None,
        only: Keys = None,
        exclude: Keys = None,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> Neighbors:
        """The k nearest rows of each query, of those that the index looks at.

        Parameters
        ----------
        queries : array [q, d], of the type of the index
        k : int
        recall : float
            The quickest parameters that find this share of the neighbours, by the curve (`measure`); instead of the next two. It is that of
            searches without `only` and `exclude`; of fewer neighbours than the curve is of mostly more.
        nprobe : int
            Inverted lists that a query looks into; 16 by default.
        refine : int
            Of codes: so many times k candidates are compared by full vectors, where there are some; 4 by default, 0: none.
        only, exclude : array of int, or of keys
            Rows that alone count; rows that do not count. Whole numbers are ids; of keys that are whole numbers `ids_of` gives the ids.
        threads, memory, progress
            As of `knn`.

        Returns
        -------
        Neighbors
            (distances [q, k] float32, ids [q, k] int64); -1 where fewer are found.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> x = np.random.default_rng(0).random((1000, 8), dtype=np.float32)
        >>> index = gigaknn.build(x, index="IVF10,Flat")
        >>> distances, ids = index.search(x[:5], 3, nprobe=10)
        >>> ids[:, 0], distances.shape
        (array([0, 1, 2, 3, 4]), (5, 3))
        """
        queries = rows(queries, "queries")
        k = neighbors_of(k, queries)
        nprobe, refine = self._effort(k, recall, nprobe, refine)
        run = run_of(threads, memory, progress)
        return self._seen(only, exclude, lambda *where: Neighbors(*self._index.search(queries, k, nprobe, refine, *where, run)))

    def search_radius(
        self,
        queries: Rows,
        radius: float,
        *,
        nprobe: Whole | None = None,
        refine: Whole | None = None,
        only: Keys = None,
        exclude: Keys = None,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> RadiusNeighbors:
        """All rows at most `radius` away (inner_product: of at least this product), of those that the index looks at.

        Parameters
        ----------
        queries : array [q, d], of the type of the index
        radius : float
            In the unit of the metric's distances: squared for "l2".
        nprobe, refine, only, exclude, threads, memory, progress
            As of `search`.

        Returns
        -------
        RadiusNeighbors
            (offsets [q + 1] int64, distances [found] float32, ids [found] int64), nearest first; query i has the entries from offsets[i] to offsets[i + 1].

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> index = gigaknn.build(np.arange(9, dtype=np.float32)[:, None], index="Flat")
        >>> offsets, distances, ids = index.search_radius(np.array([[3], [8]], dtype=np.float32), 1)
        >>> offsets, ids
        (array([0, 3, 5]), array([3, 2, 4, 8, 7]))
        """
        nprobe, refine = _optional(nprobe, "nprobe"), _optional(refine, "refine")
        asked, run = (rows(queries, "queries"), number(radius, "radius"), nprobe, refine), run_of(threads, memory, progress)
        return self._seen(only, exclude, lambda *where: RadiusNeighbors(*self._index.search_radius(*asked, *where, run)))

    def search_exact(
        self,
        queries: Rows,
        k: Whole = 10,
        *,
        only: Keys = None,
        exclude: Keys = None,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> Neighbors:
        """As `search`, but of all rows that are nearer than infinitely far, exactly: the truth for what it finds.

        Parameters
        ----------
        queries : array [q, d], of the type of the index
        k : int
        only, exclude, threads, memory, progress
            As of `search`.

        Returns
        -------
        Neighbors
            (distances [q, k] float32, ids [q, k] int64), nearest first; equal distances: the smaller id first.

        Raises
        ------
        Unsupported
            The index keeps no full vectors.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> x = np.random.default_rng(0).random((1000, 8), dtype=np.float32)
        >>> index = gigaknn.build(x, index="IVF10,PQ8,RFlat")
        >>> gigaknn.recall(index.search(x, 3, nprobe=10, refine=50).ids, index.search_exact(x, 3).ids) > 0.99
        True
        """
        queries = rows(queries, "queries")
        k, run = neighbors_of(k, queries), run_of(threads, memory, progress)
        return self._seen(only, exclude, lambda *where: Neighbors(*self._index.search_all(queries, k, *where, run)))

    def _effort(self, k, recall, nprobe, refine):
        if nprobe is not None or refine is not None:
            if recall is not None:
                raise InvalidArgument("recall is instead of nprobe and refine")
            return _optional(nprobe, "nprobe"), _optional(refine, "refine")
        if recall is None:
            recall = self.recall
        if recall is not None:
            recall = recall_of(recall)
        if recall is None or self._lists == 0:  # without lists all rows are looked at
            return None, None
        _require_some(k)
        curve = self._curve
        if curve is None or not curve.points:
            raise InvalidArgument("this index keeps no curve of recall: measure() makes one; or say nprobe=")
        if k > curve.k:
            raise InvalidArgument(f"this index keeps the recall of {curve.k} neighbours, not of {k}: measure(k={k}) measures that; or say nprobe=")
        if curve.rows != len(self):
            warn(f"the curve of recall was measured among {curve.rows} rows, there are {len(self)} now: measure() measures it anew", RecallWarning)
        point = curve.point_for(recall, k)
        if point is None:
            best = curve.points[-1]
            raise InvalidArgument(f"recall {recall} is beyond the curve; the best is {best.recall.value:.4f}, with nprobe {best.nprobe} and refine {best.refine}")
        return point.nprobe, point.refine

    # ---- recall

    @property
    def curve(self) -> list[OperatingPoint]:
        """What it finds, measured: points of more and more recall and time. Empty before `measure`."""
        return [OperatingPoint._of(point) for point in self._curve.points] if self._curve else []

    def measure(
        self,
        queries: Rows = None,
        k: Whole = 10,
        *,
        until: float = 0.999,
        seconds: float = 60,
        seed: Whole = 0,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> list[OperatingPoint]:
        """Measures what it finds at many parameters, and keeps that: `search(recall=...)` goes by it, `save` writes it.

        Parameters
        ----------
        queries : array [q, d]
            As they will be asked; by default rows that were held out while it was built for a recall.
        k : int
            Neighbours that will be asked for.
        until : float
            Recall beyond which nobody looks.
        seconds : float
            After so long it ends where it is: at the first point after 0.
        seed : int
            By which 5,000 are drawn of more `queries`.
        threads, memory, progress
            As of `knn`. The times are those of so many threads.

        Returns
        -------
        list of OperatingPoint
            As `curve`.
        """
        asked = None if queries is None else rows(queries, "queries")
        k, until, seconds, seed = whole(k, "k"), recall_of(until, "until"), seconds_of(seconds), seed_of(seed)
        self._curve = self._index.measure(asked, k, until, seconds, seed, run_of(threads, memory, progress))
        return self.curve

    @property
    def ids(self) -> Integers:
        """What the rows are called, [n] int64, ascending."""
        return self._index.ids(self._index.moment())

    @property
    def row_keys(self) -> Any:
        """What the rows were called by ``keys=``, of every id below `next_id`, removed rows too; read-only. None of an index without keys.

        ``open(path, keys=index.row_keys)`` goes on where `save` ended.
        """
        if self._names is None:
            return None
        keys = self._names.now()[1].view()
        keys.flags.writeable = False
        return keys

    def ids_of(self, keys: Keys) -> Integers:
        """What the rows are called that have some keys.

        Parameters
        ----------
        keys : array [m]
            Each of one row that is there.

        Returns
        -------
        array [m] int64

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> index = gigaknn.build(np.eye(3, dtype=np.float32), index="Flat", keys=["ann", "bob", "cid"])
        >>> index.ids_of(["cid", "ann"])
        array([2, 0])
        """
        return self._ids_named(in_order(keys))

    def _ids_named(self, keys, distinct=False):
        if self._names is None:
            raise InvalidArgument("this index was made without keys: its rows have ids alone")
        return self._names.ids_of(keys, distinct=distinct)

    def _seen(self, only, exclude, look):
        """What `look(only, exclude, moment)` finds, two sets of ids at a moment, with the keys of that moment."""
        if only is not None and exclude is not None:
            raise InvalidArgument("only and exclude do not go together")
        now = self._names.now() if self._names else (self._index.moment(), None)
        return with_keys(look(self._set_of(only, "only", now), self._set_of(exclude, "exclude", now), now[0]), now[1])

    def _set_of(self, rows_, name, now):
        if rows_ is not None and self._names is not None:
            if is_empty(rows_):
                return np.empty(0, np.int64)
            if are_keys(rows_):
                return self._names.ids_of(rows_, now)
        return ids_of(rows_, name)

    @property
    def held_out(self) -> Integers:
        """Rows, by id, that centroids were not fitted to: to the index they are strangers, as queries are."""
        return self._index.held_out()

    # ---- changes

    def add(
        self,
        x: Rows,
        ids: Ids | None = None,
        *,
        keys: Keys = None,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> None:
        """Adds copies of rows. An add that fails has changed nothing.

        Parameters
        ----------
        x : array [m, d], of the type of the index
        ids : array [m] int
            What they are called, by default `next_id` and on; none may be there. Not where the index has keys.
        keys : array [m]
            As of `build`, where the index has keys.
        threads, memory, progress
            As of `knn`.

        Raises
        ------
        InvalidData
            An id is negative, there already or there twice; NaN or infinity, unless they were allowed.
        Unsupported
            The index does not change.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> x = np.random.default_rng(0).random((1000, 8), dtype=np.float32)
        >>> index = gigaknn.build(x[:900], index="IVF10,Flat")
        >>> index.add(x[900:])
        >>> len(index), index.search(x[950:951], 1, nprobe=10).ids
        (1000, array([[950]]))
        """
        base, run = rows(x, "x"), run_of(threads, memory, self._changes.watched(progress))
        if self._names is None:
            self._refuse_keys(keys)
            ids = ids_of(ids, "ids")
            with self._changes.alone():
                return self._index.add(base, ids, False, run)
        if ids is not None:
            raise InvalidArgument("rows of an index with keys are called by their numbers: ids= does not go with it")
        if keys is None:
            raise InvalidArgument("this index has keys: keys= is needed for what is added")
        keys = keys_of(keys, base.shape[0])
        with self._alone(), self._names.added(keys):
            self._index.add(base, None, False, run)

    def update(
        self,
        x: Rows,
        ids: Ids | None = None,
        *,
        keys: Keys = None,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> None:
        """As `add`, but rows that are called so already are replaced.

        Parameters
        ----------
        x : array [m, d], of the type of the index
        ids : array [m] int
            What they are called. Without them the rows are those that have `keys`.
        keys : array [m]
            Where the index has keys; with `ids` rows get these in place of their own, which they keep otherwise.
        threads, memory, progress
            As of `knn`.

        Raises
        ------
        InvalidData
            As of `add`, but for ids that are there.
        Unsupported
            The index does not change.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> index = gigaknn.build(np.arange(4, dtype=np.float32)[:, None], index="Flat")
        >>> index.update(np.array([[9.0]], dtype=np.float32), [2])
        >>> index.reconstruct([1, 2]).ravel()
        array([1., 9.], dtype=float32)
        """
        base, ids, run = rows(x, "x"), ids_of(ids, "ids"), run_of(threads, memory, self._changes.watched(progress))
        if self._names is None:
            self._refuse_keys(keys)
            with self._changes.alone():
                return self._index.add(base, ids, True, run)
        if ids is None:
            if keys is None:
                raise InvalidArgument("update needs the ids or the keys of the rows")
            with self._alone():
                return self._index.add(base, self._ids_named(in_order(keys), distinct=True), True, run)
        had = self.next_id
        if len(ids) and not 0 <= ids.min() <= ids.max() < had:
            raise (InvalidData if ids.min() < 0 else InvalidArgument)(f"an index with keys updates rows that it has had: ids must be below {had}, and not negative")
        keys = keys_of(keys, len(ids))
        with self._alone(), contextlib.nullcontext() if keys is None else self._names.replaced(ids, keys):
            self._index.add(base, ids, True, run)

    @contextlib.contextmanager
    def _alone(self):
        with self._changes.alone():
            if self._names:
                self._names.settle()
            yield

    @staticmethod
    def _refuse_keys(keys):
        if keys is not None:
            raise InvalidArgument("this index was made without keys: keys= does not go with it")

    def remove(self, ids: Ids | None = None, *, keys: Keys = None) -> None:
        """Removes rows. What is left keeps its ids.

        Parameters
        ----------
        ids : array [m] int
        keys : array [m]
            Instead of ids. All of them must be there.

        Raises
        ------
        InvalidArgument
            One is not there; nothing is removed.
        Unsupported
            The index does not change.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> index = gigaknn.build(np.eye(4, dtype=np.float32), index="Flat")
        >>> index.remove([1, 3])
        >>> index.ids
        array([0, 2])
        """
        if (ids is None) == (keys is None):
            raise InvalidArgument("remove needs the ids of rows or their keys, one of both")
        ids = ids_of(ids, "ids")
        with self._alone():
            self._index.remove(self._ids_named(keys, distinct=True) if ids is None else ids)

    def reconstruct(self, ids: Ids) -> Array:
        """Copies of rows.

        Parameters
        ----------
        ids : array [m] int
            In any order; all must be there.

        Returns
        -------
        array [m, d]
            Of the type of the index. Where it keeps no full vectors, in float32 what it holds of them stands for: codes decoded, their transform undone; by cosine in length 1.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> index = gigaknn.build(np.eye(4, dtype=np.float32), index="Flat", ids=[10, 20, 30, 40])
        >>> index.add(np.full((1, 4), 7, dtype=np.float32))
        >>> index.remove([20])
        >>> index.reconstruct([41, 10])
        array([[7., 7., 7., 7.],
               [1., 0., 0., 0.]], dtype=float32)
        """
        found = self._index.reconstruct(whole_array(ids, 1, "ids"))
        return array_of(found) if self._index.dtype == "bf16" and self.keeps_rows else found

    def save(self, path: FilePath, *, threads: Whole | None = None, memory: Memory = None, progress: Progress = None) -> None:
        """Writes a `.gknn`, with the curve, that `open` opens: whole, or not at all. Without keys.

        Parameters
        ----------
        path : path
            Of any name that is not one of another format of gigaknn's, as `.faiss`, `.knng` and `.npy` are:
            `gigaknn.faiss.write_index` writes files of Faiss.
        threads, memory, progress
            As of `knn`.

        Raises
        ------
        InvalidArgument
            The name is one of another format.
        FileError
            It cannot be written; a file that was there is as it was.
        Unsupported
            An index of packed bits.

        Examples
        --------
        >>> import os, tempfile, numpy as np, gigaknn
        >>> index = gigaknn.build(np.eye(4, dtype=np.float32), index="Flat")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index.save(os.path.join(folder, "x.gknn"))
        ...     gigaknn.open(os.path.join(folder, "x.gknn"))
        <Index flat of 4 x 4 float32, metric l2>
        """
        path, run = path_to_write(path, ".gknn", "an index"), run_of(threads, memory, progress)
        if self._curve is None:
            self._index.save(path, run)
            return

        def write(made):
            self._index.save(made, run)
            _core.store_curve(made, self._curve, run)

        replace(path, write)


def build(
    x: Rows,
    *,
    index: str | None = None,
    recall: float | None = None,
    k: Whole = 10,
    metric: str = "l2",
    ids: Ids | None = None,
    keys: Keys = None,
    memory_first: bool = False,
    iterations: Whole = 10,
    seed: Whole = 0,
    device: str = "cpu",
    allow_nonfinite: bool = False,
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
) -> Index:
    """An index of the rows of `x`.

    Parameters
    ----------
    x : array [n, d], or a file
        float32, float16, bfloat16, uint8 or int8. The index keeps it alive, and codes with full vectors behind them (PQ32,RFlat) read it at searches: it must not be changed.
        "Flat" and "IVF1024,Flat" hold besides a copy of it, in an order that is quicker to search, and about a byte a value.
    index : str
        "Flat": every query is compared with all rows; "IVF1024,Flat": 1,024 inverted lists of full vectors; "IVF1024,PQ32": of product codes of
        32 bytes; "IVF1024,PQ32,RFlat": with full vectors behind them; "PCA48,IVF1024,SQ8,RFlat"; "IVF1024,RaBitQ4"; "OPQ32,IVF1024,PQ32".
        Of packed bits (hamming, jaccard) "Flat" alone, which then does not change and cannot be saved.
    recall : float
        Share of the true neighbours that `search` is to find. Without `index` the quickest one is chosen that reaches it within `memory`, by trying
        some on a sample; some rows are held out, and what the index finds is measured with them. Without both, "IVF,Flat".
    k : int
        Neighbours that will be asked for: a recall is of so many.
    metric : str
        As of `knn`.
    ids : array [n] int
        What rows are called, by default their numbers. The index and its files know them.
    keys : array [n]
        What rows are called in results besides: strings, any numbers, the index of a data frame. What `search` finds then has ``.keys``, of the shape
        of the ids. They stay in this process: `save` does not write them, `open` takes them anew. Not together with `ids`.
    memory_first : bool
        Of the indexes that reach the recall the one that takes the least memory.
    iterations : int
        Of k-means.
    seed : int
        Of all that is drawn. The choice for a recall also depends on how quick this machine is; nothing else does.
    device, allow_nonfinite, threads, memory, progress
        As of `knn`.

    Returns
    -------
    Index
        ``search(queries, k)`` finds (distances, ids). Of one made for a recall ``.recall`` is that, or None where it was not reached, which a `RecallWarning` says, and ``.curve`` has
        what was measured.

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> x = np.random.default_rng(0).random((1000, 8), dtype=np.float32)
    >>> gigaknn.build(x, index="IVF16,Flat")
    <Index ivf_flat of 1000 x 8 float32, metric l2>
    """
    base = rows(x, "x")
    n = base.shape[0]
    k, metric, device, seed, iterations = whole(k, "k"), word(metric, "metric"), word(device, "device"), seed_of(seed), whole(iterations, "iterations", 32)
    recipe = "IVF,Flat" if index is None else word(index, "index")
    _require_some(k)
    run = run_of(threads, memory, progress)
    if ids is not None and keys is not None:
        raise InvalidArgument("ids and keys do not go together: keys are of rows that are called by their numbers")
    keys = keys_of(keys, n)
    held_out = 0
    if recall is not None:
        recall = recall_of(recall)
        if not 1 <= k <= n * 9 // 10:
            raise InvalidArgument(f"k must be from 1 to nine tenths of the {n} rows, the rest being held out, got {k}")
        if index is not None and not _core.recipe_keeps_rows(recipe):
            raise Unsupported(f"recall= needs full vectors to measure with: {recipe},RFlat")
        if index is None:
            recipe = _core.choose_index(base, recall, k, flag(memory_first, "memory_first"), metric, iterations, seed, device, flag(allow_nonfinite, "allow_nonfinite"), run)
        held_out = _core.rows_to_hold_out(n)
    made = _core.make_index(base, recipe, metric, ids_of(ids, "ids"), iterations, seed, held_out, k, device, flag(allow_nonfinite, "allow_nonfinite"), run)
    result = Index(made, recall=recall, keys=keys)
    if recall is not None and result.lists > 0:
        result._curve = made.measure(None, k, max(recall, 0.999), 60.0, seed, run)
        best = result._curve.points[-1]
        if result._curve.point_for(recall, result._curve.k) is None:
            result.recall = None
            warnings.warn(f"recall {recall} is not reached; the best is {best.recall.value:.4f}, with nprobe {best.nprobe} and refine {best.refine}", RecallWarning, stacklevel=2)
    return result


def open(
    path: FilePath,
    *,
    recall: float | None = None,
    k: Whole = 10,
    map: bool = False,
    keys: Keys = None,
    device: str = "cpu",
    shards: Whole = 1,
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
) -> Index:
    """Opens a `.gknn` that `Index.save` or `gigaknn build` wrote.

    Parameters
    ----------
    path : path
    recall : float
        What `search` is to find where it is not told more, by the curve that is in the file.
    k : int
        Neighbours that will be asked for; any other number works, but for a `recall`: the file keeps that of so many at most.
    map : bool
        Rows stay in the file until they are looked at; it must not shrink meanwhile, or the process ends (SIGBUS).
    keys : array [next_id]
        As of `build`: of every id that was ever given.
    device, shards, threads, memory, progress
        As of `knn`.

    Returns
    -------
    Index
        With the curve that the file has; ``.recall`` is what was asked for here.

    Raises
    ------
    FileError, CorruptFile
        The file cannot be read, or is not what was written.
    Unsupported
        It holds something else, as an index of Faiss, which `gigaknn.faiss.read_index` reads.

    Examples
    --------
    >>> import os, tempfile, numpy as np, gigaknn
    >>> x = np.random.default_rng(0).random((1000, 8), dtype=np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.gknn")
    ...     gigaknn.build(x, index="IVF16,PQ8").save(path)
    ...     index = gigaknn.open(path)
    >>> index, index.search(x[:2], 1, nprobe=16).ids.shape
    (<Index ivf_pq of 1000 x 8 float32, metric l2>, (2, 1))
    """
    name, k = path_of(path), whole(k, "k")
    _require_some(k)
    device, shards, run = word(device, "device"), whole(shards, "shards", 32), run_of(threads, memory, progress)
    try:
        index = _core.open_index(name, device, shards, k, flag(map, "map"), run)
    except CorruptFile:
        if _is_of_faiss(name):
            raise Unsupported(f"{name}: is an index of Faiss: gigaknn.faiss.read_index reads it") from None
        raise
    return Index(index, _core.stored_curve(name), None if recall is None else recall_of(recall), keys_of(keys, index.next_id))


def _require_some(k):
    if k < 1:
        raise InvalidArgument(f"k must be at least 1, got {k}")


def _is_of_faiss(path):
    try:
        _core.describe_faiss(path)
    except Error:
        return False
    return True


def _unpickled(file, recall, keys):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.gknn")
        path.write_bytes(file)
        return open(path, recall=recall, keys=keys)


def _optional(value, name):
    return None if value is None else whole(value, name)
