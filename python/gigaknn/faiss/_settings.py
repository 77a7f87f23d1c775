"""Metrics by Faiss's numbers, how many threads calls use, and what parameters can be set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._arguments import whole
from .._core import available_threads
from .._errors import InvalidArgument, Unsupported
from .._masked import refuse_masked

if TYPE_CHECKING:
    from .._types import Whole

METRIC_INNER_PRODUCT, METRIC_L2, METRIC_L1, METRIC_Linf = 0, 1, 2, 3
_metrics = {METRIC_INNER_PRODUCT: "inner_product", METRIC_L2: "l2", METRIC_L1: "l1", METRIC_Linf: "linf"}
_threads = None


class Parameters:
    """Of the attributes those of `_settable` are set to anything; others that there are stay what they are, and are set to that alone; there are no more."""

    _settable: frozenset[str] = frozenset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or name in self._settable:
            return super().__setattr__(name, value)
        kept = hasattr(self, name)
        if kept and np.array_equal(getattr(self, name), value):
            return
        told = f"stays {getattr(self, name)!r}, got {value!r}" if kept else "is not set"
        raise AttributeError(
            f"gigaknn.faiss: {name} of {type(self).__name__} {told}: gigaknn has nothing that would read it; there {'is' if len(self._settable) == 1 else 'are'} {', '.join(sorted(self._settable))}"
        )


def omp_set_num_threads(n: Whole) -> None:
    """So many threads from now on, of every call of this module."""
    global _threads
    if whole(n, "n") < 1:
        raise InvalidArgument(f"n must be at least 1, got {n}")
    _threads = int(n)


def omp_get_max_threads() -> int:
    """Threads that a call uses."""
    return available_threads() if _threads is None else _threads


def threads():
    """What `omp_set_num_threads` said, or None."""
    return _threads


def metric_of(metric):
    if metric not in _metrics:
        raise Unsupported(f"metric {metric!r} is not built, allowed: METRIC_L2, METRIC_INNER_PRODUCT; METRIC_L1 and METRIC_Linf of IndexFlat")
    return _metrics[metric]


def numbers(values, dtype, name):
    """As an array of a type, dense, as Faiss takes them."""
    refuse_masked(values, name)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=dtype)


def floats(x, d, name="x"):
    x = numbers(x, np.float32, name)
    if x.ndim != 2 or x.shape[1] != d:
        raise InvalidArgument(f"{name} must be of shape [n, {d}], got {list(x.shape)}")
    return x
