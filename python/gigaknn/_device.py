"""Rows in the memory of a GPU, lent by DLPack, and results that stay there."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING

import numpy as np

from . import _core
from ._errors import DeviceError, InvalidArgument
from ._masked import refuse_masked

if TYPE_CHECKING:
    import numpy.typing as npt

# DLPack's types of devices whose memory is the host's: the CPU's, pinned for CUDA or ROCm, managed by CUDA.
_managed = 13
_host = (1, 3, 11, _managed)
_names = {2: "cuda:{}", 12: "emulated"}


def device_of(x):
    """The name of the GPU that has `x` in its memory; None where the host has it, or nobody says."""
    if isinstance(x, np.ndarray):
        return None
    if isinstance(x, _core.Rows):
        return None if x.device == "cpu" else x.device
    where = getattr(x, "__dlpack_device__", None)
    if where is None:
        return None
    kind, number = map(int, where())
    if kind in _host:
        return None
    return _names[kind].format(number) if kind in _names else f"a device of DLPack's type {kind}"


def rows_in_place(x, name, stream=None):
    """The rows [n, d] of an array in the memory of a GPU, not copied, once the work of the caller's stream is done."""
    if isinstance(x, _core.Rows):
        return x
    device = device_of(x)
    if device.partition(":")[0] not in (known.partition(":")[0] for known in _core.devices()):
        raise DeviceError(f"{name} is on {device}, which this build cannot reach (it has {', '.join(_core.devices())}): gigaknn-cu13 reaches GPUs of CUDA's")
    number = _stream_of(x, stream)
    view = _core.view(x.__dlpack__() if isinstance(x, _core.DeviceArray) else x.__dlpack__(stream=number))
    if view is None:
        raise InvalidArgument(f"{name}: rows in the memory of a GPU must be [n, d], dense, of float32, float16, bfloat16, uint8 or int8; got {getattr(x, 'dtype', '?')} of shape {list(getattr(x, 'shape', []))}")
    _core.wait_for_stream(int(x.__dlpack_device__()[1]), number)
    return view


def wait_for_managed(x, stream=None):
    """Waits for the work of the caller's stream where `x` is in memory that CUDA manages, which the host reads like its own."""
    where = None if isinstance(x, np.ndarray) else getattr(x, "__dlpack_device__", None)
    if where is None or int(where()[0]) != _managed:
        return
    if any(known.startswith("cuda") for known in _core.devices()):
        _core.wait_for_stream(int(where()[1]), _stream_of(x, stream))
        return
    if stream is None and _library_of(x) == "cupy":
        stream = sys.modules["cupy"].cuda.get_current_stream()
    if hasattr(stream, "synchronize"):
        stream.synchronize()


def _stream_of(x, stream):
    """The number of the caller's stream as DLPack has it: 1 is CUDA's default one, which has no number of its own."""
    if stream is None:
        library = _library_of(x)
        if library == "torch":
            stream = sys.modules["torch"].cuda.current_stream(x.device)
        elif library == "cupy":
            stream = sys.modules["cupy"].cuda.get_current_stream()
        else:
            return 1
    for number in ("cuda_stream", "ptr"):  # torch's, cupy's
        if hasattr(stream, number):
            stream = getattr(stream, number)
            break
    else:
        if hasattr(stream, "__cuda_stream__"):
            stream = stream.__cuda_stream__()[1]
    try:
        number = operator.index(stream)
    except TypeError:
        raise TypeError(f"stream must be a number, or a stream of torch's, cupy's or of what has __cuda_stream__, got {stream!r}") from None
    if number < 0:
        raise InvalidArgument(f"stream must be a number of CUDA's, got {number}")
    return number or 1


def _library_of(x):
    name = type(x).__module__.partition(".")[0]
    return "jax" if name == "jaxlib" else name


def results_like(x, device, *arrays):
    """The arrays in the memory of `device`: of the library that `x` is of where that takes DLPack, else `DeviceArray`."""
    there = [_core.device_array_of(np.ascontiguousarray(array), device) for array in arrays]
    library = sys.modules.get(_library_of(x))
    if library is not None and library.__name__ in ("torch", "cupy"):
        return [library.from_dlpack(array) for array in there]
    if library is not None and library.__name__ == "jax":
        return [library.numpy.from_dlpack(array) for array in there]
    return there


def to_device(x: npt.ArrayLike, device: str) -> _core.DeviceArray:
    """A copy of an array [n, d] or [n] in the memory of a GPU.

    Parameters
    ----------
    x : array
        float32, float16, uint8, int8, int32 or int64.
    device : str
        One GPU: "cuda:0", or "emulated", which is there for tests.

    Returns
    -------
    DeviceArray
        With ``.shape``, ``.dtype``, ``.device`` and ``.numpy()``; it is lent to others by DLPack. `knn`, `radius_search` and exact graphs take
        it, as they take arrays of PyTorch, CuPy and JAX on a GPU, where it is.

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> x = gigaknn.to_device(np.eye(3, 4, dtype=np.float32), "emulated")
    >>> x
    <DeviceArray [3, 4] f32 on emulated>
    >>> gigaknn.knn(x, x, k=1).ids.numpy().ravel()
    array([0, 1, 2])
    """
    if not isinstance(device, str):
        raise TypeError(f"device must be a string, got {device!r}")
    if device.startswith("cuda") and not any(known.startswith("cuda") for known in _core.devices()):
        raise DeviceError(f"this build has no CUDA device for {device!r} (gigaknn.devices(): {', '.join(_core.devices())}): gigaknn-cu13 reaches GPUs of CUDA's")
    refuse_masked(x, "x")
    array = np.asarray(x)
    if array.dtype not in (np.float32, np.float16, np.uint8, np.int8, np.int32, np.int64) or array.ndim not in (1, 2):
        raise InvalidArgument(f"an array of {array.dtype} of shape {list(array.shape)} cannot be sent: [n] or [n, d] of float32, float16, uint8, int8, int32 or int64")
    return _core.device_array_of(np.ascontiguousarray(array), device)
