"""Names that the user's rows have, carried into results."""

import numbers

import numpy as np

from ._errors import InvalidArgument
from ._masked import refuse_masked


def keys_of(keys, n, name="keys"):
    """The keys of n rows as a read-only array [n] of their own; numbers, and arrays of NumPy's, keep their type, all else is objects. None of None."""
    if keys is None:
        return None
    array = _as_array(in_order(keys, name))
    if array.shape != (n,):
        raise InvalidArgument(f"{name} must be one for each of the {n} rows, got shape {list(array.shape)}")
    array.flags.writeable = False
    return array


def in_order(keys, name="keys"):
    """`keys`, one behind the other."""
    if isinstance(keys, (str, bytes, set, frozenset)) or not (hasattr(keys, "__array__") or hasattr(keys, "__iter__")):
        what = "a set, which has no order" if isinstance(keys, (set, frozenset)) else repr(keys)
        raise TypeError(f"{name} must be a list or an array of keys, got {what}")
    return keys


def _as_array(keys):
    refuse_masked(keys, "keys")
    return np.asanyarray(keys).copy() if hasattr(keys, "__array__") else _array_of(list(keys))


def are_keys(values):
    """Whether rows are named by these, an array or a sequence: whole numbers are ids."""
    if hasattr(values, "__array__") and not hasattr(getattr(values, "dtype", None), "kind"):  # Arrow's or Torch's, whose scalars are no numbers
        values = np.asarray(values)
    if hasattr(values, "dtype") and values.dtype.kind != "O":
        return values.dtype.kind not in "iub"
    return hasattr(values, "__len__") and not all(isinstance(value, (numbers.Integral, np.bool_)) for value in values)


def is_empty(values):
    """Whether there is nothing in an array of any type, a sequence or a set."""
    if isinstance(values, (str, bytes)):
        return False
    return np.size(values) == 0 if hasattr(values, "dtype") else hasattr(values, "__len__") and len(values) == 0


class Places:
    """Which row a key is of: the keys [next_id] of all ids, of which `ids` are there."""

    def __init__(self, keys, ids):
        self._keys, self._ids = keys, ids
        named = _objects_of(keys[ids])
        try:
            self._id_of = dict(zip(named, ids.tolist()))
        except TypeError as error:
            raise InvalidArgument(f"rows are not found by these keys: {error}") from None
        self._shared = len(self._id_of) < len(ids)

    def ids_of(self, keys, distinct=False):
        """[m] int64; with `distinct` no key twice."""
        if isinstance(keys, (str, bytes)):
            raise TypeError(f"keys must be a list or an array of keys, got {keys!r}")
        asked = _as_array(keys)
        if asked.ndim != 1:
            raise InvalidArgument(f"keys must have 1 dimension, got shape {list(asked.shape)}")
        asked = list(_objects_of(asked))
        try:
            found = [self._id_of[key] for key in asked]
        except KeyError as unknown:
            raise InvalidArgument(f"no row has the key {unknown.args[0]!r}") from None
        except TypeError as error:
            raise InvalidArgument(f"rows are not found by these keys: {error}") from None
        if self._shared:
            self._require_one_row_each(set(found))
        if distinct and len(set(found)) < len(found):
            seen = set()
            twice = next(key for key in asked if key in seen or seen.add(key))
            raise InvalidArgument(f"the key {twice!r} is there twice")
        return np.array(found, dtype=np.int64)

    def _require_one_row_each(self, found):
        for key, id_ in zip(_objects_of(self._keys[self._ids]), self._ids.tolist()):
            last = self._id_of[key]
            if last != id_ and last in found:
                raise InvalidArgument(f"the key {key!r} is of several rows, {id_} and {last} among them: say their ids")


def _array_of(keys):
    array = np.fromiter(keys, dtype=object, count=len(keys))
    if keys and all(isinstance(key, (float, np.floating)) for key in keys):
        return np.array(keys)
    if keys and all(isinstance(key, (int, np.integer)) and not isinstance(key, bool) for key in keys):
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
