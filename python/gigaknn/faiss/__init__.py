"""In place of Faiss, for scripts that were written for it: ``import gigaknn.faiss as faiss``.

>>> import numpy as np
>>> import gigaknn.faiss as faiss
>>> xb = np.random.default_rng(0).random((2000, 16), dtype=np.float32)
>>> index = faiss.index_factory(16, "IVF20,Flat")
>>> index.train(xb)
>>> index.add(xb)
>>> index.nprobe = 4
>>> D, I = index.search(xb[:3], 5)
>>> I[:, 0], index.ntotal
(array([0, 1, 2]), 2000)

Conventions are Faiss's: (distances, labels); L2 is the square, inner products descend, labels are -1 where there are fewer rows. Files are Faiss's, both ways. What is
trained is gigaknn's own: the same kind of index, not the same centroids. Equal distances come by label. An index has a label once; it is found again by it also in an IndexIVF.
What Faiss has and gigaknn has not is refused, by name.

An index that is wrapped and what wraps it are one: add to either, and both have the rows.
"""

from .. import _core
from ._devices import StandardGpuResources, get_num_gpus, index_cpu_to_all_gpus, index_cpu_to_gpu, index_gpu_to_cpu
from ._files import IO_FLAG_MMAP, IO_FLAG_READ_ONLY, deserialize_index, index_factory, read_index, serialize_index, write_index
from ._functions import knn, normalize_L2, pairwise_distances, vector_to_array
from ._indexes import Index, IndexFlat, IndexFlatIP, IndexFlatL2, IndexScalarQuantizer
from ._inverted import ClusteringParameters, IndexIVF, IndexIVFFlat, IndexIVFPQ, IndexIVFRaBitQ, IndexIVFScalarQuantizer, ScalarQuantizer
from ._kmeans import Kmeans
from ._selectors import IDSelector, IDSelectorAll, IDSelectorAnd, IDSelectorArray, IDSelectorBatch, IDSelectorBitmap, IDSelectorNot, IDSelectorOr, IDSelectorRange, IDSelectorXOr, SearchParameters, SearchParametersIVF
from ._settings import METRIC_INNER_PRODUCT, METRIC_L1, METRIC_L2, METRIC_Linf, omp_get_max_threads, omp_set_num_threads
from ._wrappers import IndexIDMap, IndexIDMap2, IndexPreTransform, IndexRefine, IndexRefineFlat, ParameterSpace, clone_index, downcast_index, extract_index_ivf, try_extract_index_ivf

__version__ = _core.version()

__all__ = [
    "ClusteringParameters",
    "IDSelector",
    "IDSelectorAll",
    "IDSelectorAnd",
    "IDSelectorArray",
    "IDSelectorBatch",
    "IDSelectorBitmap",
    "IDSelectorNot",
    "IDSelectorOr",
    "IDSelectorRange",
    "IDSelectorXOr",
    "IO_FLAG_MMAP",
    "IO_FLAG_READ_ONLY",
    "Index",
    "IndexFlat",
    "IndexFlatIP",
    "IndexFlatL2",
    "IndexIDMap",
    "IndexIDMap2",
    "IndexIVF",
    "IndexIVFFlat",
    "IndexIVFPQ",
    "IndexIVFRaBitQ",
    "IndexIVFScalarQuantizer",
    "IndexPreTransform",
    "IndexRefine",
    "IndexRefineFlat",
    "IndexScalarQuantizer",
    "Kmeans",
    "METRIC_INNER_PRODUCT",
    "METRIC_L1",
    "METRIC_L2",
    "METRIC_Linf",
    "ParameterSpace",
    "ScalarQuantizer",
    "SearchParameters",
    "SearchParametersIVF",
    "StandardGpuResources",
    "clone_index",
    "deserialize_index",
    "downcast_index",
    "extract_index_ivf",
    "get_num_gpus",
    "index_cpu_to_all_gpus",
    "index_cpu_to_gpu",
    "index_factory",
    "index_gpu_to_cpu",
    "knn",
    "normalize_L2",
    "omp_get_max_threads",
    "omp_set_num_threads",
    "pairwise_distances",
    "read_index",
    "serialize_index",
    "try_extract_index_ivf",
    "vector_to_array",
    "write_index",
]

for _name in __all__:
    if getattr(globals()[_name], "__module__", "").startswith(__name__):
        globals()[_name].__module__ = __name__  # where pickled ones are looked for


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(f"gigaknn.faiss has no {name}: gigaknn has nothing in its place (docs/python.md lists what there is)")
