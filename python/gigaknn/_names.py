"""What the rows of an index are called, beside changes of it."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from ._keys import Places, keys_joined


class _Naming(NamedTuple):
    """`old` names the rows up to a version, `new` those of later ones."""

    until: int
    old: Any
    new: Any

    def at(self, version):
        return self.old if version <= self.until else self.new


class Names:
    """The keys [next_id] of all rows that an index has had. Who changes it is alone in that; who asks may do so at any time."""

    def __init__(self, index, keys):
        self._index = index
        self._naming = _Naming(-1, keys, keys)
        self._found = None  # (version, keys, Places) that was asked last

    def now(self):
        """(moment, keys): the rows of a moment, and what they are called then."""
        while True:
            naming, moment = self._naming, self._index.moment()
            if naming is self._naming:  # so the moment is of the version that it began with, or later
                return moment, naming.at(moment.version)

    def ids_of(self, asked, now=None, distinct=False):
        """[m] int64 of the rows that are called so, by default as of now; with `distinct` no key twice."""
        moment, keys = now or self.now()
        found = self._found
        if found is None or found[0] != moment.version or found[1] is not keys:
            found = self._found = moment.version, keys, Places(keys, self._index.ids(moment))
        return found[2].ids_of(asked, distinct)

    def settle(self):
        """The keys now. What a change prepared that was ended before it came, and before its own end, is forgotten."""
        moment, keys = self.now()
        had = self._index.next_id
        if self._naming.until == moment.version or len(keys) > had:
            keys = keys[:had]
            self._naming = _Naming(-1, keys, keys)
        return keys

    @contextlib.contextmanager
    def added(self, keys):
        """Within, rows are added that have these `keys`, or none are."""
        before, next_id = self.settle(), self._index.next_id
        joined = keys_joined(before, keys)
        mine = self._naming = _Naming(-1, joined, joined)  # before the rows: a search may find them at once
        try:
            yield
        finally:
            if self._naming is mine and self._index.next_id == next_id:  # else the rows are there, also where Ctrl-C came behind them
                self._naming = _Naming(-1, before, before)

    @contextlib.contextmanager
    def replaced(self, ids, keys):
        """Within, the rows `ids` are replaced by ones that have these `keys`, or none are."""
        before, version = self.settle(), self._index.moment().version
        changed = keys_joined(before, keys)
        changed[ids] = changed[len(before) :]
        changed = changed[: len(before)]
        mine = self._naming = _Naming(version, before, changed)
        try:
            yield
        finally:
            keys = before if self._index.moment().version == version else changed
            if self._naming is mine:
                self._naming = _Naming(-1, keys, keys)
