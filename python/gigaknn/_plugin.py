"""gigaknn-cu13: the library by CUDA, taken in place of this package's own where it is installed."""

import importlib
import os
import sys
import warnings
from pathlib import Path

from ._version import version

try:
    from ._commit import commit
except ImportError:  # a checkout that was not built
    commit = None

_name = "gigaknn_cu13"


def load(name=_name):
    """The plugin's core becomes `gigaknn._core`. None where there is no plugin, it is of another build (which a warning says), or GIGAKNN_PLUGIN is 0."""
    if os.environ.get("GIGAKNN_PLUGIN") == "0":
        return None
    try:
        plugin = importlib.import_module(name)
        theirs = getattr(plugin, "__version__", None), _commit_of(name)
        # A core of another commit may take other arguments. Commits are compared as texts: of two builds that say "-dirty" of the same commit, or "unknown", nobody can tell more.
        if commit is None or theirs != (version, commit):
            warnings.warn(f"{_named(name, *theirs)} is not for {_named('gigaknn', version, commit)} and is not used: install both of one build", RuntimeWarning, stacklevel=3)
            return None
        core = importlib.import_module(f"{name}._core")
    except Exception as error:  # whatever it is, the package's own core is there
        if not (isinstance(error, ModuleNotFoundError) and error.name == name):
            warnings.warn(f"{name.replace('_', '-')} cannot be used by {_named('gigaknn', version, commit)}: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=3)
        return None
    sys.modules["gigaknn._core"] = core
    sys.modules["gigaknn"]._core = core
    return core


def _commit_of(name):
    """What a plugin says that it was built of; None where it says nothing."""
    try:
        return importlib.import_module(f"{name}._commit").commit
    except (ImportError, AttributeError):
        return None


def _named(name, version, commit):
    return f"{name.replace('_', '-')} {version or 'of no version'} (commit {commit or 'not known'})"


core = load()


def program():
    """The path of the command line that belongs to the core."""
    package = Path(core.__file__ if core is not None else __file__).parent
    return package / "bin" / "gigaknn"
