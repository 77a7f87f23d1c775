"""In place of Faiss, for scripts that were written for it: ``import gigaknn.faiss as faiss``.

>>> import numpy as np
>>> import gigaknn.faiss as faiss
>>> xb = np.random.default_rng(0).random((2000, 16), dtype=np.float32)
>>> index = faiss.index_factory(16, "IVF20,Flat")
>>> index.train(xb)
>>> index.add(xb)
>>> index.nprobe = 4
>>> D, I = index.search(xb[:3], 5)
>>> I[:, 0], index.ntotal
(array([0, 1, 2]), 2000)

Conventions are Faiss's: (distances, labels); L2 is the square, inner products descend, labels are -1 where there are fewer rows. Files are Faiss's, both ways. What is
trained is gigaknn's own: the same kind of index, not the same centroids. Equal distances come by label. An index has a label once; it is found again by it also in an IndexIVF.
What Faiss has and gigaknn has not is refused, by name.

An index that is wrapped and what wraps it are one: add to either, and both have the rows.
"""

from __future__ import annotations

import copy
import math
import re
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core, _index, _kmeans, _search
from ._arguments import run_of, whole, whole_array, word
from ._bfloat16 import rounded
from ._core import available_threads, devices
from ._errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._types import Array, FilePath, Floats, Integers, Whole

__version__ = _core.version()

METRIC_INNER_PRODUCT, METRIC_L2, METRIC_L1, METRIC_Linf = 0, 1, 2, 3
_metrics = {METRIC_INNER_PRODUCT: "inner_product", METRIC_L2: "l2", METRIC_L1: "l1", METRIC_Linf: "linf"}
IO_FLAG_MMAP, IO_FLAG_READ_ONLY = 0x646F0008, 2  # read_index reads into memory all the same
_most_label = 2**61
_farthest = np.finfo(np.float32).max  # Faiss's, beside label -1


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(f"gigaknn.faiss has no {name}: gigaknn has nothing in its place (docs/python.md lists what there is)")


# ---- threads

_threads = None


def omp_set_num_threads(n: Whole) -> None:
    """So many threads from now on, of every call of this module."""
    global _threads
    if whole(n, "n") < 1:
        raise InvalidArgument(f"n must be at least 1, got {n}")
    _threads = int(n)


def omp_get_max_threads() -> int:
    """Threads that a call uses."""
    return available_threads() if _threads is None else _threads


def _metric_of(metric):
    if metric not in _metrics:
        raise Unsupported(f"metric {metric!r} is not built, allowed: METRIC_L2, METRIC_INNER_PRODUCT; METRIC_L1 and METRIC_Linf of IndexFlat")
    return _metrics[metric]


def _floats(x, d, name="x"):
    x = np.ascontiguousarray(x, dtype=np.float32)
    if x.ndim != 2 or x.shape[1] != d:
        raise InvalidArgument(f"{name} must be of shape [n, {d}], got {list(x.shape)}")
    return x


# ---- selectors of ids


class IDSelector:
    """Which labels count: those of which `is_member` is true."""

    def _members(self, ids):
        """[n] bool"""
        raise NotImplementedError

    def is_member(self, i: int) -> bool:
        """Whether this label counts."""
        return bool(self._members(np.array([i], np.int64))[0])

    def _sets(self, ids):
        """As searches of gigaknn take it; `ids` gives those of the index."""
        there = ids()
        return {"only": there[self._members(there)]}


class IDSelectorAll(IDSelector):
    """All labels."""

    def _members(self, ids):
        return np.ones(len(ids), bool)

    def _sets(self, ids):
        return {}


class IDSelectorBatch(IDSelector):
    """Labels of a list."""

    def __init__(self, indices: npt.ArrayLike) -> None:
        self.indices = np.unique(np.asarray(indices, dtype=np.int64))

    def _members(self, ids):
        return np.isin(ids, self.indices)

    def _possible(self):
        """Those that an index may have: the others select nothing."""
        return self.indices[(0 <= self.indices) & (self.indices <= _most_label)]

    def _sets(self, ids):
        return {"only": self._possible()}


class IDSelectorArray(IDSelectorBatch):
    """The same."""


class IDSelectorRange(IDSelector):
    """Labels from imin to imax - 1."""

    def __init__(self, imin: Whole, imax: Whole) -> None:
        self.imin, self.imax = whole(imin, "imin"), whole(imax, "imax")

    def _members(self, ids):
        return (self.imin <= ids) & (ids < self.imax)


class IDSelectorBitmap(IDSelector):
    """Labels whose bit is set: that of label i is bit i % 8 of byte i // 8."""

    def __init__(self, bitmap: npt.ArrayLike) -> None:
        self.bits = np.unpackbits(np.asarray(bitmap, dtype=np.uint8), bitorder="little").astype(bool)

    def _members(self, ids):
        inside = (0 <= ids) & (ids < len(self.bits))
        return inside & self.bits[np.where(inside, ids, 0)] if len(self.bits) else inside


