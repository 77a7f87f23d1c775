"""What needs no index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _search
from .._errors import InvalidArgument
from .._masked import refuse_masked
from ._indexes import IndexFlat
from ._settings import METRIC_L2, floats, metric_of, numbers, threads

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._types import Array, Floats, Integers, Whole


def normalize_L2(x: Floats) -> None:
    """Divides each row by its length, in place; x [n, d] float32. Rows of zeros stay."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2:
        raise InvalidArgument("x must be an array [n, d] of float32, which is changed")
    refuse_masked(x, "x")
    lengths = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64))[:, None]
    x[:] = x / np.where(lengths == 0, 1, lengths)


def knn(xq: npt.ArrayLike, xb: npt.ArrayLike, k: Whole, metric: int = METRIC_L2) -> tuple[Floats, Integers]:
    """(D, I), both [q, k]: the nearest rows of `xb`, exactly."""
    xb = numbers(xb, np.float32, "xb")
    index = IndexFlat(xb.shape[-1], metric)
    index.add(xb)
    return index.search(xq, k)


def pairwise_distances(xq: npt.ArrayLike, xb: npt.ArrayLike, metric: int = METRIC_L2, metric_arg: float = 0) -> Floats:
    """The distances [q, n] of each query to each row of `xb`."""
    xb = numbers(xb, np.float32, "xb")
    xq = floats(xq, xb.shape[-1], "xq")
    if 0 in (len(xq), len(xb)):
        return np.empty((len(xq), len(xb)), np.float32)
    distances, ids = _search.knn(xq, xb, len(xb), metric=metric_of(metric), threads=threads())
    result = np.empty_like(distances)
    np.put_along_axis(result, ids, distances, axis=1)
    return result


def vector_to_array(v: npt.ArrayLike) -> Array:
    """What Faiss has in vectors of C++ are arrays here already: `v` itself."""
    return np.asarray(v)
