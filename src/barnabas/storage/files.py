"""The file system as storage sees it: few operations, handed in, so that a simulated disk can take the real one's
place.

What a caller may rely on, after a crash of the machine:
- What `sync` of a file covered is there, its size included. Other writes may be there, in whole, in part or not at all,
  in any order, and a part may end in the middle of a write.
- A created, renamed or removed name is certain once `sync_directory` of its directory has returned; until then either
  state may be found, and of several such changes any may be found done, in any order as far as they concern different
  names. A file's `sync` does not cover its name, nor a directory's the names above it. A rename is never half done:
  one of the two files is found under the name.
- What a failed `sync` should have covered is not covered by a later one either: its fate is open until it is written
  anew.
After a crash of the process alone, everything written is there.

Every operation may raise `OSError`; what it had done by then is as after a crash of the process in mid-call.
Calls may come from several threads on the real file system; the order of two that overlap is open.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class File(Protocol):
    """A file that is read and written at positions. Its descriptor may be closed and opened again behind the scenes.

    It follows the file, not the name: through a rename of the file or of a directory above it, and beyond its removal
    or replacement, it reads and writes what it did before, until it is closed. All calls after that but `close` raise
    `OSError`.
    """

    @property
    def path(self) -> str:
        """Where the file is now; once it was removed or replaced, where it was last."""
        ...

    def size(self) -> int: ...

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` bytes; fewer only at the end of the file."""
        ...

    def read_now(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        """What `read_at` gives, if it can be had without waiting for the disk; None if not all of it can."""
        ...

    def prefetch(self, position: int, size_bytes: int) -> None:
        """Have this read without waiting for it, so that `read_now` finds it some time later. A hint."""
        ...

    def map_now(self, position: int, size_bytes: int) -> memoryview | None:
        """The same where it lies, for a system call: who else looks at it is gone if the file is cut meanwhile.

        None also where that cannot be had."""
        ...

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`; zeros fill a gap before it. On an error any part of it may have been written."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or extend it with zeros."""
        ...

    def sync(self) -> None:
        """Return once the content and the size are safe."""
        ...

    def fileno(self) -> int:
        """A descriptor for `sendfile` and its kin, which the caller has to close; `OSError` where there is none.

        It is a duplicate, because the file's own may be closed by another thread that needs one."""
        ...

    def close(self) -> None:
        """Does not sync. Closing again does nothing."""
        ...


class Lock(Protocol):
    """Held until released or until the process ends."""

    def release(self) -> None:
        """Releasing again does nothing."""
        ...


class Space(NamedTuple):
    """Of a disk; -1 where nobody knows."""

    total_bytes: int
    usable_bytes: int


class FileSystem(Protocol):
    """Paths are strings with '/' between names, each file with one way of writing its path.

    A path that is needed and missing raises `FileNotFoundError`.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing, or only for reading where the file allows no more. With `create`, make the file
        if it is missing; else `FileNotFoundError`."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def space(self, path: str) -> Space:
        """How large the disk is that holds `path`, and how much of it may still be used."""
        ...

    def make_directory(self, path: str) -> None:
        """Make it and what is missing above it; nothing happens if it is there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; an existing file under the new name is replaced. Also renames directories, but not onto a directory
        that holds something. Open files follow."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file. Who has it open keeps it until they close it."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; `OSError` if it holds something."""
        ...

    def make_read_only(self, path: str) -> None:
        """Protect a file that is complete against mistakes. It can still be renamed, removed, and opened to read."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock that a file stands for, making the file; `BlockingIOError` if another holds it."""
        ...


def directory_of(path: str) -> str:
    """The directory that holds a name."""
    directory, separator, _ = path.rpartition("/")
    return directory or separator or "."


def join(*parts: str) -> str:
    return "/".join(parts)


def read_file(files: FileSystem, path: str) -> bytes:
    """The whole content of a file."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def replace_file(files: FileSystem, path: str, content: bytes) -> None:
    """Put `content` under `path` so that after a crash either the old or the new content is found, and now the new."""
    temporary = f"{path}.tmp"
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, content)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_directory(directory_of(path))


def replace_content(files: FileSystem, path: str, position: int, content: bytes, *, sync: bool) -> None:
    """Make the file end with `content` at `position`. Not atomic: for files that can be made anew from others."""
    file = files.open(path, create=True)
    try:
        file.truncate(position)
        if content:
            file.write_at(position, content)
        if sync:
            file.sync()
    finally:
        file.close()


def sync_if_there(files: FileSystem, path: str) -> None:
    """Make a file safe that was written before, unless it was deleted meanwhile."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()
