"""Exact and approximate nearest neighbours, k-NN graphs, indexes and k-means.

>>> import numpy as np, gigaknn
>>> x = np.random.default_rng(0).random((2000, 16), dtype=np.float32)
>>> distances, ids = gigaknn.knn(x[:5], x, k=10)              # exact
>>> graph = gigaknn.knn_graph(x, k=15, metric="cosine")       # .ids and .distances, [n, k]
>>> index = gigaknn.build(x, index="IVF32,Flat")              # or recall=0.95: the quickest that finds so much
>>> distances, ids = index.search(x[:5], 10, nprobe=8)
>>> clusters = gigaknn.kmeans(x, 20)                          # .centroids and .labels

Order is (distances, ids) everywhere, named, but for what stands in for others and has theirs (`KnnGraph.to_umap`, `NNDescent`);
ids are int64, -1 where there is no row; a row is not its own neighbour in a graph.
Same input, parameters and seed give the same bits on every device and for any number of threads; only `method="auto"` below a
recall of 1, of 100,000 rows or more, takes another method on a GPU than on a CPU.
"""

from typing import TYPE_CHECKING

from . import _plugin as _plugin  # first: which _core it is
from . import _errors as _errors  # then what that raises
from ._core import available_threads, devices, isa_of, metrics
from ._core import commit as _core_commit
from ._core import version as _version
from ._core import DeviceArray
from ._device import to_device
from ._errors import Cancelled, CopyWarning, CorruptFile, DeviceError, Error, FileError, FileForbidden, FileNotFound, InvalidArgument, InvalidData, OutOfMemory, RecallWarning, Unsupported
from ._eval import Recall, recall
from ._graph import KnnGraph, Path, knn_graph, radius_graph
from ._index import Index, OperatingPoint, build, open
from ._kmeans import KMeans, NearestCentroids, kmeans, nearest_centroids
from ._nndescent import NNDescent
from ._search import Neighbors, RadiusNeighbors, duplicates, knn, radius_search, read_vectors

__version__ = _version()
__commit__ = _core_commit()

if TYPE_CHECKING:
    from . import faiss as faiss, plot as plot, sklearn as sklearn
else:

    def __getattr__(name):
        """The modules that stand for other libraries, imported when they are named: `gigaknn.sklearn` imports scikit-learn."""
        if name in ("faiss", "plot", "sklearn"):
            import importlib

            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Cancelled",
    "CopyWarning",
    "CorruptFile",
    "DeviceArray",
    "DeviceError",
    "Error",
    "FileError",
    "FileForbidden",
    "FileNotFound",
    "Index",
    "InvalidArgument",
    "InvalidData",
    "KMeans",
    "KnnGraph",
    "NNDescent",
    "NearestCentroids",
    "Neighbors",
    "OperatingPoint",
    "OutOfMemory",
    "Path",
    "RadiusNeighbors",
    "Recall",
    "RecallWarning",
    "Unsupported",
    "available_threads",
    "build",
    "devices",
    "duplicates",
    "isa_of",
    "kmeans",
    "knn",
    "knn_graph",
    "metrics",
    "nearest_centroids",
    "open",
    "radius_graph",
    "radius_search",
    "read_vectors",
    "recall",
    "to_device",
]
