"""Types of arguments, for annotations: only what checks types imports this."""

import os
from typing import Any, Callable, Sequence, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

Rows = Any  # [n, d]: an array of any library's, Arrow's lists, a path or a list of paths; what it is says no type
Keys = Any  # [n]: a list or an array, of anything
Ids = npt.ArrayLike  # [m] of whole numbers
FilePath = Union[str, "os.PathLike[str]"]
Whole = SupportsIndex
Memory = Union[int, float, str, None]
Progress = Union[bool, Callable[[str, int, int], object], None]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Paths = Union[FilePath, Sequence[FilePath]]
