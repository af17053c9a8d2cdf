"""A file system in memory, for brokers that live as long as a test. It forgets nothing and never fails; for those who
want that, there is `sim.SimulatedDisk`."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from threading import RLock
from typing import NoReturn, TypeVar

from barnabas.base.runtime import SystemClock
from barnabas.storage.files import Space

__all__ = ["MemoryFileSystem"]


_N = TypeVar("_N", bound="_Named")


class MemoryFileSystem:
    """A `FileSystem`. Calls may come from several threads. Paths with and without a leading '/' mean the same."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or SystemClock().now_ms
        self._root = _Directory(None, "", self._now_ms())
        self._lock = RLock()

    def copy(self) -> MemoryFileSystem:
        """The same files, as they are now, for another process: whoever still writes to this one changes nothing
        there, and what it has locked is not locked there."""
        made = MemoryFileSystem(self._now_ms)
        with self._lock:
            made._root = _copied(self._root, None)
        return made

    def open(self, path: str, *, create: bool = False) -> _File:
        with self._lock:
            node = self._find(path)
            if isinstance(node, _Directory):
                raise _error(errno.EISDIR, path)
            if node is None:
                directory, name = self._place(path)
                if not create:
                    raise _error(errno.ENOENT, path)
                node = self._add(directory, _Content(directory, name, self._now_ms()))
            return _File(node, self._lock, self._now_ms, path)

    def exists(self, path: str) -> bool:
        with self._lock:
            return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        with self._lock:
            return isinstance(self._find(path), _Directory)

    def names(self, directory: str) -> list[str]:
        with self._lock:
            return sorted(self._directory(directory).entries)

    def size(self, path: str) -> int:
        with self._lock:
            node = self._existing(path)
            return len(node.data) if isinstance(node, _Content) else 0

    def modified_ms(self, path: str) -> int:
        with self._lock:
            return self._existing(path).modified_ms

    def space(self, path: str) -> Space:
        self._existing(path)
        return Space(-1, -1)

    def make_directory(self, path: str) -> None:
        with self._lock:
            directory = self._root
            parts = _parts(path)
            for part in parts:
                node = directory.entries.get(part)
                if node is None:
                    node = self._add(directory, _Directory(directory, part, self._now_ms()))
                elif isinstance(node, _Content):
                    raise _error(errno.ENOTDIR if part != parts[-1] else errno.EEXIST, path)
                directory = node

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            node = self._existing(old)
            target, name = self._place(new)
            replaced = target.entries.get(name)
            if isinstance(node, _Content) and isinstance(replaced, _Directory):
                raise _error(errno.EISDIR, new)
            if isinstance(node, _Directory) and isinstance(replaced, _Content):
                raise _error(errno.ENOTDIR, new)
            if isinstance(replaced, _Directory) and replaced.entries and replaced is not node:
                raise _error(errno.ENOTEMPTY, new)
            above: _Directory | None = target
            while above is not None:
                if above is node:
                    raise _error(errno.EINVAL, new)
                above = above.parent
            source = node.parent
            if replaced is node or source is None:
                return
            del source.entries[node.name]
            node.parent, node.name = target, name
            self._add(target, node)
            source.modified_ms = self._now_ms()

    def remove(self, path: str) -> None:
        with self._lock:
            node = self._existing(path)
            if isinstance(node, _Directory):
                raise _error(errno.EISDIR, path)
            self._drop(node)

    def remove_directory(self, path: str) -> None:
        with self._lock:
            node = self._directory(path)
            if node.entries:
                raise _error(errno.ENOTEMPTY, path)
            self._drop(node)

    def make_read_only(self, path: str) -> None:
        self._existing(path)

    def sync_directory(self, path: str) -> None:
        with self._lock:
            self._directory(path)

    def lock(self, path: str) -> _Lock:
        with self._lock:
            file = self.open(path, create=True)
            if file.content.is_locked:
                raise _error(errno.EAGAIN, path)
            file.content.is_locked = True
            return _Lock(file.content)

    # What the operations are made of

    def _add(self, directory: _Directory, node: _N) -> _N:
        directory.entries[node.name] = node  # type: ignore[assignment]
        directory.modified_ms = self._now_ms()
        return node

    def _drop(self, node: _Node) -> None:
        if node.parent is not None:
            del node.parent.entries[node.name]
            node.parent.modified_ms = self._now_ms()

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for part in _parts(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(part)
        return node

    def _existing(self, path: str) -> _Node:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._existing(path)
        if isinstance(node, _Content):
            raise _error(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[_Directory, str]:
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        return self._directory("/".join(parts[:-1])), parts[-1]


class _Named:
    """Something with a place in the tree. What was removed remembers where it was."""

    def __init__(self, parent: _Directory | None, name: str, modified_ms: int) -> None:
        self.parent = parent
        self.name = name
        self.modified_ms = modified_ms

    def path(self) -> str:
        names = []
        node: _Named = self
        while node.parent is not None:
            names.append(node.name)
            node = node.parent
        return "/".join(reversed(names))


class _Directory(_Named):
    def __init__(self, parent: _Directory | None, name: str, modified_ms: int) -> None:
        super().__init__(parent, name, modified_ms)
        self.entries: dict[str, _Node] = {}


class _Content(_Named):
    def __init__(self, parent: _Directory | None, name: str, modified_ms: int) -> None:
        super().__init__(parent, name, modified_ms)
        self.data = bytearray()
        self.is_locked = False


_Node = _Content | _Directory


def _copied(directory: _Directory, parent: _Directory | None) -> _Directory:
    made = _Directory(parent, directory.name, directory.modified_ms)
    for name, node in directory.entries.items():
        if isinstance(node, _Directory):
            made.entries[name] = _copied(node, made)
        else:
            content = made.entries[name] = _Content(made, name, node.modified_ms)
            content.data = bytearray(node.data)
    return made


class _File:
    """A `File`. The lock keeps a reader's view from meeting a writer that must move the bytes to make room."""

    __slots__ = ("_is_closed", "_lock", "_now_ms", "_prefix", "content")

    def __init__(self, content: _Content, lock: RLock, now_ms: Callable[[], int], path: str) -> None:
        self.content = content
        self._lock = lock
        self._now_ms = now_ms
        self._prefix = "/" if path.startswith("/") else ""
        self._is_closed = False

    @property
    def path(self) -> str:
        return self._prefix + self.content.path()

    def _check(self, *numbers: int) -> None:
        if self._is_closed:
            raise _error(errno.EBADF, self.path)
        if min(numbers, default=0) < 0:
            raise _error(errno.EINVAL, self.path)

    def size(self) -> int:
        self._check()
        return len(self.content.data)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._check(position, size_bytes)
        with self._lock, memoryview(self.content.data) as view:
            return bytes(view[position : position + size_bytes])

    def read_now(self, position: int, size_bytes: int) -> bytes:
        return self.read_at(position, size_bytes)

    def prefetch(self, position: int, size_bytes: int) -> None:
        """All of it is in memory."""

    def map_now(self, position: int, size_bytes: int) -> None:
        return None

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._check(position)
        if not len(data):
            return
        with self._lock:
            content = self.content.data
            if position == len(content):
                content += data
            else:
                if position > len(content):
                    content.extend(bytes(position - len(content)))
                content[position : position + len(data)] = data
            self.content.modified_ms = self._now_ms()

    def truncate(self, size_bytes: int) -> None:
        self._check(size_bytes)
        with self._lock:
            content = self.content.data
            if size_bytes < len(content):
                del content[size_bytes:]
            else:
                content.extend(bytes(size_bytes - len(content)))
            self.content.modified_ms = self._now_ms()

    def sync(self) -> None:
        self._check()

    def fileno(self) -> NoReturn:
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def close(self) -> None:
        self._is_closed = True


class _Lock:
    """A `Lock`."""

    def __init__(self, content: _Content) -> None:
        self._content: _Content | None = content

    def release(self) -> None:
        if self._content is not None:
            self._content.is_locked = False
        self._content = None


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{path!r}: '..' is not supported")
    return parts


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
