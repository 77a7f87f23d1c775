"""What an index and those that wrap it share: the index of gigaknn."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from .. import _index
from .._bfloat16 import rounded
from .._errors import InvalidArgument, Unsupported
from ._settings import numbers, threads


class Held:
    def __init__(self, d, metric, recipe):
        self.d, self.metric, self.recipe = d, metric, recipe
        self.device = "cpu"
        self.index = None  # before it is trained; of "Flat" before it has rows
        self.next_id = 0

    def __getstate__(self):
        state = dict(self.__dict__)
        if self.index is not None:
            with tempfile.TemporaryDirectory() as folder:
                self.index.save(f"{folder}/x.gknn", threads=threads())
                state["index"] = Path(folder, "x.gknn").read_bytes()
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self.index is not None:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "x.gknn").write_bytes(self.index)
                self.index = _index.open(f"{folder}/x.gknn", device=self.device, threads=threads())

    def reopen(self):
        """Rows that it borrows are let go; `device` counts."""
        self.__setstate__(self.__getstate__())

    @property
    def rows(self):
        return 0 if self.index is None else len(self.index)

    @property
    def is_trained(self):
        return self.recipe == "Flat" or self.index is not None

    def ids(self):
        return np.empty(0, np.int64) if self.index is None else self.index.ids

    def train(self, x, lists, iterations, seed):
        if self.rows:
            raise Unsupported("an index that has rows is not trained again")
        if self.recipe == "read":
            raise Unsupported("an index that was read is not trained again: index_factory makes one to train")
        most = max(256 * lists, 65536)
        if len(x) > most:
            x = x[np.sort(np.random.default_rng(seed).choice(len(x), most, replace=False))]
        self.index = _index.build(x, index=self.recipe, metric=self.metric, iterations=iterations, seed=seed, device=self.device, threads=threads())
        self.index.remove(self.index.ids)
        self.reopen()

    def add(self, x, ids):
        if ids is None:
            ids = np.arange(self.next_id, self.next_id + len(x))
        ids = numbers(ids, np.int64, "ids")
        if ids.shape != (len(x),):
            raise InvalidArgument(f"ids must be one for each of the {len(x)} rows, got shape {list(ids.shape)}")
        if len(x) == 0:
            return
        next_id = max(self.next_id, int(ids.max()) + 1)
        if self.index is None:
            self.index, self.next_id = self.flat(x.copy(), ids), next_id
            return
        rows = self.rows
        try:
            self.index.add(self.of_its_type(x), ids=ids, threads=threads())
        finally:
            if self.rows > rows:  # also where Ctrl-C came behind them
                self.next_id = next_id

    def flat(self, x, ids):
        return _index.build(x, index="Flat", metric=self.metric, ids=ids, device=self.device, threads=threads())

    def without_rows(self):
        """The index, or, of "Flat" that has no rows yet, one of none."""
        if self.index is not None:
            return self.index
        index = self.flat(np.zeros((1, self.d), np.float32), np.zeros(1, np.int64))
        index.remove([0])
        return index

    def keep(self, ids):
        """Of "Flat": the rows `ids` alone are left, numbered anew. What stops this has changed nothing."""
        made = self.flat(self.index.reconstruct(ids), np.arange(len(ids))) if len(ids) else None
        self.index, self.next_id = made, len(ids)

    def of_its_type(self, x):
        """Rows of a file may be of fewer bits; whole numbers must be whole."""
        if self.index._index.dtype == "bf16":
            return rounded(x)
        dtype = self.index.dtype
        if dtype == np.float32:
            return x
        with np.errstate(over="ignore", invalid="ignore"):
            cast = x.astype(dtype)
        if dtype == np.float16 and not np.array_equal(np.isfinite(cast), np.isfinite(x)):
            raise InvalidArgument("the index holds float16: x must be at most 65504")
        if dtype != np.float16 and not np.array_equal(cast, x):
            raise InvalidArgument(f"the index holds {dtype}: x must be whole numbers of its range")
        return cast
