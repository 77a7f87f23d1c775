"""Arguments of Python, as the library takes them; each wrong one is told in one line."""

import math
import numbers
import operator
import os
import re
import sys
import warnings

import numpy as np

from . import _arrow, _core, _device
from ._bfloat16 import is_bfloat16
from ._errors import CopyWarning, InvalidArgument, OutOfMemory
from ._masked import refuse_masked

# ---- values


def whole(value, name, bits=64):
    """`value` as an int that the library's own of so many bits hold."""
    try:
        result = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value}")
    if result.bit_length() >= bits:
        raise InvalidArgument(f"{name} must be a whole number of at most {bits - 1} bits, got one of {result.bit_length()}")
    return result


def neighbors_of(k, queries):
    """`k` of each of the rows `queries` [q, d]: so many that the library can count what is found, which is not to say that memory has it."""
    k = whole(k, "k")
    if k * queries.shape[0] >= 2**48:
        raise OutOfMemory(f"k of {k} for each of {queries.shape[0]} queries is more than memory has")
    return k


def number(value, name):
    """`value` as a float."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgument(f"{name} is beyond all floating-point numbers") from None


def word(value, name):
    """`value`, which must be a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {value!r}")
    return value


def seed_of(seed):
    seed = whole(seed, "seed", 66)
    if not 0 <= seed < 2**64:
        raise InvalidArgument(f"seed must be from 0 to 2**64 - 1, got {seed}")
    return seed


def recall_of(recall, name="recall"):
    recall = number(recall, name)
    if not 0 < recall <= 1:
        raise InvalidArgument(f"{name} must be above 0 and at most 1, got {recall}")
    return recall


def seconds_of(seconds):
    seconds = number(seconds, "seconds")
    if not seconds >= 0:
        raise InvalidArgument(f"seconds must be at least 0, got {seconds}")
    return seconds


# ---- names of files

# What some format of gigaknn's is called by (docs/formats.md), in names that end so.
_suffixes = (
    ".gknn", ".knng", ".faiss", ".fvecs", ".bvecs", ".ivecs", ".fbin", ".hbin", ".bf16bin", ".u8bin", ".i8bin", ".ibin", ".npy",
    ".idx", "-ubyte", ".gz", ".gtbin", ".range", ".h5", ".hdf5", ".txt", ".list", ".json", ".html", ".csv",
)  # fmt: skip


