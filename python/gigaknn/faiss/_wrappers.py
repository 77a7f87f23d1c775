"""Indexes around others, and what looks through them."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from .._errors import InvalidArgument, Unsupported
from ._indexes import Index
from ._inverted import IndexIVF, IndexIVFFlat

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._types import Integers


class IndexPreTransform(Index):
    """Rows that are transformed before they stand in lists: from `index_factory` and `read_index`. `index` holds them."""

    def _wrap(self, d, index):
        self._begin(d, index.metric_type, index._held)
        self._held.d = d
        vars(self).update(index=index)
        index._transformed = True
        return self

    def _inverted(self):
        return self.index._inverted()


class IndexRefine(Index):
    """Full vectors behind what lists hold: `k_factor` times k candidates are compared by these. From `read_index`, where they are of fewer bits than IndexRefineFlat has.

    Attributes
    ----------
    base_index : IndexIVF or IndexPreTransform
        Its own searches compare no candidates again.
    k_factor : float
        At least 1; gigaknn compares the next whole number times k. Faiss reads files of 1000 at most.
    """

    _settable = {"verbose", "k_factor"}

    def _wrap(self, base_index, k_factor):
        self._begin(base_index.d, base_index.metric_type, base_index._held)
        self.k_factor = k_factor
        vars(self).update(base_index=base_index)
        return self

    def _inverted(self):
        return self.base_index._inverted()

    def _k_factor(self):
        if not 1 <= self.k_factor < math.inf:
            raise InvalidArgument(f"k_factor must be finite and at least 1, got {self.k_factor}")
        return float(self.k_factor)


class IndexRefineFlat(IndexRefine):
    """The same of float32."""

    def __init__(self, base_index: Index) -> None:
        if not isinstance(base_index, (IndexIVF, IndexPreTransform)) or isinstance(base_index, IndexIVFFlat) or base_index._transformed:
            raise Unsupported(f"IndexRefineFlat stands behind IndexIVFPQ, IndexIVFScalarQuantizer or IndexPreTransform, got {type(base_index).__name__}")
        if base_index.is_trained:
            raise Unsupported("IndexRefineFlat stands behind an index that is not trained yet")
        base_index._held.recipe += ",RFlat"
        self._wrap(base_index, 1.0)


class IndexIDMap(Index):
    """Labels of the caller's own around another index."""

    def __init__(self, index: Index) -> None:
        if index.ntotal:
            raise InvalidArgument("an IndexIDMap is put around an index without rows")
        self._wrap(index)

    def _wrap(self, index):
        self._begin(index.d, index.metric_type, index._held)
        vars(self).update(index=index)
        index._within_map = True
        return self

    def _inverted(self):
        return self.index._inverted()

    def _numbers_rows(self):
        return False

    def _k_factor(self):
        return self.index._k_factor()

    @property
    def id_map(self) -> Integers:
        """Labels [n], ascending."""
        return self._held.ids()

    def add(self, x: npt.ArrayLike) -> None:
        """Refused: rows need labels."""
        raise Unsupported(f"{type(self).__name__} has labels of its own: add_with_ids")


class IndexIDMap2(IndexIDMap):
    """The same: rows are found by label in both."""


def extract_index_ivf(index: Index) -> IndexIVF:
    """The IndexIVF within."""
    found = index._inverted()
    if found is None:
        raise InvalidArgument(f"there is no IndexIVF in {type(index).__name__}")
    return found


def try_extract_index_ivf(index: Index) -> IndexIVF | None:
    """The IndexIVF within, or None."""
    return index._inverted()


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
        refined = index.index if isinstance(index, IndexIDMap) else index
        if name == "nprobe":
            extract_index_ivf(index).nprobe = int(value)
        elif name == "k_factor_rf" and isinstance(refined, IndexRefine):
            refined.k_factor = float(value)
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
