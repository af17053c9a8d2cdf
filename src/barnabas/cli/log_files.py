"""The log of a node in a file that never grows beyond a bound: when it is full, it is renamed and a new one begun.

Kafka's own set-up begins a file every hour and deletes none. Here the size counts, and the oldest go: a disk that logs
have filled takes the node with it.
"""

from __future__ import annotations

import fcntl
import io
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import BinaryIO, Final

from barnabas.base.errors import BarnabasError
from barnabas.cli.output import say
from barnabas.storage.real_files import PRIVATE_FILE, RealFileSystem

#: `server.log`, and up to ten older ones, `server.log.1` being the youngest: 220 MiB in all.
LOG_BYTES: Final = 20 * 1024 * 1024
OLDER_LOGS: Final = 10
#: What a process prints beside its log is little, unless something is very wrong with it.
OUTPUT_BYTES: Final = 1024 * 1024


class RotatedLog(RotatingFileHandler):
    """Like the node's other files it is its owner's alone. A disk that is full costs lines, not the node.

    With `roll_ms` a file also ends with its period: one of an hour has the lines of an hour by the clock, over restarts
    too."""

    def __init__(
        self, path: str, *, size_bytes: int = LOG_BYTES, older: int = OLDER_LOGS, roll_ms: int | None = None
    ) -> None:
        self._has_failed = self._is_failing = False
        self._roll_ms = roll_ms
        self._period: int | None = None
        RealFileSystem().make_directory(os.path.dirname(os.path.abspath(path)))
        super().__init__(path, maxBytes=size_bytes, backupCount=older, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> io.TextIOWrapper:
        opened = open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=open_private)  # noqa: SIM115
        try:
            # Two that write to one file would rename it under each other.
            fcntl.flock(opened.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            opened.close()
            another = f"{self.baseFilename} is the log of another node, which runs"
            raise BarnabasError(f"{another}; give each its own directory with LOG_DIR") from None
        return opened

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802
        if self._roll_ms is not None and self.stream is not None:
            period = int(record.created * 1000) // self._roll_ms
            if self._period is None:
                found = os.fstat(self.stream.fileno())
                self._period = int(found.st_mtime * 1000) // self._roll_ms if found.st_size else period
            if period != self._period:
                self._period = period
                return True
        return bool(super().shouldRollover(record))

    def emit(self, record: logging.LogRecord) -> None:
        self._has_failed = False
        super().emit(record)
        if not self._has_failed:
            self._is_failing = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say once that lines are lost, and again when some were written in between."""
        self._has_failed = True
        if not self._is_failing:
            self._is_failing = True
            say(f"{self.baseFilename} cannot be written: {sys.exception()}", err=True)


def open_private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


def private_output(path: Path) -> BinaryIO:
    """A file for what a process prints, to be appended to; an old one is put aside before it grows too large."""
    RealFileSystem().make_directory(str(path.parent))
    if path.exists() and path.stat().st_size > OUTPUT_BYTES:
        path.rename(f"{path}.1")
    return os.fdopen(open_private(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")
