"""Rows in Arrow's arrays of lists, read by its C data interface: neither pyarrow nor polars is needed."""

import ctypes

import numpy as np

from ._errors import InvalidArgument, InvalidData

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)

_types = {
    "c": np.int8, "C": np.uint8, "s": np.int16, "S": np.uint16, "i": np.int32, "I": np.uint32, "l": np.int64, "L": np.uint64,
    "e": np.float16, "f": np.float32, "g": np.float64,
}  # fmt: skip


class _Schema(ctypes.Structure):
    pass


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    pass


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    _fields_ = [
        ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Schema))),
        ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Array))),
        ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)),
        ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("private_data", ctypes.c_void_p),
    ]


class _Received:
    """A struct that a stream filled: it is ours to release."""

    def __init__(self, struct):
        self.struct = struct

    def __del__(self):
        if self.struct.release:
            self.struct.release(ctypes.addressof(self.struct))


class _Lent:
    """A struct in a capsule, which releases it when it dies."""

    def __init__(self, capsule, name, kind):
        self.capsule = capsule
        self.struct = kind.from_address(_capsule_pointer(capsule, name))


class _Memory:
    """Memory of Arrow's as NumPy takes it; the array that NumPy makes of this keeps `owner`."""

    def __init__(self, address, shape, dtype, owner):
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": np.dtype(dtype).str, "data": (address, True)}


def _array_at(address, shape, dtype, owner):
    return np.asarray(_Memory(address, shape, dtype, owner)) if address and 0 not in shape else np.empty(shape, dtype)


def lists_of(x, name):
    """The arrays [n, d] of the chunks of `x`, not copied; None where it is no array of lists of Arrow's, or fails to lend them.

    Throws InvalidData (nulls) and InvalidArgument (lists of several lengths), with the row's number; TypeError (other values).
    """
    of_array, of_stream = hasattr(x, "__arrow_c_array__"), hasattr(x, "__arrow_c_stream__")
    if not (of_array or of_stream) or len(getattr(x, "shape", ())) == 2:  # a table
        return None
    try:
        capsules = x.__arrow_c_array__() if of_array else x.__arrow_c_stream__()
    except Exception:  # pandas' Series without pyarrow, or of what Arrow has no type for: NumPy may read them
        return None
    if of_array:
        schema, arrays = _Lent(capsules[0], b"arrow_schema", _Schema), [_Lent(capsules[1], b"arrow_array", _Array)]
    else:
        schema, arrays = _all_of(_Lent(capsules, b"arrow_array_stream", _Stream), name)
    kind = schema.struct.format.decode()
    if not kind.startswith(("+w:", "+l", "+L")):
        return None
    values = schema.struct.children[0].contents
    value_kind = values.format.decode()
    if value_kind not in _types or values.dictionary:
        raise TypeError(f"{name} has lists of Arrow's type {value_kind!r}; allowed: float32, float16, uint8 and int8 as they are; float64 in a copy, as float32")
    chunks, d, row = [], int(kind[3:]) if kind[1] == "w" else None, 0
    for array in arrays:
        chunk = _rows_of_chunk(array, np.int64 if kind[1] == "L" else np.int32, _types[value_kind], d, name, row)
        row += len(chunk)
        if len(chunk):
            d = chunk.shape[1]
            chunks.append(chunk)
    return chunks or [np.empty((0, d or 0), _types[value_kind])]


def _all_of(lent, name):
    """The schema of a stream, and its arrays."""
    stream = lent.struct

    def received(get, struct):
        if get(ctypes.addressof(stream), struct) != 0:
            reason = stream.get_last_error(ctypes.addressof(stream))
            text = ctypes.string_at(reason).decode(errors="replace") if reason else "no reason is given"
            raise InvalidData(f"{name}: Arrow's stream failed: {' '.join(text.splitlines())}")
        return _Received(struct)

    schema, arrays = received(stream.get_schema, _Schema()), []
    while (array := received(stream.get_next, _Array())).struct.release:
        arrays.append(array)
    return schema, arrays


def _rows_of_chunk(owner, offset_type, dtype, d, name, first_row):
    lists = owner.struct
    n = lists.length
    null = _first_null(lists, lists.offset, n, owner)
    if null is not None:
        raise InvalidData(f"{name}: row {first_row + null} is null")
    if lists.n_buffers == 1:  # lists of a fixed size
        begin = lists.offset * d
    else:
        offsets = _array_at(lists.buffers[1], (lists.offset + n + 1,), offset_type, owner)[lists.offset :]
        lengths = np.diff(offsets) if n else offsets[:0]
        begin = int(offsets[0]) if n else 0
        d = int(lengths[0]) if n and d is None else d or 0
        other = np.flatnonzero(lengths != d)
        if len(other):
            raise InvalidArgument(f"{name}: row {first_row + other[0]} has {lengths[other[0]]} values, row 0 has {d}")
    values = lists.children[0].contents
    begin += values.offset
    null = _first_null(values, begin, n * d, owner)
    if null is not None:
        raise InvalidData(f"{name}: row {first_row + null // d} has a null")
    address = values.buffers[1]
    return _array_at(address and address + begin * np.dtype(dtype).itemsize, (n, d), dtype, owner)


def _first_null(array, begin, count, owner):
    """The first of `count` entries from `begin` on that is null."""
    if array.null_count == 0 or count == 0 or not array.buffers[0]:
        return None
    bits = _array_at(array.buffers[0], ((begin + count + 7) // 8,), np.uint8, owner)
    step = 1 << 20  # bytes; a bit becomes a byte here
    for at in range(begin // 8, len(bits), step):
        first = max(begin - 8 * at, 0)
        valid = np.unpackbits(bits[at : at + step], bitorder="little")[first : begin + count - 8 * at]
        if not valid.all():
            return 8 * at + first - begin + int(np.argmin(valid))
    return None