class IDSelectorNot(IDSelector):
    """Labels that another selector leaves out."""

    def __init__(self, sel: IDSelector) -> None:
        self.sel = sel

    def _members(self, ids):
        return ~self.sel._members(ids)

    def _sets(self, ids):
        return {"exclude": self.sel._possible()} if isinstance(self.sel, IDSelectorBatch) else super()._sets(ids)


class _IDSelectorOfTwo(IDSelector):
    def __init__(self, lhs: IDSelector, rhs: IDSelector) -> None:
        self.lhs, self.rhs = lhs, rhs

    def _members(self, ids):
        return self._joined(self.lhs._members(ids), self.rhs._members(ids))


class IDSelectorAnd(_IDSelectorOfTwo):
    """Labels that both of two selectors have."""

    _joined = np.logical_and


class IDSelectorOr(_IDSelectorOfTwo):
    """Labels that one of two selectors has, or both."""

    _joined = np.logical_or


class IDSelectorXOr(_IDSelectorOfTwo):
    """Labels that one of two selectors has, and not the other."""

    _joined = np.logical_xor


class SearchParameters:
    """What one search is told: `sel`, labels that count."""

    def __init__(self, sel: IDSelector | None = None) -> None:
        self.sel = sel


class SearchParametersIVF(SearchParameters):
    """The same, and `nprobe`."""

    def __init__(self, sel: IDSelector | None = None, nprobe: int | None = None) -> None:
        super().__init__(sel)
        self.nprobe = nprobe


# ---- indexes


class _Held:
    """What an index and those that wrap it share: the index of gigaknn."""

    def __init__(self, d, metric, recipe):
        self.d, self.metric, self.recipe = d, metric, recipe
        self.device = "cpu"
        self.index = None  # before it is trained; of "Flat" before it has rows
        self.next_id = 0

    def __getstate__(self):
        state = dict(self.__dict__)
        if self.index is not None:
            with tempfile.TemporaryDirectory() as folder:
                self.index.save(f"{folder}/x.gknn", threads=_threads)
                state["index"] = Path(folder, "x.gknn").read_bytes()
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self.index is not None:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "x.gknn").write_bytes(self.index)
                self.index = _index.open(f"{folder}/x.gknn", device=self.device, threads=_threads)

    def reopen(self):
        """Rows that it borrows are let go; `device` counts."""
        self.__setstate__(self.__getstate__())

    @property
    def rows(self):
        return 0 if self.index is None else len(self.index)

    @property
    def is_trained(self):
        return self.recipe == "Flat" or self.index is not None

    def ids(self):
        return np.empty(0, np.int64) if self.index is None else self.index.ids

    def train(self, x, lists, iterations, seed):
        if self.rows:
            raise Unsupported("an index that has rows is not trained again")
        most = max(256 * lists, 65536)
        if len(x) > most:
            x = x[np.sort(np.random.default_rng(seed).choice(len(x), most, replace=False))]
        self.index = _index.build(x, index=self.recipe, metric=self.metric, iterations=iterations, seed=seed, device=self.device, threads=_threads)
        self.index.remove(self.index.ids)
        self.reopen()

    def add(self, x, ids):
        if ids is None:
            ids = np.arange(self.next_id, self.next_id + len(x))
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if ids.shape != (len(x),):
            raise InvalidArgument(f"ids must be one for each of the {len(x)} rows, got shape {list(ids.shape)}")
        if len(x) == 0:
            return
        if self.index is None:
            self.index = _index.build(x.copy(), index="Flat", metric=self.metric, ids=ids, device=self.device, threads=_threads)
        else:
            self.index.add(self.of_its_type(x), ids=ids, threads=_threads)
        self.next_id = max(self.next_id, int(ids.max()) + 1)

    def of_its_type(self, x):
        """Rows of a file may be of fewer bits; whole numbers must be whole."""
        if self.index._index.dtype == "bf16":
            return rounded(x)
        dtype = self.index.dtype
        if dtype == np.float32:
            return x
        with np.errstate(over="ignore", invalid="ignore"):
            cast = x.astype(dtype)
        if dtype != np.float16 and not np.array_equal(cast, x):
            raise InvalidArgument(f"the index holds {dtype}: x must be whole numbers of its range")
        return cast


