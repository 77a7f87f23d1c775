"""Masks of NumPy's, which the library would not see."""

import itertools

import numpy as np

from ._errors import InvalidArgument

_deepest = 3  # lists within lists: rows of numbers have two


def refuse_masked(x, name):
    """A mask would be dropped, and what it hides be used: of an array, or of one within lists."""
    if _has_masked(x):
        raise InvalidArgument(f"{name} has masked values, which gigaknn would not see: leave these rows out, or fill them (numpy.ma.filled)")


def _has_masked(x):
    if not isinstance(x, (list, tuple)):
        return isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x)
    level = x
    for _ in range(_deepest):
        kinds = set(map(type, level))  # of numbers one or two: the numbers themselves are not looked at one by one
        if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
            return any(isinstance(one, np.ma.MaskedArray) and np.ma.is_masked(one) for one in level)
        if not kinds or not all(issubclass(kind, (list, tuple)) for kind in kinds):
            return False
        level = list(itertools.chain.from_iterable(level))
    return False
