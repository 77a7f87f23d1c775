"""Indexes from descriptions and files."""

from __future__ import annotations

import re
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, _index
from .._arguments import path_of, run_of, word
from .._errors import InvalidArgument, Unsupported
from ._held import Held
from ._indexes import Index, IndexFlat, IndexFlatIP, IndexFlatL2, IndexScalarQuantizer
from ._inverted import IndexIVF, IndexIVFFlat, IndexIVFPQ, IndexIVFRaBitQ, IndexIVFScalarQuantizer
from ._settings import METRIC_INNER_PRODUCT, METRIC_L2, metric_of, threads
from ._wrappers import IndexIDMap, IndexIDMap2, IndexPreTransform, IndexRefine, IndexRefineFlat

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._types import FilePath

IO_FLAG_MMAP, IO_FLAG_READ_ONLY = 0x646F0008, 2  # read_index reads into memory all the same


def index_factory(d: int, description: str, metric: int = METRIC_L2) -> Any:
    """The index of a description: "Flat", "IVF1024,Flat", "IVF1024,PQ32", "OPQ32,IVF1024,PQ32,RFlat", "IDMap,Flat", "IVF1024,Flat,IDMap" and what else gigaknn.build takes.

    Refine(Flat) is RFlat, and SQ8, as in Faiss, of what centroids leave (`SQ8d` of gigaknn.build). A wrapper of a wrapper, graphs, and codes without lists are refused.
    """
    text = word(description, "description").replace(" ", "").replace("Refine(Flat)", "RFlat")
    wrappers = {"IDMap": IndexIDMap, "IDMap2": IndexIDMap2}
    first, _, behind = text.partition(",")
    before, _, last = text.rpartition(",")
    for outer, inner in ((first, behind), (last, before)):
        if outer in wrappers:
            return wrappers[outer](index_factory(d, inner, metric))
    text = ",".join("SQ8d" if part == "SQ8" else part for part in text.split(","))
    _core.check_recipe(text)
    if text == "Flat":
        return IndexFlat(d, metric)
    if metric not in (METRIC_L2, METRIC_INNER_PRODUCT):
        raise Unsupported(f"{text!r} is built of METRIC_L2 and METRIC_INNER_PRODUCT, got {metric!r}")
    words = text.split(",")
    place = next(i for i, part in enumerate(words) if part.startswith("IVF"))
    codes = words[place + 1] if len(words) > place + 1 else "Flat"
    kinds = {"Flat": IndexIVFFlat, "PQ": IndexIVFPQ, "SQ": IndexIVFScalarQuantizer, "RaBitQ": IndexIVFRaBitQ}
    index = object.__new__(next(kind for start, kind in kinds.items() if codes.startswith(start)))
    transform = re.match(r"(?:PCA[RW]?|RR|OPQ\d+_)(\d+),", text)
    index._begin(int(transform[1]) if transform else d, metric, Held(d, metric_of(metric), text))
    index._describe(int(words[place][3:] or 0), 1)
    if place > 0:
        index = object.__new__(IndexPreTransform)._wrap(d, index)
    if words[-1] == "RFlat":
        index = object.__new__(IndexRefineFlat)._wrap(index, 1.0)
    return index


_kinds = {kind.__name__: kind for kind in (IndexFlat, IndexScalarQuantizer, IndexIVFFlat, IndexIVFPQ, IndexIVFScalarQuantizer)}


def write_index(index: Index, fname: FilePath) -> None:
    """Writes an index of Faiss that `read_index` here and there reads; docs/faiss.md says what is not written."""
    index._require_outermost()
    held, path = index._held, path_of(fname, "fname")
    if not held.is_trained:
        raise InvalidArgument(f"this {type(index).__name__} has not been trained: there is nothing to write")
    with tempfile.TemporaryDirectory() as folder:
        held.without_rows().save(f"{folder}/x.gknn", threads=threads())
        inner = index._inverted()
        maps = _core.FaissMap
        map_ = maps.id_map2 if isinstance(index, IndexIDMap2) else maps.id_map if isinstance(index, IndexIDMap) else maps.where_needed
        nprobe, k_factor = 1 if inner is None else inner.nprobe, max(1.0, index._k_factor())
        try:
            _core.export_faiss(f"{folder}/x.gknn", path, nprobe, k_factor, map_, run_of(threads(), None, None))
        except Unsupported as error:
            raise Unsupported(str(error).replace(f"{folder}/x.gknn", f"this {type(index).__name__}")) from None


def read_index(fname: FilePath, io_flags: int = 0) -> Any:
    """Reads what Faiss or `write_index` wrote, with nprobe and k_factor; into memory, whatever the flags."""
    path = path_of(fname, "fname")
    facts = _core.describe_faiss(path)
    with tempfile.TemporaryDirectory() as folder:
        _core.import_faiss(path, f"{folder}/x.gknn", run_of(threads(), None, None))
        opened = _index.open(f"{folder}/x.gknn", threads=threads())
    # gigaknn's scalar codes are of rows around their mean: Faiss has that before the lists.
    kind = re.sub(r"IndexPreTransform\((CenteringTransform \d+ -> \d+, )?(?=IndexIVFScalarQuantizer)", "(", facts.kind)
    names = re.findall(r"Index\w+", kind)
    place = next(i for i, name in enumerate(names) if name in _kinds)
    metric = METRIC_INNER_PRODUCT if opened.metric == "inner_product" else METRIC_L2
    held = Held(facts.cols, opened.metric, "Flat" if opened.kind == "flat" else "read")
    held.index, held.next_id = opened, opened.next_id
    kind_read = _kinds[names[place]]
    if kind_read is IndexFlat:
        kind_read = IndexFlatL2 if metric == METRIC_L2 else IndexFlatIP
    index = object.__new__(kind_read)
    widths = re.findall(r"-> (\d+)", kind)
    index._begin(int(widths[-1]) if widths else facts.cols, metric, held)
    if isinstance(index, IndexIVF):
        index._describe(facts.lists, facts.nprobe)
    for name in reversed(names[:place]):
        if name == "IndexPreTransform":
            index = object.__new__(IndexPreTransform)._wrap(facts.cols, index)
        elif name in ("IndexRefine", "IndexRefineFlat"):
            index = object.__new__(IndexRefineFlat if name == "IndexRefineFlat" else IndexRefine)._wrap(index, facts.k_factor)
        else:
            index = object.__new__(IndexIDMap2 if name == "IndexIDMap2" else IndexIDMap)._wrap(index)
    return index


def serialize_index(index: Index) -> npt.NDArray[np.uint8]:
    """What `write_index` writes, as an array of bytes."""
    with tempfile.TemporaryDirectory() as folder:
        write_index(index, f"{folder}/x.faiss")
        return np.fromfile(f"{folder}/x.faiss", np.uint8)


def deserialize_index(data: npt.ArrayLike) -> Any:
    """The index of `serialize_index`."""
    with tempfile.TemporaryDirectory() as folder:
        np.asarray(data, np.uint8).tofile(f"{folder}/x.faiss")
        return read_index(f"{folder}/x.faiss")
