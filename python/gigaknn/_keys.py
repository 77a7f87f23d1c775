"""Names that the user's rows have, carried into results."""

import numpy as np

from ._errors import InvalidArgument


def keys_of(keys, n, name="keys"):
    """The keys of n rows as a read-only array [n] of their own; numbers, and arrays of NumPy's, keep their type, all else is objects. None of None."""
    if keys is None:
        return None
    array = np.asanyarray(keys).copy() if hasattr(keys, "__array__") else _array_of(list(keys))
    if array.shape != (n,):
        raise InvalidArgument(f"{name} must be one for each of the {n} rows, got shape {list(array.shape)}")
    array.flags.writeable = False
    return array


def _array_of(keys):
    array = np.fromiter(keys, dtype=object, count=len(keys))
    if keys and all(type(key) is int for key in keys):
        try:
            return array.astype(np.int64)
        except OverflowError:
            pass
    return array


def _objects_of(keys):
    """The keys as objects. `astype` makes plain numbers of nanoseconds."""
    return np.fromiter(keys, dtype=object, count=len(keys)) if keys.dtype.kind in "mM" else keys.astype(object)


def keys_at(keys, ids):
    """An array of the shape of `ids`: their keys, None where an id is -1 (the array is then one of objects)."""
    present = ids >= 0
    if present.all():
        return keys[ids]
    result = np.full(ids.shape, None, dtype=object)
    result[present] = _objects_of(keys[ids[present]])
    return result


def keys_joined(first, second):
    """The keys of two sets of rows, of objects where they are not of one kind: a number does not become text."""
    if first.dtype.kind != second.dtype.kind:
        first, second = _objects_of(first), _objects_of(second)
    return np.concatenate((first, second))


def with_keys(result, keys):
    """`result`, a tuple that has ids, with their keys."""
    if keys is not None:
        result.keys = keys_at(keys, result.ids)
    return result
