"""One change of an index at a time, and nothing that would wait for itself."""

import contextlib
import os
import threading
import weakref

from ._errors import Unsupported

_all = weakref.WeakSet()


class Changes:
    """A lock: who holds it changes an index, or must not see half of a change.

    A change reports to the user's `progress`, from any thread of the library's. What that asks of the same index would wait for the change,
    which waits for it: it is refused. A lock that the same thread may take again would not do, as half of the change would be seen.
    """

    def __init__(self, version):
        """`version()`: of the rows, another after each change of theirs."""
        self._version = version
        self._lock = threading.Lock()
        self._queue = threading.Lock()  # of those who want it: who has just given it up comes behind who waits
        self._inside = set()  # threads that hold it, or that report for the one that does
        self._looking = set()  # threads that hold it and change nothing
        self._old_rows = None  # the version of the rows that what stands beside them is of, while both are replaced
        self._replaced = 0  # how often both were
        _all.add(self)

    @contextlib.contextmanager
    def alone(self):
        thread = threading.get_ident()
        if thread in self._inside:
            raise Unsupported("the index is being changed by the call that reports here: change it, ask it by key or pickle it after that")
        if thread in self._looking:
            yield
            return
        with self._held(), self._as(self._inside, thread):
            yield

    @contextlib.contextmanager
    def replacing(self):
        """Inside `alone`: the rows are replaced, and then what stands beside them."""
        self._old_rows = self._version()
        try:
            yield
        finally:
            self._replaced += 1
            self._old_rows = None

    def undisturbed(self, look):
        """What `look()` returns of the rows and of what stands beside them; it is called again where they were replaced meanwhile."""
        thread = threading.get_ident()
        for _ in range(3):
            replaced, seen = self._replaced, look()
            if (not self._halfway() and replaced == self._replaced) or thread in self._inside:
                return seen
        # One replacement after the other, each shorter than a look: they wait for this one.
        with self._held(), self._as(self._looking, thread):
            return look()

    def _halfway(self):
        old_rows = self._old_rows
        return old_rows is not None and self._version() != old_rows

    def watched(self, progress):
        """`progress` of a change, as `run_of` takes it."""
        if not callable(progress):
            return progress

        def report(*arguments):
            thread = threading.get_ident()
            with contextlib.nullcontext() if thread in self._inside else self._as(self._inside, thread):
                progress(*arguments)

        return report

    def forget_others(self):
        """In the child of a fork, where the thread that holds it may not be."""
        self._lock, self._queue = threading.Lock(), threading.Lock()
        self._inside &= {threading.get_ident()}
        self._looking &= {threading.get_ident()}
        self._old_rows = None

    @contextlib.contextmanager
    def _held(self):
        with contextlib.ExitStack() as held:
            with self._queue:
                held.enter_context(self._lock)
            yield

    @contextlib.contextmanager
    def _as(self, group, thread):
        group.add(thread)
        try:
            yield
        finally:
            group.discard(thread)


def _forget_others():
    for changes in list(_all):
        changes.forget_others()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_others)
