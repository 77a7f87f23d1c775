"""Inverted lists, of every code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core
from .._arguments import whole
from .._errors import InvalidArgument, Unsupported
from ._held import Held
from ._indexes import Index, IndexFlat
from ._settings import METRIC_INNER_PRODUCT, METRIC_L2, Parameters, metric_of

if TYPE_CHECKING:
    from .._types import Whole


class ClusteringParameters(Parameters):
    """Of k-means: `niter` and `seed` count.

    `verbose` and `min_points_per_centroid` may be anything: what is trained does not depend on them, in Faiss either. The others stay Faiss's defaults, to which scripts may set
    them; `spherical` is True of an index of METRIC_INNER_PRODUCT, as centroids are here.
    """

    _settable = frozenset({"niter", "seed", "verbose", "min_points_per_centroid"})
    verbose = False
    min_points_per_centroid = 39
    max_points_per_centroid = 256
    nredo = 1
    spherical = int_centroids = update_index = frozen_centroids = False

    def __init__(self) -> None:
        self.niter, self.seed = 10, 1234


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
        self._begin(whole(d, "d"), metric, Held(d, metric_of(metric), recipe))
        self._describe(nlist, 1, quantizer)

    def _describe(self, nlist, nprobe, quantizer=None):
        self.nprobe, self.cp = nprobe, ClusteringParameters()
        vars(self.cp).update(spherical=self.metric_type == METRIC_INNER_PRODUCT)
        vars(self).update(nlist=nlist, quantizer=IndexFlat(self.d, self.metric_type) if quantizer is None else quantizer)

    def _inverted(self):
        return self

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
    ScalarQuantizer.QT_8bit: "SQ8d",
    ScalarQuantizer.QT_8bit_uniform: "SQ8d",
    ScalarQuantizer.QT_6bit: "SQ6",
    ScalarQuantizer.QT_4bit: "SQ4",
    ScalarQuantizer.QT_4bit_uniform: "SQ4",
    ScalarQuantizer.QT_fp16: "SQfp16",
    ScalarQuantizer.QT_bf16: "SQbf16",
}


class IndexIVFScalarQuantizer(IndexIVF):
    """Of rows of 8, 6 or 4 bits a dimension, by values that are fitted to each dimension of what centroids leave, or of 16 (QT_fp16, QT_bf16).

    `by_residual` counts for QT_8bit_uniform alone: without residuals these are bytes by one step for all dimensions (`SQ8` of gigaknn.build), which are searched
    faster.
    """

    def __init__(self, quantizer: IndexFlat, d: int, nlist: Whole, qtype: int, metric: int = METRIC_L2, by_residual: bool = True) -> None:
        if qtype not in _scalar_codes:
            raise Unsupported(f"scalar codes are QT_8bit, QT_6bit, QT_4bit, QT_8bit_uniform, QT_4bit_uniform, QT_fp16 and QT_bf16, got {qtype!r}")
        bytes_by_one_step = qtype == ScalarQuantizer.QT_8bit_uniform and not by_residual
        self._begin_inverted(quantizer, d, nlist, metric, "SQ8" if bytes_by_one_step else _scalar_codes[qtype])


class IndexIVFRaBitQ(IndexIVF):
    """Of RaBitQ's codes of a bit a dimension, of rows that are rotated first."""

    def __init__(self, quantizer: IndexFlat, d: int, nlist: Whole, metric: int = METRIC_L2) -> None:
        self._begin_inverted(quantizer, d, nlist, metric, "RaBitQ")
