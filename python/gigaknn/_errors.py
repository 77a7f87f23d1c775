"""What gigaknn raises and warns of. Each error is also the Python exception that one would expect."""

import errno
import os

_number_of = {os.strerror(number): number for number in errno.errorcode}


class Error(Exception):
    """Everything that gigaknn raises by itself."""


class InvalidArgument(Error, ValueError):
    """The call is wrong: change its arguments."""


class InvalidData(Error, ValueError):
    """Values that are not usable: NaN, a negative value under chi2, an id that is there twice."""


class CorruptFile(Error, ValueError):
    """A file does not hold what its format promises."""


class FileError(Error, OSError):
    """The operating system refused: no such file, disk full, no permission.

    Attributes
    ----------
    errno : int or None
        What the operating system calls the reason, where it is its own.
    filename : str
    """

    def __new__(cls, text=""):
        if cls is FileError:
            cls = {errno.ENOENT: FileNotFound, errno.EACCES: FileForbidden, errno.EPERM: FileForbidden}.get(_number_of.get(text.rpartition(": ")[2]), FileError)
        return super().__new__(cls, text)

    def __init__(self, text=""):
        """The text is the library's: the file, what was tried, and why it failed."""
        super().__init__(text)
        reason = text.rpartition(": ")[2]
        self.errno, self.strerror = _number_of.get(reason), reason
        # A name may have ": " itself; two more parts are behind it where the operating system gave the reason.
        self.filename = text.partition(": ")[0] if self.errno is None else text.rsplit(": ", 2)[0]

    def __str__(self):
        return str(self.args[0])


class FileNotFound(FileError, FileNotFoundError):
    """There is no such file, or no such folder."""


class FileForbidden(FileError, PermissionError):
    """The file must not be read, or written."""


class OutOfMemory(Error, MemoryError):
    """The budget is too small; the message says what would do."""


class DeviceError(Error, RuntimeError):
    """The device is missing or failed."""


class Unsupported(Error, NotImplementedError):
    """A valid request that this build, index or device cannot serve."""


class Cancelled(Error):
    """The call was stopped, and not by Ctrl-C, which raises KeyboardInterrupt."""


class CopyWarning(UserWarning):
    """Rows were copied, which takes time and memory, because they could not be used as they were."""


class RecallWarning(UserWarning):
    """A recall that was asked for was not reached."""
