"""Selectors of labels, and what one search is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._arguments import whole
from ._settings import Parameters, numbers

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._types import Whole

most_label = 2**61


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
        self.indices = np.unique(numbers(indices, np.int64, "indices"))

    def _members(self, ids):
        return np.isin(ids, self.indices)

    def _possible(self):
        """Those that an index may have: the others select nothing."""
        return self.indices[(0 <= self.indices) & (self.indices <= most_label)]

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
        self.bits = np.unpackbits(numbers(bitmap, np.uint8, "bitmap"), bitorder="little").astype(bool)

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


class SearchParameters(Parameters):
    """What one search is told: `sel`, labels that count."""

    _settable = frozenset({"sel"})

    def __init__(self, sel: IDSelector | None = None) -> None:
        self.sel = sel


class SearchParametersIVF(SearchParameters):
    """The same, and `nprobe`. `max_codes` stays 0 and `quantizer_params` None, Faiss's defaults."""

    _settable = frozenset({"sel", "nprobe"})
    max_codes = 0
    quantizer_params = None

    def __init__(self, sel: IDSelector | None = None, nprobe: int | None = None) -> None:
        super().__init__(sel)
        self.nprobe = nprobe