def path_of(path, name="path"):
    """`path` as a string, where bytes that are not UTF-8 are surrogates."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"{name} must be a path, got {path!r}") from None
    if "\0" in text:
        raise InvalidArgument(f"{name} has a byte of 0, as no file's name has: {text!r}")
    return text


def path_to_write(path, suffix, what):
    """The path of a container, of a name that does not say it is something else: others would go by that."""
    text = path_of(path)
    other = next((known for known in _suffixes if known != suffix and text.lower().endswith(known)), None)
    if other is not None:
        raise InvalidArgument(f"{what} is written to a {suffix} file, and {other} is the name of another format, got {text}")
    return text


# ---- how a call runs

_units = {"": 1, **{f"{p}b": 1000**i for i, p in enumerate("kmgtp", 1)}, **{f"{p}{u}": 1024**i for i, p in enumerate("kmgtp", 1) for u in ("", "i", "ib")}, "b": 1}


def bytes_of(memory):
    """Bytes of "4GiB", "500MB", "8G" (GiB, as in coreutils) or a number; 0 of None."""
    if memory is None:
        return 0
    size = 0.0
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9.]+(?:e[+]?[0-9]+)?)\s*([a-z]*)\s*", memory.lower())
        if match and match[2] in _units:
            try:
                size = float(match[1]) * _units[match[2]]
            except ValueError:
                pass
    else:
        size = number(memory, "memory")
    if not (math.isfinite(size) and 1 <= size < 2**62):
        raise InvalidArgument(f"memory must be a number of bytes from 1 to 2**62, or one with a unit: \"8GiB\", \"500MB\"; got {memory!r}")
    return int(size)


class Bar:
    """A bar of tqdm for each stage of a call, which may come again, of as much or of more."""

    _bar = None  # also where there is no tqdm

    def __init__(self):
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ImportError("progress=True needs tqdm (pip install tqdm); a callable(stage, done, total) does not") from None
        self._tqdm = tqdm
        self._stage = None

    def __call__(self, stage, done, total):
        if self._bar is None or (stage, total) != self._stage or done < self._bar.n:
            self.close()
            self._stage = stage, total
            self._bar = self._tqdm(total=total, desc=stage, unit="", unit_scale=True)
        self._bar.update(done - self._bar.n)

    def close(self):
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __del__(self):
        self.close()


_most_threads = 2**16  # no machine has as many, and each has memory of its own


def run_of(threads, memory, progress):
    if threads is None:
        threads = 0
    else:
        threads = whole(threads, "threads", 32)
        if threads < 1:
            raise InvalidArgument(f"threads must be at least 1, got {threads}")
        if threads > _most_threads:
            raise InvalidArgument(f"threads must be at most {_most_threads}, got {threads}")
    if progress is True:
        progress = Bar()
    elif progress is False:
        progress = None
    elif progress is not None and not callable(progress):
        raise TypeError(f"progress must be True, False or callable(stage, done, total), got {progress!r}")
    return _core.Run(threads, bytes_of(memory), progress)


# ---- rows and ids

_allowed = "float32, float16, bfloat16, uint8 and int8 as they are; float64 in a copy, as float32"


def _is_path(x):
    return isinstance(x, (str, os.PathLike))


def rows_anywhere(x, name, stream):
    """As `rows`; those in the memory of a GPU stay there."""
    return rows(x, name, stream) if _device.device_of(x) is None else _device.rows_in_place(x, name, stream)


def device_for(device, *all_rows):
    """What `device` says, or, for None, where the first of the rows are that a GPU has."""
    if device is not None:
        return word(device, "device")
    return next((some.device for some in all_rows if some.device != "cpu"), "cpu")


def rows(x, name, stream=None):
    """The rows [n, d] of an array, of Arrow's lists, of a file or of a list of files; an array is copied where it has to be, with a warning."""
    if hasattr(x, "tocsr"):
        raise InvalidArgument(f"{name} is sparse, and gigaknn has dense rows alone: {name}.toarray()")
    refuse_masked(x, name)
    _device.wait_for_managed(x, stream)
    if _device.device_of(x) is not None:
        there = _device.rows_in_place(x, name, stream)
        warn(f"{name}: rows in the memory of a GPU are copied to the host")
        copy = _core.copy_to_host(there)
        return _core.view_bfloat16(copy) if there.dtype == "bf16" else _core.view(copy)
    if _is_path(x):
        return _core.open_rows([path_of(x, name)])
    if isinstance(x, _core.Rows):
        return x
    if isinstance(x, (list, tuple)):
        if x and all(_is_path(path) for path in x):
            return _core.open_rows([path_of(path, name) for path in x])
        return _rows_of_array(_floats_of(x, name), name)
    chunks = _arrow.lists_of(x, name)
    if chunks is not None:
        return _rows_of_chunks(chunks, name)
    view = _core.view(x)
    if view is not None:
        return view
    if is_bfloat16(x):
        return _rows_of_bfloat16(x, name)
    array = np.asarray(x)
    if array.ndim == 0 and (array.dtype == object or not hasattr(x, "shape")):
        raise TypeError(f"{name} must be rows: an array [n, d], lists of Arrow's, or files; got {'None' if x is None else type(x).__name__}")
    view = _core.view(array)  # of what NumPy alone can read
    return view if view is not None else _rows_of_array(array, name)


def refuse_complex_and_dates(array):
    """Complex numbers and dates, which NumPy makes floats of."""
    if array.dtype.kind in "cmM":
        raise TypeError(f"got {array.dtype}")


