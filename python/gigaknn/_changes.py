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

    def __init__(self):
        self._lock = threading.Lock()
        self._inside = set()  # threads that hold it, or that report for the one that does
        _all.add(self)

    @contextlib.contextmanager
    def alone(self):
        thread = threading.get_ident()
        if thread in self._inside:
            raise Unsupported("the index is being changed by the call that reports here: change it or pickle it after that")
        with self._lock, self._as_inside(thread):
            yield

    def watched(self, progress):
        """`progress` of a change, as `run_of` takes it."""
        if not callable(progress):
            return progress

        def report(*arguments):
            thread = threading.get_ident()
            with contextlib.nullcontext() if thread in self._inside else self._as_inside(thread):
                progress(*arguments)

        return report

    def forget_others(self):
        """In the child of a fork, where the thread that holds it may not be."""
        self._lock = threading.Lock()
        self._inside &= {threading.get_ident()}

    @contextlib.contextmanager
    def _as_inside(self, thread):
        try:
            self._inside.add(thread)
            yield
        finally:
            self._inside.discard(thread)


def _forget_others():
    for changes in list(_all):
        changes.forget_others()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_others)
