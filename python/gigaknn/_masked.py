"""Masks of NumPy's, which the library would not see."""

import numpy as np

from ._errors import InvalidArgument


def refuse_masked(x, name):
    """A mask would be dropped, and what it hides be used: of an array, or of one within lists."""
    if _has_masked(x):
        raise InvalidArgument(f"{name} has masked values, which gigaknn would not see: leave these rows out, or fill them (numpy.ma.filled)")


def _has_masked(x):
    if not isinstance(x, (list, tuple)):
        return isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x)
    kinds = set(map(type, x))  # of numbers one or two: the numbers themselves are not looked at
    return any(issubclass(kind, (list, tuple, np.ma.MaskedArray)) for kind in kinds) and any(map(_has_masked, x))