def _floats_of(x, name):
    """Numbers as float32."""
    try:
        given = np.asarray(x)
        refuse_complex_and_dates(given)
        with np.errstate(over="ignore"):
            return given.astype(np.float32, copy=False)
    except (TypeError, ValueError) as error:
        lengths = [len(row) if hasattr(row, "__len__") else 0 for row in x] if isinstance(x, (list, tuple)) else []
        other = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
        if other is not None:
            raise InvalidArgument(f"{name}: row {other} has {lengths[other]} values, row 0 has {lengths[0]}") from None
        raise InvalidArgument(f"{name} must be numbers: {error}") from None


def floats(x, name, ndim):
    """Numbers as an array of float32 that is dense in memory; of so many dimensions."""
    refuse_masked(x, name)
    array = np.ascontiguousarray(_floats_of(x, name))
    if array.ndim != ndim:
        raise InvalidArgument(f"{name} must have {ndim} dimension{'s' if ndim > 1 else ''}, got shape {list(array.shape)}")
    return array


def _rows_of_bfloat16(x, name):
    """Of an array that does not lend its rows as they are, or of ml_dtypes' type, whose arrays lend nothing."""
    if len(x.shape) != 2:
        raise InvalidArgument(f"{name} must be rows, of shape [n, d]; got shape {list(x.shape)}")
    words = None if hasattr(x, "contiguous") else np.asarray(x).view(np.uint16)
    view = None if words is None else _core.view_bfloat16(words)
    if view is None:
        warn(f"{name}: rows that are not dense in memory, or not aligned, are copied")
        view = _core.view(x.detach().contiguous()) if words is None else _core.view_bfloat16(np.array(words, order="C"))
    return view


def _rows_of_chunks(chunks, name):
    if len(chunks) == 1:
        return _rows_of_array(chunks[0], name)
    wide = chunks[0].dtype == np.float64
    warn(f"{name}: {len(chunks)} chunks are copied into one array{', rounded to float32' if wide else ''}")
    with np.errstate(over="ignore"):
        return _rows_of_array(np.concatenate(chunks, dtype=np.float32 if wide else None), name)


def _rows_of_array(array, name):
    if array.ndim != 2:
        raise InvalidArgument(f"{name} must be rows, of shape [n, d]; got shape {list(array.shape)}")
    native = array.dtype.newbyteorder("=")
    if native == np.float64:
        warn(f"{name}: float64 is copied, rounded to float32")
        with np.errstate(over="ignore"):
            array = array.astype(np.float32, order="C")
    elif native not in (np.float32, np.float16, np.uint8, np.int8):
        raise TypeError(f"{name} is of type {array.dtype}; allowed: {_allowed}")
    view = _core.view(array)
    if view is None:
        warn(f"{name}: rows that are not dense in memory, or not aligned, are copied")
        view = _core.view(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    return view


def flag(value, name):
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {type(value).__name__}")


def warn(text, category=CopyWarning):
    """The default filter of `warnings` shows this once for each line of the user's."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gigaknn":
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)


def ids_of(ids, name):
    """Whole numbers [m] as int64, or None."""
    if ids is None:
        return None
    return whole_array(ids, 1, name)


def whole_array(values, ndim, name):
    refuse_masked(values, name)
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidArgument(f"{name} must be an array of {ndim} dimension{'s' if ndim > 1 else ''}: its lists differ in length") from None
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)  # an empty list
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers, got {'None' if values is None else array.dtype}")
    if array.dtype.kind == "u" and array.size and array.max() >= 2**63:
        raise InvalidArgument(f"{name} must be below 2**63, got {array.max()}")
    if array.ndim != ndim:
        raise InvalidArgument(f"{name} must have {ndim} dimension{'s' if ndim > 1 else ''}, got shape {list(array.shape)}")
    return np.ascontiguousarray(array, dtype=np.int64)
