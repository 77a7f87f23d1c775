"""gigaknn-cu13: the library by CUDA, taken in place of this package's own where it is installed."""

import importlib
import os
import sys
import warnings
from pathlib import Path

from ._version import version

_name = "gigaknn_cu13"


def load(name=_name):
    """The plugin's core becomes `gigaknn._core`. None where there is no plugin, it is of another version (which a warning says), or GIGAKNN_PLUGIN is 0."""
    if os.environ.get("GIGAKNN_PLUGIN") == "0":
        return None
    try:
        plugin = importlib.import_module(name)
        if plugin.__version__ != version:
            warnings.warn(f"{name.replace('_', '-')} {plugin.__version__} is not for gigaknn {version} and is not used: install both of one version", RuntimeWarning, stacklevel=3)
            return None
        core = importlib.import_module(f"{name}._core")
    except ImportError as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == name):
            warnings.warn(f"{name.replace('_', '-')} cannot be used: {error}", RuntimeWarning, stacklevel=3)
        return None
    sys.modules["gigaknn._core"] = core
    sys.modules["gigaknn"]._core = core
    return core


core = load()


def program():
    """The path of the command line that belongs to the core."""
    package = Path(core.__file__ if core is not None else __file__).parent
    return package / "bin" / "gigaknn"
