"""bfloat16, which NumPy has not: two bytes a number, the upper half of a float32. Its arrays are those of ml_dtypes, where that is installed; in the library they are
words, uint16, that are called otherwise."""

import numpy as np

from . import _core
from ._errors import Unsupported


def is_bfloat16(x):
    """Of arrays of any library."""
    return str(getattr(x, "dtype", "")).rpartition(".")[2] == "bfloat16"


def dtype_of_numpy():
    try:
        import ml_dtypes
    except ImportError:
        raise Unsupported("NumPy has no bfloat16 of its own: ml_dtypes has, which is not installed") from None
    return np.dtype(ml_dtypes.bfloat16)


def array_of(words):
    """The array of words that the library gives: of ml_dtypes' type, not copied, or without that the same numbers in float32."""
    try:
        return words.view(dtype_of_numpy())
    except Unsupported:
        return (words.astype(np.uint32) << 16).view(np.float32)


def rounded(x):
    """Rows of float32 as the library takes them: each number is rounded to the nearest, to the even one of two."""
    bits = x.view(np.uint32)
    words = ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)
    words[np.isnan(x)] = 0x7FC0
    return _core.view_bfloat16(words)
