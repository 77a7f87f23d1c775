"""Files that appear whole or not at all, where the library writes them in more than one step."""

import contextlib
import os
import tempfile

from ._errors import Error, FileError


def replace(path, write):
    """`write` makes a file of a name that it is given; that then is at `path`, or what was there is as it was.

    Links, permissions and errors are those of files that the library writes at once (src/io/output_file.hpp).
    """
    there = os.path.exists(path)
    if there and not os.path.isfile(path):
        raise FileError(f"{path}: cannot be replaced: is not a regular file")
    target = os.path.realpath(path) if there else path  # a link is written through
    folder = os.path.dirname(target) or "."
    try:
        with tempfile.TemporaryDirectory(prefix=".gknn.", dir=folder) as beside:  # of the same file system
            made = os.path.join(beside, os.path.basename(target))
            write(made)
            if there:
                _take_owner_and_mode(made, target)
            os.replace(made, target)
            _sync(folder)
    except Error as error:
        raise type(error)(str(error).replace(made, path)) from None
    except OSError as error:
        raise FileError(f"{path}: cannot write: {error.strerror}") from None


def _take_owner_and_mode(made, replaced):
    """What was private stays so; another group has no rights that only the former had."""
    before = os.stat(replaced)
    with contextlib.suppress(OSError):
        os.chown(made, -1, before.st_gid)
    same_group = os.stat(made).st_gid == before.st_gid
    os.chmod(made, before.st_mode & (0o777 if same_group else 0o707))
    with contextlib.suppress(OSError):
        os.chown(made, before.st_uid, -1)  # only root may, and need not


def _sync(folder):
    """Makes a new name survive a power cut. Some file systems refuse to sync folders: no harm."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
