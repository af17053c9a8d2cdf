"""The `.txnindex` file of a segment: aborted transactions whose markers lie in it, for readers of committed data."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from barnabas.base.errors import check
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import File, FileSystem, directory_of, sync_if_there

_VERSION: Final = 0
# version, producer id, first offset, last offset, last stable offset
_ENTRY: Final = struct.Struct(">hqqqq")
_LAST_OFFSET: Final = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """`last_offset` is that of the marker; `last_stable_offset` is how far all was decided once it was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """The index of one segment. Most segments have no aborted transaction, and then no file either.

    Entries are ordered by the offsets of their markers. They are read when first needed and kept.
    """

    __slots__ = ("_created", "_entries", "_file", "_files", "_path", "_unsynced")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = None
        self._unsynced = False
        self._created = False
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    @path.setter
    def path(self, path: str) -> None:
        """For who has renamed the file or a directory above it, whether the file exists or not."""
        self._close_file()
        self._path = path

    def append(self, entry: AbortedTransaction) -> None:
        entries = self._loaded()
        check(
            not entries or entry.last_offset > entries[-1].last_offset,
            f"{self.path}: {entry} does not lie above {entries[-1] if entries else None}",
        )
        if self._file is None:
            self._created = self._created or not self._files.exists(self.path)
            self._file = self._files.open(self.path, create=True)
        self._unsynced = True
        # By position, so that an entry that an error left behind in part is written over.
        self._file.write_at(len(entries) * _ENTRY.size, _ENTRY.pack(_VERSION, *entry))
        entries.append(entry)

    @property
    def is_known_empty(self) -> bool:
        """Whether it was read, and there is nothing in it, as usual."""
        return self._entries is not None and not self._entries

    @property
    def entries(self) -> list[AbortedTransaction]:
        return list(self._loaded())

    def search(self, fetch_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that overlap [fetch_offset, upper_offset), and whether later segments can be spared.

        They can once an entry says that all below the bound was decided when its marker was written.
        """
        found = []
        entries = self._loaded()
        for position in range(bisect_left(entries, fetch_offset, key=_LAST_OFFSET), len(entries)):
            entry = entries[position]
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose markers are at `offset` or above."""
        entries = self._loaded()
        kept = bisect_left(entries, offset, key=_LAST_OFFSET)
        if kept < len(entries):
            self._cut(kept)

    def clear(self) -> None:
        """Drop all entries, also of a file that cannot be read."""
        self._entries = []
        if self._files.exists(self.path):
            self._cut(0)

    def sanity_check(self, base_offset: int) -> None:
        """Raise unless the file can be the index of a segment that begins at `base_offset`."""
        previous = base_offset - 1
        for number, entry in enumerate(self._loaded(whole=True)):
            if entry.last_offset <= previous:
                raise self._corrupt(number, f"{entry} is not above offset {previous}")
            if entry.first_offset >= entry.last_offset or entry.last_stable_offset > entry.last_offset + 1:
                raise self._corrupt(number, f"{entry} cannot be")
            previous = entry.last_offset

    def begin_sync(self) -> list[Callable[[], None]]:
        """What makes safe what was changed. That goes for the name too: below the recovery point nobody would miss the
        file, and aborted records would be shown."""
        syncs: list[Callable[[], None]] = []
        if self._unsynced:
            self._unsynced = False
            syncs.append(partial(sync_if_there, self._files, self.path))
        if self._created:
            self._created = False
            syncs.append(partial(self._files.sync_directory, directory_of(self.path)))
        return syncs

    def flush(self) -> None:
        for sync in self.begin_sync():
            sync()

    def close(self) -> None:
        """Give back file and memory; both come again when needed."""
        self._entries = None
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _cut(self, entry_count: int) -> None:
        self._unsynced = True
        self._open().truncate(entry_count * _ENTRY.size)
        del self._loaded()[entry_count:]

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path)
        return self._file

    def _loaded(self, *, whole: bool = False) -> list[AbortedTransaction]:
        """The entries. An end that is no entry is passed over, as a crash may leave one, but an error if `whole` is."""
        if self._entries is None or whole:
            self._entries = self._read(whole)
        return self._entries

    def _read(self, whole: bool) -> list[AbortedTransaction]:
        if not self._files.exists(self.path):
            return []
        file = self._open()
        content = file.read_at(0, file.size())
        excess = len(content) % _ENTRY.size
        if excess and whole:
            raise self._corrupt(len(content) // _ENTRY.size, f"{excess} bytes are no entry, which has {_ENTRY.size}")
        entries = []
        for number, fields in enumerate(_ENTRY.iter_unpack(content[: len(content) - excess])):
            if fields[0] != _VERSION:
                raise self._corrupt(number, f"version {fields[0]} is unknown; only {_VERSION} can be read")
            entries.append(AbortedTransaction(*fields[1:]))
        return entries

    def _corrupt(self, number: int, reason: str) -> CorruptLogError:
        return CorruptLogError(self.path, number * _ENTRY.size, reason)
