"""What goes wrong with a log, each with the code that a broker answers."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError


class LogError(BarnabasError):
    """A log did not do what it was asked for."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)


class RecordError(NamedTuple):
    """What is wrong with one record; records of a batch are numbered from 0."""

    number: int
    message: str


class AppendRefusedError(LogError):
    """A batch breaks the rules of the log. Nothing was written, and the log goes on."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        self.record_errors = tuple(record_errors)
        super().__init__(code, message)


class CorruptLogError(LogError):
    """A file of the log does not hold what was written there. `position` counts bytes from 0, or lines from 1."""

    def __init__(self, path: str, position: int, reason: str, *, unit: str = "byte") -> None:
        self.path = path
        self.position = position
        self.reason = reason
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}, {unit} {position}: {reason}")


#: What passes, and says nothing of the disk itself: a full disk is not a broken one.
PASSING: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk is full",
    errno.EMFILE: "the process has as many files open as it may",
    errno.ENFILE: "the machine has as many files open as it can",
}


class PassingError(LogError):
    """What was asked for cannot be done now, for one of these reasons. `PassingTrouble` has told of it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class LogDirectoryError(LogError):
    """A whole log directory cannot be used: it failed, or another process has it."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {directory}: {reason}")


class DirectoryInUseError(LogDirectoryError):
    """Another process holds the directory's lock."""