class Index:
    """What all indexes have. Rows are float32 [n, d], labels int64.

    Attributes
    ----------
    d : int
    metric_type : int
    ntotal : int
        Rows.
    is_trained : bool
    """

    verbose = False
    _settable = {"verbose"}

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise Unsupported(f"{type(self).__name__} is not built: gigaknn has nothing in its place")

    def _begin(self, d, metric_type, held):
        vars(self).update(d=d, metric_type=metric_type)
        self._held, self._transformed = held, False

    def __setattr__(self, name, value):
        if not name.startswith("_") and name not in self._settable:
            raise AttributeError(f"gigaknn.faiss: {name} of {type(self).__name__} is not set: gigaknn has nothing that would read it; there {'is' if len(self._settable) == 1 else 'are'} {', '.join(sorted(self._settable))}")
        super().__setattr__(name, value)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise AttributeError(f"gigaknn.faiss: {type(self).__name__} has no {name}: gigaknn has nothing in its place")

    @property
    def ntotal(self) -> int:
        return self._held.rows

    @property
    def is_trained(self) -> bool:
        return self._held.is_trained

    def train(self, x: npt.ArrayLike) -> None:
        """Fits what the index needs to `x` [n, d]."""
        x = _floats(x, self.d)
        self._require_outermost()
        inner = _inverted_in(self)
        if inner is not None:
            self._held.train(x, inner.nlist, inner.cp.niter, inner.cp.seed)

    def add(self, x: npt.ArrayLike) -> None:
        """Adds rows, labelled by their number."""
        self._add(x, None)

    def add_with_ids(self, x: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Adds rows, labelled by `ids` [n]: each >= 0, and new."""
        self._add(x, ids)

    def search(self, x: npt.ArrayLike, k: Whole, *, params: SearchParameters | None = None, D: Floats | None = None, I: Integers | None = None) -> tuple[Floats, Integers]:
        """(D [n, k] float32, I [n, k] int64): the nearest rows of each of `x` [n, d]."""
        x, k = _floats(x, self.d), whole(k, "k")
        if k < 1:
            raise InvalidArgument(f"k must be at least 1, got {k}")
        options = self._searching(params)
        if self.ntotal:
            distances, ids = self._held.index.search(self._held.of_its_type(x), k, **options)
            distances[ids < 0] = self._worst()
        else:
            distances, ids = np.full((len(x), k), self._worst(), np.float32), np.full((len(x), k), -1, np.int64)
        for given, found in ((D, distances), (I, ids)):
            if given is not None:
                given[:] = found
        return distances if D is None else D, ids if I is None else I

    def range_search(self, x: npt.ArrayLike, thresh: float, *, params: SearchParameters | None = None) -> tuple[npt.NDArray[np.uint64], Floats, Integers]:
        """(lims [n + 1], D, I): of query i the rows nearer than `thresh` (inner product: above it) are entries lims[i] to lims[i + 1], nearest first."""
        x = _floats(x, self.d)
        options = self._searching(params)
        if self.ntotal == 0:
            return np.zeros(len(x) + 1, np.uint64), np.empty(0, np.float32), np.empty(0, np.int64)
        offsets, distances, ids = self._held.index.search_radius(self._held.of_its_type(x), float(thresh), **options)
        within = distances > thresh if self.metric_type == METRIC_INNER_PRODUCT else distances < thresh
        return np.concatenate(([0], np.cumsum(within)))[offsets].astype(np.uint64), distances[within], ids[within]

    def assign(self, x: npt.ArrayLike, k: Whole = 1, labels: Integers | None = None) -> Integers:
        """The labels that `search` finds, [n, k]."""
        return self.search(x, k, I=labels)[1]

    def reconstruct(self, key: Whole, x: Floats | None = None) -> Floats:
        """The row [d] of a label, where full vectors are kept."""
        row = self.reconstruct_batch([whole(key, "key")])[0]
        if x is None:
            return row
        x[:] = row
        return x

    def reconstruct_n(self, n0: Whole = 0, ni: Whole = -1, x: Floats | None = None) -> Floats:
        """Rows of `ni` labels from `n0` on."""
        n0, ni = whole(n0, "n0"), whole(ni, "ni")
        rows = self.reconstruct_batch(np.arange(n0, self.ntotal if ni == -1 else n0 + ni))
        if x is None:
            return rows
        x[:] = rows
        return x

    def reconstruct_batch(self, key: npt.ArrayLike, x: Floats | None = None) -> Floats:
        """Rows [m, d] of labels."""
        keys = whole_array(key, 1, "key")
        self._require_outermost()
        rows = np.empty((0, self.d), np.float32) if len(keys) == 0 or self._held.index is None else self._held.index.reconstruct(keys)
        if len(rows) != len(keys):
            raise InvalidArgument(f"label {keys[0]} is not in the index")
        if x is None:
            return np.asarray(rows, np.float32)
        x[:] = rows
        return x

    def search_and_reconstruct(self, x: npt.ArrayLike, k: Whole, *, params: SearchParameters | None = None) -> tuple[Floats, Integers, Floats]:
        """(D, I, the rows [n, k, d] of these labels, NaN where there is none)."""
        distances, ids = self.search(x, k, params=params)
        rows = np.full((*ids.shape, self.d), np.nan, np.float32)
        rows[ids >= 0] = self.reconstruct_batch(ids[ids >= 0])
        return distances, ids, rows

    def remove_ids(self, x: npt.ArrayLike | IDSelector) -> int:
        """Removes the rows of these labels, an array or a selector, as far as they are there; returns how many."""
        selector = x if isinstance(x, IDSelector) else IDSelectorBatch(x)
        there = self._held.ids()
        gone = there[selector._members(there)]
        if len(gone):
            self._held.index.remove(gone)
        return len(gone)

    def reset(self) -> None:
        """Removes all rows; what is trained stays."""
        self.remove_ids(IDSelectorAll())
        self._held.next_id = 0

    def _add(self, x, ids):
        x = _floats(x, self.d)
        self._require_outermost()
        if not self.is_trained:
            raise InvalidArgument(f"{type(self).__name__} must be trained before rows are added")
        self._held.add(x, ids)

    def _searching(self, params):
        """Arguments of a search by gigaknn."""
        self._require_outermost()
        if not self.is_trained:
            raise InvalidArgument(f"{type(self).__name__} must be trained before it is searched")
        inner = _inverted_in(self)
        nprobe = None if inner is None else inner.nprobe
        # Whole times k, at least as many as Faiss takes; more than all rows there are not.
        options = {"refine": math.ceil(min(_k_factor_of(self), max(1, self.ntotal))), "threads": _threads}
        if params is not None:
            if getattr(params, "nprobe", None) is not None:
                nprobe = params.nprobe
            if params.sel is not None:
                options.update(params.sel._sets(self._held.ids))
        return {**options, "nprobe": nprobe}

    def _require_outermost(self):
        if self._transformed:
            raise Unsupported(f"this {type(self).__name__} holds transformed rows: use the IndexPreTransform around it")

    def _worst(self):
        return -_farthest if self.metric_type == METRIC_INNER_PRODUCT else _farthest


class IndexFlat(Index):
    """All rows, compared exactly. `add_with_ids` needs an IndexIDMap around it; labels after one that is removed move down."""

    def __init__(self, d: int, metric: int = METRIC_L2) -> None:
        self._begin(whole(d, "d"), metric, _Held(d, _metric_of(metric), "Flat"))

    def add_with_ids(self, x: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Refused: an IndexIDMap has labels of its own."""
        raise Unsupported(f"{type(self).__name__} labels rows by their number: put an IndexIDMap around it")

    def remove_ids(self, x: npt.ArrayLike | IDSelector) -> int:
        """As `Index.remove_ids`; the rows behind move up."""
        removed = super().remove_ids(x)
        if removed:
            rows = self.reconstruct_batch(self._held.ids())
            self._held.index, self._held.next_id = None, 0
            self.add(rows)
        return removed


class IndexFlatL2(IndexFlat):
    """By squared distance."""

    def __init__(self, d: int) -> None:
        super().__init__(d, METRIC_L2)


class IndexFlatIP(IndexFlat):
    """By inner product."""

    def __init__(self, d: int) -> None:
        super().__init__(d, METRIC_INNER_PRODUCT)


class IndexScalarQuantizer(Index):
    """Only from `read_index`."""


class ClusteringParameters(types.SimpleNamespace):
    """Of k-means: `niter` and `seed` count."""

    def __init__(self) -> None:
        super().__init__(niter=10, seed=1234)


class IndexIVF(Index):
    """Inverted lists, `nprobe` of which a query looks into.

    Attributes
    ----------
    nprobe : int
    nlist : int
    quantizer : IndexFlat
        What was given; centroids are the index's own, and it stays empty.
    cp : ClusteringParameters
    """

    _settable = {"verbose", "nprobe", "cp"}

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        Index.__init__(self)

    def _begin_inverted(self, quantizer, d, nlist, metric, codes):
        name = type(self).__name__
        if not isinstance(quantizer, IndexFlat) or quantizer.ntotal:
            raise Unsupported(f"the quantizer of {name} must be an IndexFlat without rows: gigaknn fits the centroids")
        if metric not in (METRIC_L2, METRIC_INNER_PRODUCT):
            raise Unsupported(f"{name} is built of METRIC_L2 and METRIC_INNER_PRODUCT, got {metric!r}")
        if whole(nlist, "nlist") < 1:
            raise InvalidArgument(f"nlist must be at least 1, got {nlist}")
        recipe = f"IVF{nlist},{codes}"
        _core.check_recipe(recipe)
        self._begin(whole(d, "d"), metric, _Held(d, _metric_of(metric), recipe))
        self._describe(nlist, 1, quantizer)

    def _describe(self, nlist, nprobe, quantizer=None):
        self.nprobe, self.cp = nprobe, ClusteringParameters()
        vars(self).update(nlist=nlist, quantizer=IndexFlat(self.d, self.metric_type) if quantizer is None else quantizer)

    def make_direct_map(self, new_maintain_direct_map: bool = True) -> None:
        """Nothing: rows are found by label anyhow."""


class IndexIVFFlat(IndexIVF):
    """Of full vectors."""

    def __init__(self, quantizer: IndexFlat, d: int, nlist: Whole, metric: int = METRIC_L2) -> None:
        self._begin_inverted(quantizer, d, nlist, metric, "Flat")


class IndexIVFPQ(IndexIVF):
    """Of product codes: M parts of 8, 6 or 4 bits."""

    def __init__(self, quantizer: IndexFlat, d: int, nlist: Whole, M: Whole, nbits_per_idx: int, metric: int = METRIC_L2) -> None:
        if nbits_per_idx not in (4, 6, 8):
            raise Unsupported(f"parts of product codes have 8, 6 or 4 bits, got {nbits_per_idx!r}")
        if d % whole(M, "M"):
            raise InvalidArgument(f"M must divide the {d} dimensions, got {M}")
        self._begin_inverted(quantizer, d, nlist, metric, f"PQ{M}x{nbits_per_idx}")


class ScalarQuantizer:
    """Names of scalar codes."""

    QT_8bit, QT_4bit, QT_8bit_uniform, QT_4bit_uniform, QT_fp16, QT_8bit_direct, QT_6bit, QT_bf16 = range(8)


_scalar_codes = {
    ScalarQuantizer.QT_8bit: "SQ8",
    ScalarQuantizer.QT_8bit_uniform: "SQ8",
    ScalarQuantizer.QT_4bit: "SQ4",
    ScalarQuantizer.QT_6bit: "SQ6",
    ScalarQuantizer.QT_fp16: "SQfp16",
    ScalarQuantizer.QT_bf16: "SQbf16",
}


class IndexIVFScalarQuantizer(IndexIVF):
    """Of rows of 8 bits a dimension by one step for all (QT_8bit, QT_8bit_uniform), of 16 (QT_fp16, QT_bf16), 6 (QT_6bit) or 4 (QT_4bit)."""

    def __init__(self, quantizer: IndexFlat, d: int, nlist: Whole, qtype: int, metric: int = METRIC_L2, by_residual: bool = True) -> None:
        if qtype not in _scalar_codes:
            raise Unsupported(f"scalar codes are QT_8bit, QT_8bit_uniform, QT_fp16, QT_bf16, QT_6bit and QT_4bit, got {qtype!r}")
        self._begin_inverted(quantizer, d, nlist, metric, _scalar_codes[qtype])


class IndexIVFRaBitQ(IndexIVF):
    """Of RaBitQ's codes of a bit a dimension, of rows that are rotated first."""

    def __init__(self, quantizer: IndexFlat, d: int, nlist: Whole, metric: int = METRIC_L2) -> None:
        self._begin_inverted(quantizer, d, nlist, metric, "RaBitQ")


class IndexPreTransform(Index):
    """Rows that are transformed before they stand in lists: from `index_factory` and `read_index`. `index` holds them."""

    def _wrap(self, d, index):
        self._begin(d, index.metric_type, index._held)
        self._held.d = d
        vars(self).update(index=index)
        index._transformed = True
        return self


class IndexRefineFlat(Index):
    """Full vectors behind what lists hold: `k_factor` times k candidates are compared by these.

    Attributes
    ----------
    base_index : IndexIVF or IndexPreTransform
        Its own searches compare no candidates again.
    k_factor : float
        At least 1; gigaknn compares the next whole number times k.
    """

    _settable = {"verbose", "k_factor"}

    def __init__(self, base_index: Index) -> None:
        if not isinstance(base_index, (IndexIVF, IndexPreTransform)) or isinstance(base_index, IndexIVFFlat) or base_index._transformed:
            raise Unsupported(f"IndexRefineFlat stands behind IndexIVFPQ, IndexIVFScalarQuantizer or IndexPreTransform, got {type(base_index).__name__}")
        if base_index.is_trained:
            raise Unsupported("IndexRefineFlat stands behind an index that is not trained yet")
        base_index._held.recipe += ",RFlat"
        self._wrap(base_index, 1.0)

    def _wrap(self, base_index, k_factor):
        self._begin(base_index.d, base_index.metric_type, base_index._held)
        self.k_factor = k_factor
        vars(self).update(base_index=base_index)
        return self


class IndexRefine(IndexRefineFlat):
    """The same, as files have it where full vectors are of fewer bits."""


class IndexIDMap(Index):
    """Labels of the caller's own around another index."""

    def __init__(self, index: Index) -> None:
        if index.ntotal:
            raise InvalidArgument("an IndexIDMap is put around an index without rows")
        self._wrap(index)

    def _wrap(self, index):
        self._begin(index.d, index.metric_type, index._held)
        vars(self).update(index=index)
        return self

    @property
    def id_map(self) -> Integers:
        """Labels [n], ascending."""
        return self._held.ids()

    def add(self, x: npt.ArrayLike) -> None:
        """Refused: rows need labels."""
        raise Unsupported(f"{type(self).__name__} has labels of its own: add_with_ids")


class IndexIDMap2(IndexIDMap):
    """The same: rows are found by label in both."""


def _without_map(index):
    return index.index if isinstance(index, IndexIDMap) else index


def _k_factor_of(index):
    """How many times k candidates are compared by full vectors; 0: none."""
    index = _without_map(index)
    if not isinstance(index, IndexRefineFlat):
        return 0.0
    if not 1 <= index.k_factor < math.inf:
        raise InvalidArgument(f"k_factor must be finite and at least 1, got {index.k_factor}")
    return float(index.k_factor)


def _inverted_in(index):
    while not isinstance(index, IndexIVF):
        inner = vars(index).get("base_index", vars(index).get("index"))
        if inner is None:
            return None
        index = inner
    return index


def extract_index_ivf(index: Index) -> IndexIVF:
    """The IndexIVF within."""
    found = _inverted_in(index)
    if found is None:
        raise InvalidArgument(f"there is no IndexIVF in {type(index).__name__}")
    return found


try_extract_index_ivf = _inverted_in


def downcast_index(index: Index) -> Any:
    """The index: it always knows its type."""
    return index


def clone_index(index: Index) -> Any:
    """A copy that changes by itself."""
    return copy.deepcopy(index)


class ParameterSpace:
    """Sets parameters by name."""

    def set_index_parameter(self, index: Index, name: str, value: float) -> None:
        """`nprobe`, or `k_factor_rf` of an IndexRefineFlat."""
        if name == "nprobe":
            extract_index_ivf(index).nprobe = int(value)
        elif name == "k_factor_rf" and isinstance(_without_map(index), IndexRefineFlat):
            _without_map(index).k_factor = float(value)
        else:
            raise Unsupported(f"{type(index).__name__} has no parameter {name!r}: there are nprobe and k_factor_rf")

    def set_index_parameters(self, index: Index, description: str) -> None:
        """Several: "nprobe=8,k_factor_rf=4"."""
        for pair in description.split(","):
            name, _, value = pair.partition("=")
            try:
                self.set_index_parameter(index, name.strip(), float(value))
            except ValueError:
                raise InvalidArgument(f"parameters are written name=number, got {pair!r}") from None


# ---- recipes and files


def index_factory(d: int, description: str, metric: int = METRIC_L2) -> Any:
    """The index of a description: "Flat", "IVF1024,Flat", "IVF1024,PQ32", "OPQ32,IVF1024,PQ32,RFlat", "IDMap,Flat", "IVF1024,Flat,IDMap" and what else gigaknn.build takes.

    Refine(Flat) is RFlat. A wrapper of a wrapper, graphs, and codes without lists are refused.
    """
    text = word(description, "description").replace(" ", "").replace("Refine(Flat)", "RFlat")
    wrappers = {"IDMap": IndexIDMap, "IDMap2": IndexIDMap2}
    first, _, behind = text.partition(",")
    before, _, last = text.rpartition(",")
    for outer, inner in ((first, behind), (last, before)):
        if outer in wrappers:
            return wrappers[outer](index_factory(d, inner, metric))
    _core.check_recipe(text)
    if text == "Flat":
        return IndexFlat(d, metric)
    if metric not in (METRIC_L2, METRIC_INNER_PRODUCT):
        raise Unsupported(f"{text!r} is built of METRIC_L2 and METRIC_INNER_PRODUCT, got {metric!r}")
    words = text.split(",")
    place = next(i for i, part in enumerate(words) if part.startswith("IVF"))
    codes = words[place + 1] if len(words) > place + 1 else "Flat"
    kinds = {"Flat": IndexIVFFlat, "PQ": IndexIVFPQ, "SQ": IndexIVFScalarQuantizer, "RaBitQ": IndexIVFRaBitQ}
    index = object.__new__(next(kind for start, kind in kinds.items() if codes.startswith(start)))
    index._begin(d, metric, _Held(d, _metric_of(metric), text))
    index._describe(int(words[place][3:] or 0), 1)
    if place > 0:
        index = object.__new__(IndexPreTransform)._wrap(d, index)
    if words[-1] == "RFlat":
        index = object.__new__(IndexRefineFlat)._wrap(index, 1.0)
    return index


_kinds = {kind.__name__: kind for kind in (IndexFlat, IndexScalarQuantizer, IndexIVFFlat, IndexIVFPQ, IndexIVFScalarQuantizer)}


def write_index(index: Index, fname: FilePath) -> None:
    """Writes an index of Faiss that `read_index` here and there reads; docs/faiss.md says what is not written."""
    index._require_outermost()
    held = index._held
    if held.index is None:
        raise InvalidArgument(f"this {type(index).__name__} has {'no rows' if held.is_trained else 'not been trained'}: there is nothing to write")
    with tempfile.TemporaryDirectory() as folder:
        held.index.save(f"{folder}/x.gknn", threads=_threads)
        inner = _inverted_in(index)
        maps = _core.FaissMap
        map_ = maps.id_map2 if isinstance(index, IndexIDMap2) else maps.id_map if isinstance(index, IndexIDMap) else maps.where_needed
        nprobe, k_factor = 1 if inner is None else inner.nprobe, max(1.0, _k_factor_of(index))
        _core.export_faiss(f"{folder}/x.gknn", str(fname), nprobe, k_factor, map_, run_of(_threads, None, None))


def read_index(fname: FilePath, io_flags: int = 0) -> Any:
    """Reads what Faiss or `write_index` wrote, with nprobe and k_factor; into memory, whatever the flags."""
    facts = _core.describe_faiss(str(fname))
    with tempfile.TemporaryDirectory() as folder:
        _core.import_faiss(str(fname), f"{folder}/x.gknn", run_of(_threads, None, None))
        opened = _index.open(f"{folder}/x.gknn", threads=_threads)
    # gigaknn's scalar codes are of rows around their mean: Faiss has that before the lists.
    kind = re.sub(r"IndexPreTransform\((CenteringTransform \d+ -> \d+, )?(?=IndexIVFScalarQuantizer)", "(", facts.kind)
    names = re.findall(r"Index\w+", kind)
    place = next(i for i, name in enumerate(names) if name in _kinds)
    metric = METRIC_INNER_PRODUCT if opened.metric == "inner_product" else METRIC_L2
    held = _Held(facts.cols, opened.metric, "Flat" if opened.kind == "flat" else "read")
    held.index, held.next_id = opened, opened.next_id
    index = object.__new__(_kinds[names[place]])
    index._begin(facts.cols, metric, held)
    if isinstance(index, IndexIVF):
        index._describe(facts.lists, facts.nprobe)
    for name in reversed(names[:place]):
        if name == "IndexPreTransform":
            index = object.__new__(IndexPreTransform)._wrap(facts.cols, index)
        elif name in ("IndexRefine", "IndexRefineFlat"):
            index = object.__new__(IndexRefineFlat if name == "IndexRefineFlat" else IndexRefine)._wrap(index, facts.k_factor)
        else:
            index = object.__new__(IndexIDMap2 if name == "IndexIDMap2" else IndexIDMap)._wrap(index)
    return index


def serialize_index(index: Index) -> npt.NDArray[np.uint8]:
    """What `write_index` writes, as an array of bytes."""
    with tempfile.TemporaryDirectory() as folder:
        write_index(index, f"{folder}/x.faiss")
        return np.fromfile(f"{folder}/x.faiss", np.uint8)


def deserialize_index(data: npt.ArrayLike) -> Any:
    """The index of `serialize_index`."""
    with tempfile.TemporaryDirectory() as folder:
        np.asarray(data, np.uint8).tofile(f"{folder}/x.faiss")
        return read_index(f"{folder}/x.faiss")


# ---- without an index


def normalize_L2(x: Floats) -> None:
    """Divides each row by its length, in place; x [n, d] float32. Rows of zeros stay."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2:
        raise InvalidArgument("x must be an array [n, d] of float32, which is changed")
    lengths = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64))[:, None]
    x /= np.where(lengths == 0, 1, lengths).astype(np.float32)


def knn(xq: npt.ArrayLike, xb: npt.ArrayLike, k: Whole, metric: int = METRIC_L2) -> tuple[Floats, Integers]:
    """(D, I), both [q, k]: the nearest rows of `xb`, exactly."""
    xb = np.ascontiguousarray(xb, dtype=np.float32)
    index = IndexFlat(xb.shape[-1], metric)
    index.add(xb)
    return index.search(xq, k)


def pairwise_distances(xq: npt.ArrayLike, xb: npt.ArrayLike, metric: int = METRIC_L2, metric_arg: float = 0) -> Floats:
    """The distances [q, n] of each query to each row of `xb`."""
    xb = np.ascontiguousarray(xb, dtype=np.float32)
    xq = _floats(xq, xb.shape[-1], "xq")
    if 0 in (len(xq), len(xb)):
        return np.empty((len(xq), len(xb)), np.float32)
    distances, ids = _search.knn(xq, xb, len(xb), metric=_metric_of(metric), threads=_threads)
    result = np.empty_like(distances)
    np.put_along_axis(result, ids, distances, axis=1)
    return result


def vector_to_array(v: npt.ArrayLike) -> Array:
    """What Faiss has in vectors of C++ are arrays here already: `v` itself."""
    return np.asarray(v)


class Kmeans:
    """k-means, of d dimensions and k clusters.

    Parameters
    ----------
    niter, nredo, seed : int
    spherical : bool
        Rows count by direction; centroids are of length 1.
    max_points_per_centroid : int
        Of larger sets so many times k rows are drawn.
    verbose : bool
        Prints the objective.
    gpu : bool or int
        The first GPU, or so many.

    Attributes
    ----------
    centroids : array [k, d]
    obj : array [rounds]
        The sum of squared distances (spherical: of cosines) before each round, by weight, of the rows that are drawn.
    index : IndexFlat
        Of the centroids.
    """

    def __init__(
        self,
        d: int,
        k: Whole,
        *,
        niter: int = 25,
        nredo: int = 1,
        verbose: bool = False,
        spherical: bool = False,
        seed: int = 1234,
        max_points_per_centroid: int = 256,
        min_points_per_centroid: int = 39,
        gpu: bool | int = False,
        **refused: Any,
    ) -> None:
        if refused:
            raise Unsupported(f"Kmeans takes no {', '.join(refused)}: gigaknn has nothing in its place")
        self.d, self.k, self.niter, self.nredo, self.verbose, self.spherical, self.seed = d, k, niter, nredo, verbose, spherical, seed
        self.max_points_per_centroid, self.gpu = max_points_per_centroid, gpu
        self.centroids: Any = None
        self.obj: Any = None
        self.index: Any = None

    def train(self, x: npt.ArrayLike, weights: npt.ArrayLike | None = None, init_centroids: None = None) -> float:
        """Finds the centroids of `x` [n, d]; returns the last objective."""
        if init_centroids is not None:
            raise Unsupported("Kmeans takes no init_centroids: gigaknn has nothing in its place")
        x = _floats(x, self.d)
        weights = np.ones(len(x), np.float32) if weights is None else np.ascontiguousarray(weights, dtype=np.float32)
        if weights.shape != (len(x),):
            raise InvalidArgument(f"weights must be one for each of the {len(x)} rows, got shape {list(weights.shape)}")
        # Drawn as Faiss does, whatever weights rows have: those of gigaknn.kmeans stand for others.
        most = self.k * self.max_points_per_centroid
        if len(x) > most:
            drawn = np.sort(np.random.default_rng(self.seed).choice(len(x), most, replace=False))
            x, weights = x[drawn], weights[drawn]
        options = {"metric": "cosine" if self.spherical else "l2", "iterations": self.niter, "rows_per_cluster": 0, "weights": weights, "labels": False}
        device = ",".join(f"cuda:{i}" for i in range(max(1, int(self.gpu)))) if self.gpu else "cpu"
        best = None
        for seed in range(self.seed, self.seed + self.nredo):
            found = _kmeans.kmeans(x, self.k, seed=seed, device=device, threads=_threads, **options)
            objective = np.array([done.objective for done in found.rounds])
            if best is None or objective[-1] < best[-1]:
                best, self.centroids = objective, found.centroids
        self.obj = np.sum(weights, dtype=np.float64) - best if self.spherical else best
        if self.verbose:
            print(f"objective {self.obj[-1]:g} after {len(self.obj)} rounds")
        self.index = IndexFlatIP(self.d) if self.spherical else IndexFlatL2(self.d)
        self.index.add(self.centroids)
        return self.obj[-1]

    def assign(self, x: npt.ArrayLike) -> tuple[Floats, Integers]:
        """(D [n], I [n]): the nearest centroid of each row."""
        if self.index is None:
            raise InvalidArgument("should train before assigning")
        distances, ids = self.index.search(x, 1)
        return distances.ravel(), ids.ravel()


# ---- GPUs


class StandardGpuResources:
    """Nothing: gigaknn needs none."""


def get_num_gpus() -> int:
    """GPUs that gigaknn may use."""
    return sum(name.startswith("cuda") for name in devices())


def index_cpu_to_gpu(provider: object, device: Whole, index: Index, options: object = None) -> Any:
    """A copy of the index that GPU number `device` searches."""
    return _on_device(index, f"cuda:{whole(device, 'device')}")


def index_cpu_to_all_gpus(index: Index, co: object = None, ngpu: int = -1) -> Any:
    """A copy of the index that several GPUs search."""
    count = get_num_gpus() if ngpu == -1 else ngpu
    return _on_device(index, ",".join(f"cuda:{i}" for i in range(max(1, count))))


def index_gpu_to_cpu(index: Index) -> Any:
    """A copy of the index that the CPU searches."""
    return _on_device(index, "cpu")


def _on_device(index, device):
    moved = copy.deepcopy(index)
    moved._held.device = device
    moved._held.reopen()
    return moved
