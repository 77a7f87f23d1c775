"""k-NN graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core
from ._arguments import device_for, flag, floats, ids_of, number, path_of, path_to_write, recall_of, rows, rows_anywhere, run_of, seed_of, warn, whole, whole_array, word
from ._bfloat16 import array_of
from ._device import device_of
from ._errors import InvalidArgument, RecallWarning, Unsupported
from ._eval import Recall
from ._keys import keys_at, keys_joined, keys_of, with_keys
from ._lists import sound_distances, with_self, with_ties_by_id
from ._search import RadiusNeighbors, with_whole_lists

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._types import Array, FilePath, Floats, Ids, Integers, Keys, Memory, Progress, Rows, Whole


class Path(NamedTuple):
    """A path in a graph."""

    rows: Integers  #: [m] int64, both ends included
    steps: Floats  #: [m - 1] float32, the distance of each step
    largest_step: float


class KnnGraph:
    """A k-NN graph: row i lists the k nearest other rows of i, nearest first. Made by `knn_graph`, `KnnGraph.load` and `KnnGraph.from_arrays`.

    Attributes
    ----------
    ids : array [n, k] int64, read-only
        -1 fills the end of a list that has fewer than k rows.
    distances : array [n, k] float32, read-only
    row_keys : array [n] or None
        What the rows are called, where ``keys=`` said so.
    metric : str
    exact : bool
        Proven to hold the k nearest of all other rows.
    method : str
        One line for people: how it was built.
    """

    def __init__(self, graph: _core.KnnGraph, base: _core.Rows | None = None, keys: Keys = None) -> None:
        self._graph = graph
        self._base = base
        self._method = self._recall = None  # of a graph that was pickled
        self._of_all_rows = False  # as far as is known: a list that is short may be meant so
        self.row_keys: Any = keys
        self.ids: Integers = graph.ids
        self.distances: Floats = graph.distances

    @classmethod
    def from_arrays(cls, distances: npt.ArrayLike, ids: Ids, *, metric: str = "l2", exact: bool = False, base: Rows = None, keys: Keys = None) -> KnnGraph:
        """The graph of lists that something else made: copied, and checked.

        Parameters
        ----------
        distances : array [n, k] float32
            Nearest first in each row; equal ones are put in the order of their ids. Where an id is -1 it becomes inf ("inner_product": -inf), whatever it was.
        ids : array [n, k] int
            Other rows, none twice in a list; -1 fills the end of one that has fewer than k.
        metric : str
            Of the distances.
        exact : bool
            Proven to hold the k nearest of all other rows.
        base : array [n, d], or a file
            The rows, for what changes a graph or measures it.
        keys : array [n]
            As of `knn_graph`.

        Returns
        -------
        KnnGraph

        Raises
        ------
        InvalidArgument
            The lists are no graph: out of order, a row twice, its own neighbour, or none that there is.
        InvalidData
            A distance is NaN, or negative by more than rounding: 0.001 of "cosine" and "jaccard", 1e-4 of the largest of others, whose values
            below 0 become 0. Of "inner_product" any may be.

        Examples
        --------
        >>> import gigaknn
        >>> gigaknn.KnnGraph.from_arrays([[1.0], [1.0], [4.0]], [[1], [0], [1]]).k
        1
        """
        distances, ids, metric = floats(distances, "distances", 2), whole_array(ids, 2, "ids"), word(metric, "metric")
        if distances.shape == ids.shape:
            missing = ids == -1
            if missing.any():
                distances = np.where(missing, np.float32(-np.inf if metric == "inner_product" else np.inf), distances)
            distances = sound_distances(distances, metric)
            ids = with_ties_by_id(distances, ids, metric == "inner_product")
        graph = _core.KnnGraph.of(distances, ids, metric, flag(exact, "exact"), None)
        return cls(graph, None if base is None else rows(base, "base"), keys_of(keys, len(distances)))

    @classmethod
    def load(cls, path: FilePath, *, base: Rows = None, keys: Keys = None) -> KnnGraph:
        """Reads a `.knng`; its checksums are verified.

        Parameters
        ----------
        path : path
        base : array [n, d], or a file
            The rows it is of, for what changes a graph or measures it.
        keys : array [n]
            As of `knn_graph`. They are not in the file, nor are the method, and the recall of a graph that is not exact.

        Returns
        -------
        KnnGraph

        Raises
        ------
        FileError, CorruptFile
            The file cannot be read, or is not what was written.

        Examples
        --------
        >>> import os, tempfile, numpy as np, gigaknn
        >>> x = np.random.default_rng(0).random((100, 4), dtype=np.float32)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "x.knng")
        ...     gigaknn.knn_graph(x, 5).save(path)
        ...     gigaknn.KnnGraph.load(path, base=x)
        <KnnGraph of 100 rows, k 5, metric l2, exact>
        """
        graph = _core.KnnGraph.load(path_of(path), run_of(None, None, None))
        return cls(graph, None if base is None else rows(base, "base"), keys_of(keys, graph.ids.shape[0]))

    def save(self, path: FilePath) -> None:
        """Writes a `.knng`: whole, or not at all. Without keys, method and recall, which pickles have.

        Parameters
        ----------
        path : path
            Of any name that is not one of another format of gigaknn's, as `.npy` and `.gknn` are.

        Raises
        ------
        InvalidArgument
            The name is one of another format.
        FileError
            It cannot be written; a file that was there is as it was.

        Examples
        --------
        >>> import os, tempfile, numpy as np, gigaknn
        >>> graph = gigaknn.knn_graph(np.arange(4, dtype=np.float32)[:, None], 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graph.save(os.path.join(folder, "x.knng"))
        ...     os.listdir(folder)
        ['x.knng']
        """
        self._graph.save(path_to_write(path, ".knng", "a graph"), run_of(None, None, None))

    @property
    def metric(self) -> str:
        return self._graph.metric

    @property
    def exact(self) -> bool:
        return self._graph.exact

    @property
    def only(self) -> str | None:
        """Of a graph by labels: whether neighbours are of the "same" label, or of "other" ones; None: of all rows."""
        return self._graph.only

    @property
    def method(self) -> str:
        return self._graph.method if self._method is None else self._method

    @property
    def doubts(self) -> list[str]:
        """What `knn_graph` saw in the rows that makes neighbours say little, a line each: lists that copies of the row fill, constant rows,
        a metric by which rows are hardly nearer than others. Found on a sample; empty where nothing was found, and of graphs that came otherwise."""
        return list(self._graph.doubts)

    @property
    def k(self) -> int:
        return self.ids.shape[1]

    @property
    def keys(self) -> Any:
        """What the neighbours are called, [n, k] as `ids`, None where one is missing; None of a graph without keys."""
        return None if self.row_keys is None else keys_at(self.row_keys, self.ids)

    @property
    def recall(self) -> Recall | None:
        """Share of the true neighbours, measured while it was built or by `measure`: 1 where it is exact; None where it is not known."""
        if self.exact:
            recall = Recall(1.0)
            recall.low, recall.high, recall.at, recall.sampled = 1.0, 1.0, self.k, len(self)
            return recall
        return Recall._of(self._graph.recall) if self._graph.recall.sampled else self._recall

    def __len__(self) -> int:
        return self.ids.shape[0]

    def __repr__(self) -> str:
        recall = "" if self.recall is None else f", recall {self.recall!r}"
        return f"<KnnGraph of {len(self)} rows, k {self.k}, metric {self.metric}, {'exact' if self.exact else 'approximate'}{'' if self.exact else recall}>"

    def __reduce__(self):
        return _unpickled, (self.distances, self.ids, self.metric, self.exact, self.row_keys, self.method, self.recall, self.only)

    # ---- what it is

    def measure(
        self,
        base: Rows = None,
        *,
        sample: Whole = 1000,
        seed: Whole = 0,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> Recall:
        """Measures the recall on some rows, against an exact search; `.recall` is it from then on, but of an exact graph, whose is 1.

        Parameters
        ----------
        base : array [n, d], or a file
            The rows; those that the graph was built of, where it has them still.
        sample : int
            How many rows; all, where there are no more.
        seed : int
            By which they are drawn.
        threads, memory, progress
            As of `knn`.

        Returns
        -------
        Recall
            A float from 0 to 1, with its interval of 95 %: ``.low``, ``.high``.

        Raises
        ------
        Unsupported
            Of a graph by labels, whose true neighbours are not the nearest of all rows.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> x = np.random.default_rng(0).random((1000, 8), dtype=np.float32)
        >>> graph = gigaknn.knn_graph(x, 5, recall=0.9, method="ivf")
        >>> measured = graph.measure(sample=1000)
        >>> bool(measured > 0.8), measured.sampled, graph.recall == measured
        (True, 1000, True)
        """
        if self.only is not None:
            raise Unsupported("this graph is by labels, exactly: a recall measured against all rows would say nothing of it")
        self._graph.measure(self._rows(base), whole(sample, "sample"), seed_of(seed), run_of(threads, memory, progress))
        return Recall._of(self._graph.recall)

    def report(self) -> dict[str, Any]:
        """What it is made of: its size, its recall, how its rows hang together, how often rows are named.

        Returns
        -------
        dict
            rows, k, metric, exact, method, recall, doubts; missing: entries without a row; components and largest_component, with edges both ways;
            in_degree: the minimum, median and maximum of how often a row is named; never_named: rows that no list names.
        """
        components, largest, in_degree, missing = self._graph.shape(run_of(None, None, None))
        some = in_degree if len(in_degree) else np.zeros(1, np.int64)
        return {
            "rows": len(self),
            "k": self.k,
            "metric": self.metric,
            "exact": self.exact,
            "method": self.method,
            "recall": self.recall,
            "doubts": self.doubts,
            "missing": missing,
            "components": components,
            "largest_component": largest,
            "in_degree": (int(some.min()), float(np.median(some)), int(some.max())),
            "never_named": int((in_degree == 0).sum()),
        }

    def path(self, a: Whole, b: Whole, *, directed: bool = False) -> Path | None:
        """The path from row a to row b whose largest step is smallest; among those the one of fewest steps.

        Parameters
        ----------
        a, b : int
            Rows.
        directed : bool
            Edges lead from a row to those of its list alone, not both ways.

        Returns
        -------
        Path or None
            ``.rows`` [m] int64, a and b included; ``.steps`` [m - 1] float32; ``.largest_step``. None where the rows are not connected.

        Raises
        ------
        InvalidArgument
            There is no such row; or of "inner_product", where larger is nearer.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> x = np.arange(8, dtype=np.float32)[:, None]
        >>> gigaknn.knn_graph(x, 2).path(1, 4).rows
        array([1, 2, 3, 4])
        """
        paths = self.paths(a, b, 1, directed=directed)
        return paths[0] if paths else None

    def paths(self, a: Whole, b: Whole, count: Whole, *, directed: bool = False) -> list[Path]:
        """The best paths from row a to row b, in the order of `path`; none visits a row twice.

        Parameters
        ----------
        a, b : int
            Rows.
        count : int
            Of paths, at most.
        directed : bool
            As of `path`.

        Returns
        -------
        list of Path
            Fewer where there are no more, and none where the rows are not connected. It takes a search for each row of each path.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> x = np.arange(5, dtype=np.float32)[:, None]
        >>> [path.rows.tolist() for path in gigaknn.knn_graph(x, 2).paths(0, 2, 2)]
        [[0, 1, 2], [0, 2]]
        """
        a, b = self._row(a, "a"), self._row(b, "b")
        return [Path(*path) for path in self._graph.paths(a, b, whole(count, "count", 32), flag(directed, "directed"), run_of(None, None, None))]

    def _row(self, row, name):
        row = whole(row, name)
        if not 0 <= row < len(self):
            raise InvalidArgument(f"{name} must be a row, from 0 to {len(self) - 1}, got {row}")
        return row

    # ---- what other libraries take

    def to_csr(self, *, mode: str = "distance", include_self: bool = False) -> Any:
        """The graph as a sparse matrix [n, n] of SciPy: entry (i, j) is the distance of row j in the list of row i, rows nearest first.

        Parameters
        ----------
        mode : str
            "distance", or "connectivity": each entry 1.
        include_self : bool
            Each row begins with itself, at distance 0, as scikit-learn and scanpy expect.

        Returns
        -------
        scipy.sparse.csr_matrix [n, n] float32
            Of int32 indices where they fit. Entries within a row are in the order of the list, not of columns.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> graph = gigaknn.knn_graph(np.array([[0.0], [1.0], [3.0]], dtype=np.float32), 1, metric="l1")
        >>> graph.to_csr().toarray()
        array([[0., 1., 0.],
               [1., 0., 0.],
               [0., 2., 0.]], dtype=float32)
        """
        from scipy.sparse import csr_matrix

        if mode not in ("distance", "connectivity"):
            raise InvalidArgument(f"mode must be distance or connectivity, got {mode!r}")
        ids, distances = _finite_lists(self.metric, self.ids, self.distances)
        if include_self:
            ids, distances = with_self(ids, distances)
        present = ids >= 0
        whole_lists = bool(present.all())
        counts = present.sum(axis=1)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        index_type = np.int32 if max(len(self), int(offsets[-1])) < 2**31 else np.int64
        columns = (ids.ravel() if whole_lists else ids[present]).astype(index_type)
        values = np.ones(len(columns), np.float32) if mode == "connectivity" else (distances.ravel() if whole_lists else distances[present]).astype(np.float32)
        return csr_matrix((values, columns, offsets.astype(index_type)), shape=(len(self), len(self)))

    def to_umap(self, n_neighbors: Whole | None = None) -> tuple[Array, Floats]:
        """What ``umap.UMAP(precomputed_knn=...)`` takes: in its order, each row first in its own list.

        Parameters
        ----------
        n_neighbors : int
            UMAP counts a row among its own neighbours: of a graph of k there are k + 1 at most, which is what is returned by default.

        Returns
        -------
        (ids, distances)
            ids [n, n_neighbors] int32 where they fit, as pynndescent's are, else int64; distances [n, n_neighbors] float32, those of "l2" as roots, 0 of the row itself.
            No id is -1: lists of an approximate graph that are short are searched exactly, where `knn_graph` made it and it has its rows still.

        Raises
        ------
        InvalidArgument
            Lists are short, and the graph is by labels, or not as `knn_graph` made it. (UMAP would leave -1 out, but weigh all others of such a list alike.)

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> ids, distances = gigaknn.knn_graph(np.arange(4, dtype=np.float32)[:, None], 2).to_umap()
        >>> ids[0], distances[0]
        (array([0, 1, 2], dtype=int32), array([0., 1., 2.], dtype=float32))
        """
        count = self.k + 1 if n_neighbors is None else whole(n_neighbors, "n_neighbors")
        if not 1 <= count <= self.k + 1:
            raise InvalidArgument(f"n_neighbors must be from 1 to k + 1 = {self.k + 1}, got {count}")
        if self.metric == "inner_product":
            raise Unsupported("inner_product is no distance; UMAP takes distances")
        distances, ids = self._whole_lists(count)
        ids, distances = with_self(*((ids, np.sqrt(distances)) if self.metric == "l2" else _finite_lists(self.metric, ids, distances)))
        return ids.astype(np.int32 if len(self) < 2**31 else np.int64), distances

    def _whole_lists(self, count):
        """(distances, ids), [n, count - 1], none of them -1."""
        ids, distances = (lists[:, : count - 1] for lists in _finite_lists(self.metric, self.ids, self.distances))
        present = (ids >= 0).sum(axis=1)
        short = int((present < count - 1).sum())
        if short == 0:
            return distances, ids
        base = self._base.numpy() if self._of_all_rows and self._base is not None else None
        if base is None:
            raise InvalidArgument(f"{short} lists have fewer than {count - 1} rows, and UMAP needs whole ones: n_neighbors must be at most {present.min() + 1}")
        base = array_of(base) if self._base.dtype == "bf16" else base
        return with_whole_lists(distances, ids, None, base, metric=self.metric, allow_nonfinite=True)

    # ---- graphs that change

    def merge(
        self,
        other: KnnGraph,
        *,
        base: Rows = None,
        other_base: Rows = None,
        method: str = "auto",
        recall: float | None = None,
        seed: Whole = 0,
        device: str = "cpu",
        shards: Whole = 1,
        allow_nonfinite: bool = False,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> KnnGraph:
        """The graph of this one's rows and of those of `other`, which come behind.

        Exact graphs merged exactly (a recall of 1) are what `knn_graph` makes of both sets of rows together, bit for bit.

        Parameters
        ----------
        other : KnnGraph
            Of the same k and metric.
        base, other_base : array [n, d]
            The rows of both; those that the graphs were built of, where these have them still.
        method : str
            "auto", "exact", "ivf" or "nn-descent".
        recall : float
            Share of the true neighbours that an approximate graph is to have; where it is given and not reached, as it is measured, a
            `RecallWarning` tells. None: all, as far as the graphs merged have them.
        seed, device, shards, allow_nonfinite, threads, memory, progress
            As of `knn_graph`.

        Returns
        -------
        KnnGraph
            [n + m, k]; it does not have its rows. Both graphs are unchanged.

        Raises
        ------
        InvalidArgument
            k, metrics, dimensions or types disagree; a graph is not of its rows, as far as a sample tells; one has keys and the other none.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> x = np.random.default_rng(0).random((100, 4), dtype=np.float32)
        >>> merged = gigaknn.knn_graph(x[:60], 5).merge(gigaknn.knn_graph(x[60:], 5))
        >>> bool((merged.ids == gigaknn.knn_graph(x, 5).ids).all())
        True
        """
        if not isinstance(other, KnnGraph):
            raise TypeError(f"other must be a KnnGraph, got {type(other).__name__}")
        if (self.row_keys is None) != (other.row_keys is None):
            raise InvalidArgument("one of the graphs has keys and the other none")
        wanted = recall_of(1.0 if recall is None else recall)
        merged = KnnGraph(
            self._graph.merge(
                self._rows(base), other._graph, other._rows(other_base, "other_base"), word(method, "method"), wanted, seed_of(seed), word(device, "device"), whole(shards, "shards", 32), flag(allow_nonfinite, "allow_nonfinite"), run_of(threads, memory, progress)
            )
        )
        if recall is not None:
            _hold_against(merged, wanted)
        merged.row_keys = None if self.row_keys is None else keys_joined(self.row_keys, other.row_keys)
        return merged

    def extend(
        self,
        more: Rows,
        *,
        base: Rows = None,
        keys: Keys = None,
        method: str = "auto",
        recall: float | None = None,
        seed: Whole = 0,
        device: str = "cpu",
        shards: Whole = 1,
        allow_nonfinite: bool = False,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> KnnGraph:
        """The graph of this one's rows and of more, which come behind.

        Parameters
        ----------
        more : array [m, d], or a file
        base : array [n, d], or a file
            The rows that there are; those that the graph was built of, where it has them still.
        keys : array [m]
            Of `more`, where this graph has keys.
        method, recall, seed, device, shards, allow_nonfinite, threads, memory, progress
            As of `merge`.

        Returns
        -------
        KnnGraph
            [n + m, k]; it does not have its rows. This one is unchanged.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> x = np.random.default_rng(0).random((100, 4), dtype=np.float32)
        >>> grown = gigaknn.knn_graph(x[:80], 5).extend(x[80:])
        >>> bool((grown.ids == gigaknn.knn_graph(x, 5).ids).all())
        True
        """
        if (self.row_keys is None) != (keys is None):
            raise InvalidArgument("keys= is needed where a graph has keys, and only there")
        more = rows(more, "more")
        keys = None if keys is None else keys_joined(self.row_keys, keys_of(keys, more.shape[0]))
        wanted = recall_of(1.0 if recall is None else recall)
        extended = KnnGraph(
            self._graph.extend(self._rows(base), more, word(method, "method"), wanted, seed_of(seed), word(device, "device"), whole(shards, "shards", 32), flag(allow_nonfinite, "allow_nonfinite"), run_of(threads, memory, progress))
        )
        if recall is not None:
            _hold_against(extended, wanted)
        extended.row_keys = keys
        return extended

    def remove(
        self,
        ids: Ids,
        *,
        base: Rows = None,
        device: str = "cpu",
        shards: Whole = 1,
        allow_nonfinite: bool = False,
        threads: Whole | None = None,
        memory: Memory = None,
        progress: Progress = None,
    ) -> tuple[KnnGraph, Integers]:
        """The graph without some rows; the others move up.

        Parameters
        ----------
        ids : array [m] int
            Rows.
        base : array [n, d], or a file
            The rows; those that the graph was built of, where it has them still.
        device, shards, allow_nonfinite, threads, memory, progress
            As of `knn_graph`.

        Returns
        -------
        (KnnGraph, array [n] int64)
            The graph, and of each old row the new id, -1 where it was removed.

        Examples
        --------
        >>> import numpy as np, gigaknn
        >>> graph, new_ids = gigaknn.knn_graph(np.arange(5, dtype=np.float32)[:, None], 2).remove([1])
        >>> len(graph), new_ids
        (4, array([ 0, -1,  1,  2,  3]))
        """
        graph, new_ids = self._graph.remove(self._rows(base), ids_of(ids, "ids"), word(device, "device"), whole(shards, "shards", 32), flag(allow_nonfinite, "allow_nonfinite"), run_of(threads, memory, progress))
        return KnnGraph(graph, keys=None if self.row_keys is None else self.row_keys[new_ids >= 0]), new_ids

    def _rows(self, base, name="base"):
        if base is not None:
            return rows(base, name)
        if self._base is None:
            raise InvalidArgument(f"this graph does not have its rows: {name}= is needed")
        return self._base


def knn_graph(
    x: Rows,
    k: Whole = 10,
    *,
    metric: str = "l2",
    keys: Keys = None,
    recall: float | None = None,
    method: str = "auto",
    index: str | None = None,
    nprobe: Whole | None = None,
    refine: Whole | None = None,
    labels: Ids | None = None,
    only: str = "same",
    sample: Whole | None = None,
    seed: Whole = 0,
    device: str | None = None,
    shards: Whole = 1,
    allow_nonfinite: bool = False,
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
    stream: object = None,
) -> KnnGraph:
    """The k-NN graph of `x`: for each row its k nearest other rows.

    Parameters
    ----------
    x : array [n, d], or a file
        float32, float16, bfloat16, uint8 or int8: not copied. The graph keeps it, for `merge` and `extend`. An array in the memory of a GPU is read there
        for an exact graph, which does not keep it; for others it is copied to the host.
    k : int
        From 1 to n - 1.
    metric : str
        As of `knn`.
    keys : array [n]
        What the rows are called: numbers, strings, the index of a data frame. The graph has ``.row_keys`` and, of the shape of its ids, ``.keys``.
    recall : float
        1, also where nothing is said: exact. Below: an approximate graph that is to have this share of the true neighbours; what it has is measured, and a `RecallWarning`
        says where that is less. With `index` it chooses nothing, and what is measured is held against it where it is said.
    method : str
        "auto", "exact", "ivf", "nn-descent" or "gnnd" (the same begun at random, for GPUs).
    index : str
        Built by a search of this index ("IVF1024,PQ32"; see `build`). `labels`, `method` and `shards` do not go with it.
    nprobe, refine : int
        Of `index`, and refused without: lists that each row looks into (None: 16), and so many times k candidates that are compared by full vectors
        (None: 4).
    labels : array [n] int
        Neighbours are chosen by the labels of both rows, exactly.
    only : str
        Of `labels`, and refused without: "same", neighbours are of the row's own alone, or "other".
    sample : int
        Of `index`, and refused without: rows on which the recall is measured (None: 1000).
    seed : int
        Of all that is drawn. Same input, parameters and seed: same graph for any number of threads, and on every device, but for
        "auto" below a recall of 1 of 100,000 rows or more, which takes other methods on a GPU.
    device, shards, allow_nonfinite, threads, memory, progress, stream
        As of `knn`. The lists of a graph are in the memory of the host.

    Returns
    -------
    KnnGraph
        ``.ids`` [n, k] int64 and ``.distances`` [n, k] float32, nearest first, no row in its own list; ``.recall``, 1 of an exact one, else as it was measured.

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> x = np.array([[0.0], [1.0], [3.0], [7.0]], dtype=np.float32)
    >>> g = gigaknn.knn_graph(x, k=2, metric="euclidean")
    >>> g
    <KnnGraph of 4 rows, k 2, metric euclidean, exact>
    >>> g.ids
    array([[1, 2],
           [0, 2],
           [1, 0],
           [2, 1]])
    """
    wanted = 1.0 if recall is None else recall_of(recall)
    exact = index is None and labels is None and (method == "exact" or (method == "auto" and wanted == 1))
    base = rows_anywhere(x, "x", stream) if exact else rows(x, "x", stream)
    k, metric, seed, shards = whole(k, "k"), word(metric, "metric"), seed_of(seed), whole(shards, "shards", 32)
    device = device_for(device_of(x) if device is None else device, base)
    if base.shape[0] < 2:
        raise InvalidArgument(f"a graph needs at least 2 rows, got {base.shape[0]}")
    run = run_of(threads, memory, progress)
    keys = keys_of(keys, base.shape[0])
    if only not in ("same", "other"):
        raise InvalidArgument(f"only must be same or other, got {only!r}")
    if labels is None and only != "same":
        raise InvalidArgument("only= is of labels=, and there are none")
    if index is None:
        for name, value in (("nprobe", nprobe), ("refine", refine), ("sample", sample)):
            if value is not None:
                raise InvalidArgument(f"{name}= is of index=, and there is none")
    if index is not None:
        if labels is not None or method != "auto":
            raise InvalidArgument("index= says how the graph is built: labels= and method= do not go with it")
        if shards != 1:
            raise InvalidArgument(f"an index is searched in one piece: shards must be 1 with index=, got {shards}")
        nprobe, refine = whole(16 if nprobe is None else nprobe, "nprobe"), whole(4 if refine is None else refine, "refine")
        graph = KnnGraph(_core.search_graph(base, k, word(index, "index"), nprobe, refine, metric, seed, device, flag(allow_nonfinite, "allow_nonfinite"), run), base, keys)
        graph.measure(sample=1000 if sample is None else sample, seed=seed, threads=threads, memory=memory)
        graph._of_all_rows = True
        if recall is not None:
            _hold_against(graph, wanted, f", with nprobe {nprobe} and refine {refine}")
        return graph
    built = _core.build_graph(base, k, metric, word(method, "method"), wanted, seed, device, shards, flag(allow_nonfinite, "allow_nonfinite"), ids_of(labels, "labels"), only == "same", run)
    graph = KnnGraph(built, base if base.device == "cpu" else None, keys)
    graph._of_all_rows = labels is None
    _hold_against(graph, wanted)
    return graph


def _finite_lists(metric, ids, distances):
    """(ids, distances) for those who take no infinity: by cosine what is infinitely far (rows of zeros) is 1 away, as scikit-learn has it, and stands there in its list."""
    far = (ids >= 0) & np.isinf(distances) if metric == "cosine" else np.zeros((1, 1), bool)
    if not far.any():
        return ids, distances
    lists = far.any(axis=1)
    some_ids, some = ids[lists], np.where(far[lists], np.float32(1), distances[lists])
    order = np.lexsort((some_ids, some), axis=1)
    ids, distances = ids.copy(), distances.copy()
    ids[lists], distances[lists] = np.take_along_axis(some_ids, order, axis=1), np.take_along_axis(some, order, axis=1)
    return ids, distances


def _hold_against(graph, wanted, how=""):
    """Warns of a graph whose recall, as it was measured, is less than was asked for."""
    if graph.recall is not None and graph.recall < wanted:
        warn(f"recall {wanted} is not reached; the graph has {graph.recall:.4f}{how}", RecallWarning)


def radius_graph(
    x: Rows,
    radius: float,
    *,
    metric: str = "l2",
    keys: Keys = None,
    device: str = "cpu",
    shards: Whole = 1,
    allow_nonfinite: bool = False,
    threads: Whole | None = None,
    memory: Memory = None,
    progress: Progress = None,
) -> RadiusNeighbors:
    """All pairs of rows of `x` at most `radius` apart: each row lists the others within it, nearest first, exactly.

    Parameters
    ----------
    x : array [n, d], or a file
    radius : float
        In the unit of the metric's distances: squared for "l2".
    metric, keys, device, shards, allow_nonfinite, threads, memory, progress
        As of `knn`.

    Returns
    -------
    RadiusNeighbors
        (offsets [n + 1] int64, distances [found] float32, ids [found] int64): row i has the entries from offsets[i] to offsets[i + 1].

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> offsets, distances, ids = gigaknn.radius_graph(np.array([[0.0], [1.0], [5.0]], dtype=np.float32), 2, metric="l1")
    >>> offsets, ids
    (array([0, 1, 2, 2]), array([1, 0]))
    """
    base = rows(x, "x")
    keys = keys_of(keys, base.shape[0])
    found = RadiusNeighbors(
        *_core.radius_graph(base, number(radius, "radius"), word(metric, "metric"), word(device, "device"), whole(shards, "shards", 32), flag(allow_nonfinite, "allow_nonfinite"), run_of(threads, memory, progress))
    )
    return with_keys(found, keys)


def _unpickled(distances, ids, metric, exact, keys, method=None, recall=None, only=None):
    graph = KnnGraph(_core.KnnGraph.of(distances, ids, metric, exact, only), None, keys_of(keys, len(distances)))
    graph._method, graph._recall = method, recall
    return graph
