"""The snapshots that lie in the directory of a log: which there are, what retention goes by, and how they go."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.raft.snapshots import DELETED_SUFFIX, find_snapshots, read_header
from barnabas.raft.types import SnapshotId
from barnabas.storage.files import FileSystem, join


class _Facts(NamedTuple):
    size_bytes: int
    last_contained_ms: int


class SnapshotFiles:
    """All finished snapshots of one directory, the oldest first."""

    def __init__(self, files: FileSystem, directory: str, delete_delay_ms: int) -> None:
        self._files = files
        self._directory = directory
        self._delete_delay_ms = delete_delay_ms
        self.ids = find_snapshots(files, directory)
        self._facts = {each: self._find_facts(each) for each in self.ids}
        # Files that were retired, and when they may go: who reads them at this moment goes on.
        self._to_remove: list[tuple[int, str]] = []

    def _find_facts(self, snapshot: SnapshotId) -> _Facts:
        path = self.path(snapshot)
        try:
            last_contained_ms = read_header(self._files, path).last_contained_ms
        except BarnabasError:
            # Who needs this one will be told what is wrong with it; to the others it is merely old.
            last_contained_ms = 0
        return _Facts(self._files.size(path), last_contained_ms)

    def path(self, snapshot: SnapshotId) -> str:
        return join(self._directory, snapshot.file_name)

    @property
    def latest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self._facts.values())

    def last_contained_ms(self, snapshot: SnapshotId) -> int:
        return self._facts[snapshot].last_contained_ms

    def add(self, snapshot: SnapshotId, size_bytes: int, last_contained_ms: int) -> None:
        self._facts[snapshot] = _Facts(size_bytes, last_contained_ms)
        self.ids = sorted(self._facts)

    def add_found(self, snapshot: SnapshotId) -> None:
        """Take note of one that somebody else put there."""
        self.add(snapshot, *self._find_facts(snapshot))

    def read_bytes(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int] | None:
        """A piece of the file, empty where there is none, and the size of the whole; None without such a snapshot."""
        if snapshot not in self._facts:
            return None
        file = self._files.open(self.path(snapshot))
        try:
            piece = file.read_at(position, max_bytes) if position >= 0 and max_bytes > 0 else b""
            return piece, file.size()
        finally:
            file.close()

    def retire(self, snapshot: SnapshotId, now_ms: int) -> None:
        path = self.path(snapshot)
        self._files.rename(path, path + DELETED_SUFFIX)
        self.ids.remove(snapshot)
        del self._facts[snapshot]
        self._to_remove.append((now_ms + self._delete_delay_ms, path + DELETED_SUFFIX))

    def retire_before(self, offset: int, now_ms: int) -> None:
        """Retire those whose log is gone: they end before `offset`."""
        for snapshot in [each for each in self.ids if each.end_offset < offset]:
            self.retire(snapshot, now_ms)

    def remove_retired(self, now_ms: int) -> None:
        """Remove what was retired long enough ago."""
        for due_ms, path in self._to_remove:
            if due_ms <= now_ms and self._files.exists(path):
                self._files.remove(path)
        self._to_remove = [each for each in self._to_remove if each[0] > now_ms]
