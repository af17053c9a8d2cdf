"""A disk in memory that forgets what a real one may forget, fails when told to, and dies at a chosen operation.

Each file has its present content and the content that a power loss cannot touch; between the two lies the list of
changes that no `sync` has covered. The same holds for names. `crash` draws from the given random numbers which changes
reached the platter, so that a seed and a workload give one outcome. It is for one thread.

    disk = SimulatedDisk(random.Random(seed))
    disk.crash_at(17)
    try:
        workload(disk)
    except SimulatedCrash:
        disk.crash()
    recover(disk)
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import NoReturn

from barnabas.storage.files import Space
from barnabas.testing.sim.faults import DiskFaults, Hook, SimulatedCrash, error_of
from barnabas.testing.sim.inodes import Directory, Entry, Inode, NameChange, Node, survivors, with_causes

__all__ = ["SimulatedCrash", "SimulatedDisk", "SimulatedFile", "SimulatedLock"]


class SimulatedDisk(DiskFaults):
    """A `FileSystem`. Paths with and without a leading '/' mean the same.

    - `sector_bytes`: a write is torn at multiples of this; 1 tears it anywhere.
    - `ordered_names`: after a power loss the changes of names that survive are the first so many, as with a journal;
      otherwise those of different names may also survive out of order.
    - `capacity_bytes`: what all files may hold together, holes included; may be changed at any time.
    - `cold_reads`: the share of `read_now` that finds its data not in memory.
    - `hook`: see `DiskFaults`.
    """

    def __init__(
        self,
        random: Random,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        sector_bytes: int = 512,
        ordered_names: bool = False,
        capacity_bytes: int | None = None,
        cold_reads: float = 0.0,
        hook: Hook | None = None,
    ) -> None:
        super().__init__(random, hook)
        self.cold_reads = cold_reads
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.generation = 0
        self._now_ms = now_ms
        self._sector_bytes = sector_bytes
        self._ordered_names = ordered_names
        self._root = Directory(None, "")
        self._name_changes: list[NameChange] = []
        #: Another one whenever a file may have got another name.
        self.names_version = 0
        self._locked: set[Inode] = set()

    def crash(self, *, power: bool = True) -> None:
        """Stop and start again: the process alone or, with `power`, the machine. Files that were open fail from now
        on, locks are free, planned faults are forgotten, and after a power loss what was not synced may be gone."""
        self.generation += 1
        self.names_version += 1
        self._forget_faults()
        self._locked.clear()
        if power:
            for change in survivors(self._name_changes, self._random, ordered=self._ordered_names):
                change.make_durable()
            self._name_changes.clear()
        self.used_bytes = 0
        self._restart(self._root, power=power)

    def _restart(self, directory: Directory, *, power: bool) -> None:
        if power:
            directory.entries = dict(directory.durable)
        for name, node in sorted(directory.entries.items()):
            node.parent, node.name = directory, name
            if isinstance(node, Directory):
                self._restart(node, power=power)
                continue
            if power:
                node.lose_power(self._random, self._sector_bytes)
            node.linked = True
            node.open_count = 0
            self.used_bytes += len(node.content)

    def contents(self) -> dict[str, bytes | None]:
        """All paths, sorted, with what the files hold now; None for a directory. Not an operation."""
        found: dict[str, bytes | None] = {}
        todo = list(self._root.entries.items())
        while todo:
            path, node = todo.pop()
            found[path] = bytes(node.content) if isinstance(node, Inode) else None
            if isinstance(node, Directory):
                todo += [(f"{path}/{name}", below) for name, below in node.entries.items()]
        return dict(sorted(found.items()))

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever something on the disk may have changed: by an operation, a crash or `restore`."""
        return self.generation, self.operations

    def peek(self, path: str) -> bytearray | None:
        """What a file holds now, to be looked at and not kept; None if there is none. Not an operation."""
        node = self._walk(path)
        return node.content if isinstance(node, Inode) else None

    def peek_files(self, path: str) -> dict[str, bytearray]:
        """What the files of a directory hold now, to be looked at and not kept; none if there is no such directory. Not
        an operation."""
        node = self._walk(path)
        entries = node.entries if isinstance(node, Directory) else {}
        return {name: each.content for name, each in entries.items() if isinstance(each, Inode)}

    def restore(self, contents: Mapping[str, bytes | None]) -> None:
        """Hold what `contents` told of a disk, this one earlier or another, and nothing else, all of it safe."""
        self.crash(power=False)
        self._root = Directory(None, "")
        self._name_changes.clear()
        for path, content in sorted(contents.items()):
            directory, name = self._place(path)
            node: Node = Directory(directory, name) if content is None else Inode(directory, name)
            if isinstance(node, Inode):
                node.linked = True
                node.write(0, content or b"")
                node.sync()
            directory.entries[name] = directory.durable[name] = node
        self.used_bytes = sum(len(content) for content in contents.values() if content is not None)

    # The protocol

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        node = self._find(path)
        if isinstance(node, Directory):
            raise error_of(errno.EISDIR, path)
        if node is None:
            directory, name = self._place(path)
            if not create:
                raise error_of(errno.ENOENT, path)
            return SimulatedFile(self, self._make_file("open", path, directory, name), path)
        self.begin_reading("open", lambda: path)
        return SimulatedFile(self, node, path)

    def exists(self, path: str) -> bool:
        self.begin_reading("exists", lambda: path)
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        self.begin_reading("is_directory", lambda: path)
        return isinstance(self._find(path), Directory)

    def names(self, directory: str) -> list[str]:
        self.begin_reading("names", lambda: directory)
        return sorted(self._directory(directory).entries)

    def size(self, path: str) -> int:
        self.begin_reading("size", lambda: path)
        node = self._existing(path)
        return len(node.content) if isinstance(node, Inode) else 0

    def modified_ms(self, path: str) -> int:
        self.begin_reading("modified_ms", lambda: path)
        return self._existing(path).modified_ms

    def space(self, path: str) -> Space:
        self.begin_reading("space", lambda: path)
        self._existing(path)
        return Space(-1, -1) if self.capacity_bytes is None else Space(self.capacity_bytes, self.room_bytes())

    def make_directory(self, path: str) -> None:
        changes = []
        directory: Directory = self._root
        parts = _parts(path)
        for part in parts:
            node = directory.entries.get(part)
            if node is None:
                node = Directory(directory, part)
                changes.append(NameChange(Entry(directory, part, None, node)))
            elif not isinstance(node, Directory):
                raise error_of(errno.ENOTDIR if part != parts[-1] else errno.EEXIST, path)
            directory = node
        self._change_names("make_directory", path, changes)

    def rename(self, old: str, new: str) -> None:
        node = self._existing(old)
        (source, old_name), (target, new_name) = self._place(old), self._place(new)
        replaced = target.entries.get(new_name)
        if isinstance(node, Inode) and isinstance(replaced, Directory):
            raise error_of(errno.EISDIR, new)
        if isinstance(node, Directory) and isinstance(replaced, Inode):
            raise error_of(errno.ENOTDIR, new)
        if isinstance(replaced, Directory) and replaced.entries and replaced is not node:
            raise error_of(errno.ENOTEMPTY, new)
        above: Directory | None = target
        while above is not None:
            if above is node:
                raise error_of(errno.EINVAL, new)
            above = above.parent
        change = NameChange(Entry(source, old_name, node, None), Entry(target, new_name, replaced, node))
        self._change_names("rename", old, [] if replaced is node else [change])
        self.free(replaced)

    def remove(self, path: str) -> None:
        node = self._existing(path)
        if isinstance(node, Directory):
            raise error_of(errno.EISDIR, path)
        self._change_names("remove", path, [NameChange(Entry(*self._place(path), node, None))])
        self.free(node)

    def remove_directory(self, path: str) -> None:
        node = self._directory(path)
        if node.entries:
            raise error_of(errno.ENOTEMPTY, path)
        self._change_names("remove_directory", path, [NameChange(Entry(*self._place(path), node, None))])

    def make_read_only(self, path: str) -> None:
        self.begin_reading("make_read_only", lambda: path)
        self._existing(path)

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        fault = self.begin("sync_directory", lambda: path)
        if fault is None or fault.share_of(1):
            synced = with_causes(self._name_changes, directory)
            for change in synced:
                change.make_durable()
            if synced:
                done = set(synced)
                self._name_changes = [change for change in self._name_changes if change not in done]
        if fault is not None:
            raise fault.error

    def lock(self, path: str) -> SimulatedLock:
        node = self._find(path)
        if isinstance(node, Directory):
            raise error_of(errno.EISDIR, path)
        if node is None:
            node = self._make_file("lock", path, *self._place(path))
        else:
            self.begin_reading("lock", lambda: path)
        if node in self._locked:
            raise error_of(errno.EAGAIN, path)
        self._locked.add(node)
        return SimulatedLock(self, self._locked, node)

    # What the operations are made of

    def _change_names(self, name: str, path: str, changes: list[NameChange]) -> None:
        """Each change is atomic; of several the first few may have been done when a fault strikes."""
        fault = self.begin(name, lambda: path)
        for change in changes if fault is None else changes[: fault.share_of(len(changes))]:
            change.apply(self._now_ms())
            self.names_version += 1
            self._name_changes.append(change)
        if fault is not None:
            raise fault.error

    def _make_file(self, operation: str, path: str, directory: Directory, name: str) -> Inode:
        if self.room_bytes() == 0:
            raise error_of(errno.ENOSPC, path)
        node = Inode(directory, name)
        node.modified_ms = self._now_ms()
        self._change_names(operation, path, [NameChange(Entry(directory, name, None, node))])
        return node

    def room_bytes(self) -> int:
        """How many bytes more there is room for."""
        return 1 << 62 if self.capacity_bytes is None else max(self.capacity_bytes - self.used_bytes, 0)

    def is_cold(self) -> bool:
        return self.cold_reads > 0 and self._random.random() < self.cold_reads

    def change_content(self, node: Inode, change: Callable[[], None]) -> None:
        before_bytes = len(node.content)
        change()
        node.modified_ms = self._now_ms()
        self.used_bytes += len(node.content) - before_bytes

    def free(self, node: Node | None) -> None:
        """Give back the space of a file that has no name and no user any more."""
        if isinstance(node, Inode) and not node.linked and node.open_count == 0:
            self.used_bytes -= len(node.content)

    def _find(self, path: str) -> Node | None:
        self._check_up()
        return self._walk(path)

    def _walk(self, path: str) -> Node | None:
        node: Node | None = self._root
        for part in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(part)
        return node

    def _existing(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise error_of(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._existing(path)
        if not isinstance(node, Directory):
            raise error_of(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        """The directory that holds or would hold a name, and the name."""
        parts = _parts(path)
        if not parts:
            raise error_of(errno.EBUSY, path)
        return self._directory("/".join(parts[:-1])), parts[-1]


class SimulatedFile:
    """A `File` of the simulated disk; dead after a crash."""

    def __init__(self, disk: SimulatedDisk, node: Inode, path: str) -> None:
        self._disk = disk
        self._node = node
        self._generation = disk.generation
        self._prefix = "/" if path.startswith("/") else ""
        self._known_path = ""
        self._known_version = -1
        self._closed = False
        node.open_count += 1

    @property
    def path(self) -> str:
        return self._path()

    def _path(self) -> str:
        if self._known_version != self._disk.names_version:
            self._known_version = self._disk.names_version
            self._known_path = self._prefix + _path_of(self._node)
        return self._known_path

    def _check_open(self) -> None:
        if self._closed or self._generation != self._disk.generation:
            raise error_of(errno.EBADF, self.path)

    def _begin_reading(self, name: str) -> None:
        self._check_open()
        self._disk.begin_reading(name, self._path)

    def size(self) -> int:
        self._begin_reading("size")
        return len(self._node.content)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._begin_reading("read_at")
        if position < 0 or size_bytes < 0:
            raise error_of(errno.EINVAL, self.path)
        return bytes(memoryview(self._node.content)[position : position + size_bytes])

    def read_now(self, position: int, size_bytes: int) -> bytes | None:
        return None if self._disk.is_cold() else self.read_at(position, size_bytes)

    def prefetch(self, position: int, size_bytes: int) -> None:
        """Chance alone says what is in memory."""

    def map_now(self, position: int, size_bytes: int) -> None:
        return None

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._check_open()
        if position < 0:
            raise error_of(errno.EINVAL, self.path)
        fault = self._disk.begin("write_at", self._path)
        content = bytes(data)
        allowed_bytes = len(content) if fault is None else fault.share_of(len(content))
        fitting_bytes = max(len(self._node.content) + self._disk.room_bytes() - position, 0)
        landed = content[: min(allowed_bytes, fitting_bytes)]
        self._disk.change_content(self._node, lambda: self._node.write(position, landed))
        if fault is not None:
            raise fault.error
        if len(landed) < len(content):
            raise error_of(errno.ENOSPC, self.path)

    def truncate(self, size_bytes: int) -> None:
        self._check_open()
        if size_bytes < 0:
            raise error_of(errno.EINVAL, self.path)
        fault = self._disk.begin("truncate", self._path)
        if size_bytes - len(self._node.content) > self._disk.room_bytes():
            raise error_of(errno.ENOSPC, self.path)
        if fault is None or fault.share_of(1):
            self._disk.change_content(self._node, lambda: self._node.truncate(size_bytes))
        if fault is not None:
            raise fault.error

    def sync(self) -> None:
        self._check_open()
        fault = self._disk.begin("sync", self._path)
        if fault is None:
            self._node.sync()
            return
        if isinstance(fault.error, OSError):
            self._node.fail_sync()
        elif fault.share_of(1):
            self._node.sync()
        raise fault.error

    def fileno(self) -> NoReturn:
        raise io.UnsupportedOperation("a simulated file has no descriptor")

    def close(self) -> None:
        if not self._closed and self._generation == self._disk.generation:
            self._node.open_count -= 1
            self._disk.free(self._node)
        self._closed = True


class SimulatedLock:
    """A `Lock` of the simulated disk; gone after a crash."""

    def __init__(self, disk: SimulatedDisk, locked: set[Inode], node: Inode) -> None:
        self._disk = disk
        self._locked = locked
        self._node: Inode | None = node
        self._generation = disk.generation

    def release(self) -> None:
        if self._node is not None and self._generation == self._disk.generation:
            self._locked.discard(self._node)
        self._node = None


@lru_cache(maxsize=1000)
def _parts(path: str) -> tuple[str, ...]:
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ValueError(f"{path!r}: '..' is not supported")
    return parts


def _path_of(node: Node) -> str:
    names = [node.name]
    while node.parent is not None and node.parent.parent is not None:
        node = node.parent
        names.append(node.name)
    return "/".join(reversed(names))
