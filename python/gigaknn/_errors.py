"""What gigaknn raises and warns of. Each error is also the Python exception that one would expect."""


class Error(Exception):
    """Everything that gigaknn raises by itself."""


class InvalidArgument(Error, ValueError):
    """The call is wrong: change its arguments."""


class InvalidData(Error, ValueError):
    """Values that are not usable: NaN, a negative value under chi2, an id that is there twice."""


class CorruptFile(Error, ValueError):
    """A file does not hold what its format promises."""


class FileError(Error, OSError):
    """The operating system refused: no such file, disk full, no permission."""


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
