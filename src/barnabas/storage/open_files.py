"""Which files are open under which path, kept right when files and directories are renamed."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Generic, Protocol, TypeVar


class HasPath(Protocol):
    path: str


F = TypeVar("F", bound=HasPath)


class OpenFiles(Generic[F]):
    """Files by path; one path may be open several times. Renaming a directory touches only the files below it."""

    def __init__(self) -> None:
        self._by_directory: dict[str, dict[str, list[F]]] = {}
        self._directories: list[str] = []  # sorted, so that those below a directory are neighbours

    def add(self, file: F) -> None:
        directory, _, name = file.path.rpartition("/")
        names = self._by_directory.get(directory)
        if names is None:
            names = self._by_directory[directory] = {}
            insort(self._directories, directory)
        names.setdefault(name, []).append(file)

    def discard(self, file: F) -> None:
        directory, _, name = file.path.rpartition("/")
        names = self._by_directory.get(directory, {})
        files = names.get(name, [])
        if file in files:
            files.remove(file)
            if not files:
                del names[name]
            if not names:
                del self._by_directory[directory]
                del self._directories[bisect_left(self._directories, directory)]

    def at(self, path: str) -> list[F]:
        directory, _, name = path.rpartition("/")
        return list(self._by_directory.get(directory, {}).get(name, ()))

    def move(self, old: str, new: str) -> None:
        """Give the files at `old`, or below it, their new path."""
        moved = self.at(old)
        first = bisect_left(self._directories, f"{old}/")
        last = bisect_left(self._directories, f"{old}0")  # '0' is the character after '/'
        for directory in [old, *self._directories[first:last]]:
            for files in self._by_directory.get(directory, {}).values():
                moved += files
        for file in moved:
            self.discard(file)
            file.path = new + file.path[len(old) :]
            self.add(file)
