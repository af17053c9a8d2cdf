"""The machine's file system, with few descriptors for many files.

A node with 10,000 logs has some 40,000 files open, a process often no more than 1,024 descriptors. So a `RealFile`
borrows a descriptor: when `max_open_files` are out, one that was not used of late is closed, and its file opens again
by path when it is needed. Three things make that safe:
- The file system knows its open files by path, so a rename, also of a directory above, tells them their new path.
- A file that is removed or replaced while it is open keeps its descriptor until it is closed: no path leads to it.
- A file opened again must be the one it was, by device and inode number: nothing is written into a stranger.

Everything here may be called from any thread. Reads and writes take no lock: each call puts a mark on its file while
it runs, and a descriptor is closed only after it was taken away from its file and then no mark was there. Whichever
thread comes first, that holds: a call that marked before the look is seen by it, a call that marks after it finds the
descriptor gone and asks for another, under the lock. Compiled code that writes without letting other threads run needs
no mark (`SegmentTail.write`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.base._kernel.scratch import scratch
from barnabas.storage._kernel.appending import DescriptorFile
from barnabas.storage._kernel.mapping import map_resident
from barnabas.storage.files import Space
from barnabas.storage.open_files import OpenFiles

T = TypeVar("T")

# Leaves room for sockets under the usual limit of 1,024.
DEFAULT_MAX_OPEN_FILES = 512

#: What logs hold is nobody's business but the node's. A umask may take more away; what is there keeps its mode.
PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700

_NONE = -1
# Only Linux has it. A read with this flag returns what is in the page cache and no more.
_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)
_CAN_ADVISE: Final = hasattr(os, "posix_fadvise")


class RealFile(DescriptorFile):
    """A `File` on the machine's disk."""

    __slots__ = ("calls", "closed", "files", "identity", "path", "pinned")

    def __init__(self, files: RealFileSystem, path: str) -> None:
        self.files = files
        self.path = path
        self.identity: tuple[int, int] | None = None
        self.calls: list[None] = []  # one mark for each call that is running; a list because its methods are atomic
        self.pinned = False
        self.closed = False

    def read_at(self, position: int, size_bytes: int) -> bytes:
        calls = self.calls
        calls.append(None)
        try:
            descriptor = self.descriptor
            if descriptor < 0:
                descriptor = self.files.lend(self)
            else:
                self.used = True
            data = os.pread(descriptor, size_bytes, position)
            if len(data) == size_bytes or not data:
                return data
            return _read_rest(descriptor, position, size_bytes, data)
        finally:
            calls.pop()

    def read_now(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        if not self.files.knows_cached:
            return self.read_at(position, size_bytes)
        calls = self.calls
        calls.append(None)
        try:
            descriptor = self.descriptor
            if descriptor < 0:
                descriptor = self.files.lend(self)
            else:
                self.used = True
            data = scratch(size_bytes)  # a short read shows none of it
            return data if os.preadv(descriptor, (data,), position, _NO_WAIT) == size_bytes else None
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # This file system cannot tell what it has in memory.
            self.files.knows_cached = False
        finally:
            calls.pop()
        return self.read_at(position, size_bytes)

    def prefetch(self, position: int, size_bytes: int) -> None:
        if not _CAN_ADVISE:
            return
        calls = self.calls
        calls.append(None)
        try:
            descriptor = self.descriptor if self.descriptor >= 0 else self.files.lend(self)
            os.posix_fadvise(descriptor, position, size_bytes, os.POSIX_FADV_WILLNEED)
        finally:
            calls.pop()

    def map_now(self, position: int, size_bytes: int) -> memoryview | None:
        calls = self.calls
        calls.append(None)
        try:
            descriptor = self.descriptor
            if descriptor < 0:
                descriptor = self.files.lend(self)
            else:
                self.used = True
            return map_resident(descriptor, position, size_bytes)
        finally:
            calls.pop()

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        calls = self.calls
        calls.append(None)
        try:
            descriptor = self.descriptor
            if descriptor < 0:
                descriptor = self.files.lend(self)
            else:
                self.used = True
            written_bytes = os.pwrite(descriptor, data, position)
            if written_bytes != len(data):
                _write_rest(descriptor, position, data, written_bytes)
        finally:
            calls.pop()

    def size(self) -> int:
        return self._with_descriptor(os.fstat).st_size

    def truncate(self, size_bytes: int) -> None:
        self._with_descriptor(lambda descriptor: os.ftruncate(descriptor, size_bytes))

    def sync(self) -> None:
        self._with_descriptor(_sync)

    def fileno(self) -> int:
        return self._with_descriptor(os.dup)

    def close(self) -> None:
        self.files.close(self)

    def _with_descriptor(self, operate: Callable[[int], T]) -> T:
        self.calls.append(None)
        try:
            descriptor = self.descriptor
            if descriptor < 0:
                descriptor = self.files.lend(self)
            else:
                self.used = True
            return operate(descriptor)
        finally:
            self.calls.pop()


class RealFileSystem:
    """A `FileSystem` that holds at most `max_open_files` descriptors, save for files removed while open."""

    def __init__(self, max_open_files: int = DEFAULT_MAX_OPEN_FILES) -> None:
        if max_open_files < 1:
            raise ValueError(f"max_open_files={max_open_files}: at least 1 is needed")
        self._max_open_files = max_open_files
        self._lock = threading.Lock()  # guards all that follows; never held while data is read, written or synced
        self._open_files: OpenFiles[RealFile] = OpenFiles()
        self._lent: OrderedDict[RealFile, None] = OrderedDict()  # files with a descriptor that may be taken away
        self._pinned_count = 0
        #: Whether a read can be told not to wait for the disk.
        self.knows_cached = _NO_WAIT != 0
        self._closing: list[tuple[RealFile, int]] = []  # descriptors that a call in another thread may still use

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = RealFile(self, os.path.normpath(path))
        with self._lock:
            self._attach(file, os.O_RDWR | os.O_CREAT if create else os.O_RDWR)
            self._open_files.add(file)
        return file

    def exists(self, path: str) -> bool:
        return _status_if_there(path) is not None

    def is_directory(self, path: str) -> bool:
        status = _status_if_there(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def space(self, path: str) -> Space:
        status = os.statvfs(path)
        return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def make_directory(self, path: str) -> None:
        _make_private_directory(os.path.normpath(path))

    def rename(self, old: str, new: str) -> None:
        old, new = os.path.normpath(old), os.path.normpath(new)
        with self._lock:
            replaced = self._open_files.at(new) if new != old else []
            for file in replaced:
                self._pin(file)
            os.rename(old, new)
            for file in replaced:
                self._open_files.discard(file)
            self._open_files.move(old, new)

    def remove(self, path: str) -> None:
        path = os.path.normpath(path)
        with self._lock:
            removed = self._open_files.at(path)
            for file in removed:
                self._pin(file)
            os.unlink(path)
            for file in removed:
                self._open_files.discard(file)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def make_read_only(self, path: str) -> None:
        os.chmod(path, os.stat(path).st_mode & ~0o222)

    def sync_directory(self, path: str) -> None:
        with self._lock:
            descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> RealLock:
        return RealLock(path)

    # Descriptors

    def lend(self, file: RealFile) -> int:
        """A descriptor for a file which has none, and which a running call has marked, so that nobody takes it."""
        with self._lock:
            if file.closed:
                raise OSError(errno.EBADF, "the file is closed", file.path)
            if file.descriptor < 0:
                self._attach(file, os.O_RDWR)
            return file.descriptor

    def close(self, file: RealFile) -> None:
        with self._lock:
            if file.closed:
                return
            file.closed = True
            self._open_files.discard(file)
            if file.pinned:
                self._pinned_count -= 1
            self._lent.pop(file, None)
            descriptor, file.descriptor = file.descriptor, _NONE
            if descriptor >= 0:
                self._closing.append((file, descriptor))
            self._finish_closing()

    def _attach(self, file: RealFile, flags: int) -> None:
        while len(self._lent) + self._pinned_count >= self._max_open_files and self._take_one():
            pass
        while True:
            try:
                descriptor = self._open(file.path, flags)
                break
            except PermissionError:
                if flags != os.O_RDWR:
                    raise
                flags = os.O_RDONLY  # a finished snapshot, say
        try:
            status = os.fstat(descriptor)
            identity = (status.st_dev, status.st_ino)
            if file.identity not in (None, identity):
                raise OSError(errno.ESTALE, "another file was put in its place", file.path)
        except OSError:
            os.close(descriptor)
            raise
        file.identity = identity
        file.descriptor = descriptor
        self._lent[file] = None

    def _open(self, path: str, flags: int) -> int:
        """Open, and close what is not in use if there are too many: others may have taken what we could have."""
        while True:
            try:
                return os.open(path, flags, PRIVATE_FILE)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._take_one():
                    raise

    def _take_one(self) -> bool:
        """Close a descriptor that was not used since the last look and is not in use; false if there is none."""
        self._finish_closing()
        for _ in range(2 * len(self._lent)):
            file, _ = self._lent.popitem(last=False)
            if not file.used:
                descriptor, file.descriptor = file.descriptor, _NONE
                if not file.calls:  # must come after the line above: see the top of this file
                    os.close(descriptor)
                    return True
                file.descriptor = descriptor
            file.used = False
            self._lent[file] = None
        return False

    def _finish_closing(self) -> None:
        still_used = []
        for file, descriptor in self._closing:
            if file.calls:
                still_used.append((file, descriptor))
            else:
                os.close(descriptor)
        self._closing = still_used

    def _pin(self, file: RealFile) -> None:
        """From now on the descriptor is the only way to the file."""
        if not file.pinned:
            if file.descriptor < 0:
                self._attach(file, os.O_RDWR)
            del self._lent[file]
            file.pinned = True
            self._pinned_count += 1


class RealLock:
    """A `Lock` held by an open lock file, as a record lock: it also keeps out, and is kept out by, Apache Kafka's."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            if sys.platform == "linux":
                # Of the open file, not of the process: two in one process conflict, and closing another descriptor of
                # the lock file does not let go of it.
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise OSError(error.errno, error.strerror, path) from None
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, _NONE
        if descriptor >= 0:
            os.close(descriptor)


def _make_private_directory(path: str) -> None:
    """With the directories above it that are missing: `os.makedirs` would leave those open to everybody."""
    try:
        os.mkdir(path, PRIVATE_DIRECTORY)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if parent in ("", path):
            raise
        _make_private_directory(parent)
        _make_private_directory(path)


def _status_if_there(path: str) -> os.stat_result | None:
    # Not os.path.exists(): it takes a disk that fails for a file that is missing.
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_rest(descriptor: int, position: int, size_bytes: int, data: bytes) -> bytes:
    """The kernel may return less than was asked for: by a signal, or beyond 2 GiB at a time."""
    pieces = [data]
    missing_bytes = size_bytes - len(data)
    while data and missing_bytes > 0:
        data = os.pread(descriptor, missing_bytes, position + size_bytes - missing_bytes)
        pieces.append(data)
        missing_bytes -= len(data)
    return b"".join(pieces)


def _write_rest(descriptor: int, position: int, data: bytes | bytearray | memoryview, written_bytes: int) -> None:
    rest = memoryview(data).cast("B")
    while written_bytes < len(rest):
        written_bytes += os.pwrite(descriptor, rest[written_bytes:], position + written_bytes)


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # its fsync leaves the data in the drive's cache
    else:
        os.fdatasync(descriptor)  # includes the size, not the times
