"""What all indexes have, and those of full vectors without lists."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arguments import number, whole, whole_array
from .._errors import InvalidArgument, Unsupported
from ._held import Held
from ._selectors import IDSelector, IDSelectorAll, IDSelectorBatch, SearchParameters
from ._settings import METRIC_INNER_PRODUCT, METRIC_L2, floats, metric_of, threads

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._types import Floats, Integers, Whole

farthest = np.finfo(np.float32).max  # Faiss's, beside label -1


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
    _within_map = False  # an IndexIDMap around it has given labels to its rows

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
        x = floats(x, self.d)
        self._require_outermost()
        inner = self._inverted()
        if inner is not None:
            self._held.train(x, inner.nlist, inner.cp.niter, inner.cp.seed)

    def add(self, x: npt.ArrayLike) -> None:
        """Adds rows, labelled by the numbers behind the largest label that there was: their own where none was given or removed."""
        self._add(x, None)

    def add_with_ids(self, x: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Adds rows, labelled by `ids` [n]: each >= 0, and new. Refused without lists: an IndexIDMap has labels of its own."""
        if self._numbers_rows():
            raise Unsupported(f"{type(self).__name__} labels rows by their number: put an IndexIDMap around it")
        self._add(x, ids)

    def search(self, x: npt.ArrayLike, k: Whole, *, params: SearchParameters | None = None, D: Floats | None = None, I: Integers | None = None) -> tuple[Floats, Integers]:
        """(D [n, k] float32, I [n, k] int64): the nearest rows of each of `x` [n, d]."""
        x, k = floats(x, self.d), whole(k, "k")
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
        x = floats(x, self.d)
        options = self._searching(params)
        if self.ntotal == 0:
            return np.zeros(len(x) + 1, np.uint64), np.empty(0, np.float32), np.empty(0, np.int64)
        with np.errstate(over="ignore"):
            limit = np.float32(number(thresh, "thresh"))
        offsets, distances, ids = self._held.index.search_radius(self._held.of_its_type(x), float(limit), **options)
        within = distances > limit if self.metric_type == METRIC_INNER_PRODUCT else distances < limit
        return np.concatenate(([0], np.cumsum(within)))[offsets].astype(np.uint64), distances[within], ids[within]

    def assign(self, x: npt.ArrayLike, k: Whole = 1, labels: Integers | None = None) -> Integers:
        """The labels that `search` finds, [n, k]."""
        return self.search(x, k, I=labels)[1]

    def reconstruct(self, key: Whole, x: Floats | None = None) -> Floats:
        """The row [d] of a label, or what its code is decoded to."""
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
        """Removes the rows of these labels, an array or a selector, as far as they are there; returns how many. Refused without lists, but of IndexFlat, and within an IndexIDMap: rows behind would move up."""
        if self._numbers_rows():
            raise Unsupported(f"{type(self).__name__} labels rows by their number, which would move where one goes: put an IndexIDMap around it")
        return self._remove(x)

    def _remove(self, x):
        there = self._held.ids()
        gone = there[self._members(there, x)]
        if len(gone):
            self._held.index.remove(gone)
        return len(gone)

    @staticmethod
    def _members(labels, x):
        """[n] bool: which of the labels an array or a selector names."""
        return (x if isinstance(x, IDSelector) else IDSelectorBatch(x))._members(labels)

    def reset(self) -> None:
        """Removes all rows; what is trained stays."""
        self._remove(IDSelectorAll())
        self._held.next_id = 0

    def _add(self, x, ids):
        x = floats(x, self.d)
        self._require_outermost()
        if not self.is_trained:
            raise InvalidArgument(f"{type(self).__name__} must be trained before rows are added")
        self._held.add(x, ids)

    def _searching(self, params):
        """Arguments of a search by gigaknn."""
        self._require_outermost()
        if not self.is_trained:
            raise InvalidArgument(f"{type(self).__name__} must be trained before it is searched")
        inner = self._inverted()
        nprobe = None if inner is None else inner.nprobe
        # Whole times k, at least as many as Faiss takes; more than all rows there are not.
        options = {"refine": math.ceil(min(self._k_factor(), max(1, self.ntotal))), "threads": threads()}
        if params is not None:
            if getattr(params, "nprobe", None) is not None:
                nprobe = params.nprobe
            if params.sel is not None:
                options.update(params.sel._sets(self._held.ids))
        return {**options, "nprobe": nprobe}

    def _inverted(self):
        """The IndexIVF within, or None."""
        return None

    def _numbers_rows(self):
        """Whether labels are numbers of rows."""
        return self._inverted() is None and not self._within_map

    def _k_factor(self):
        """How many times k candidates are compared by full vectors; 0: none."""
        return 0.0

    def _require_outermost(self):
        if self._transformed:
            raise Unsupported(f"this {type(self).__name__} holds transformed rows: use the IndexPreTransform around it")

    def _worst(self):
        return -farthest if self.metric_type == METRIC_INNER_PRODUCT else farthest


class IndexFlat(Index):
    """All rows, compared exactly. `add_with_ids` needs an IndexIDMap around it; labels after one that is removed move down."""

    def __init__(self, d: int, metric: int = METRIC_L2) -> None:
        self._begin(whole(d, "d"), metric, Held(d, metric_of(metric), "Flat"))

    def add_with_ids(self, x: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Refused: an IndexIDMap has labels of its own."""
        raise Unsupported(f"{type(self).__name__} labels rows by their number: put an IndexIDMap around it")

    def remove_ids(self, x: npt.ArrayLike | IDSelector) -> int:
        """As `Index.remove_ids`; the rows behind move up. Refused within an IndexIDMap, which removes by its own labels."""
        self._require_outermost()
        if self._within_map:
            raise Unsupported(f"this {type(self).__name__} is within an IndexIDMap, whose labels would move: use that")
        if self._held.recipe != "Flat":  # from a file, within an IndexRefine
            return super().remove_ids(x)
        there = self._held.ids()
        gone = self._members(there, x)
        if gone.any():
            self._held.keep(there[~gone])
        return int(gone.sum())

    def reset(self) -> None:
        """Removes all rows."""
        if self._held.recipe != "Flat":
            return super().reset()
        self._held.index, self._held.next_id = None, 0


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
