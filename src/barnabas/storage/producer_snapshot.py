"""The `.snapshot` files of a partition: producer state at an offset, so that a start need not read the whole log.

A file is named after the first offset that it does not cover. Its CRC-32C covers the entries, so a file that a crash
left half written reads as corrupt, and an older one serves. Such a file costs time, never truth.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.log_context import logger
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSystem, join, read_file
from barnabas.storage.producer_state import ProducerStates
from barnabas.wire.stored.producer_snapshot import ProducerEntry, ProducerSnapshot

_log = logger("barnabas.storage")

SNAPSHOT_SUFFIX: Final = ".snapshot"
_VERSION: Final = 1
_NAME_DIGITS: Final = 20
_NOWHERE: Final = -1
_HEADER: Final = struct.Struct(">hI")  # version, CRC of everything after it


def snapshot_name(offset: int) -> str:
    return f"{offset:0{_NAME_DIGITS}}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int | None:
    """The offset in the name of a snapshot file; None for other files."""
    digits = name.removesuffix(SNAPSHOT_SUFFIX)
    if digits == name or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    # The message begins with its CRC, which has to wait for the rest.
    rest = ProducerSnapshot(crc=0, producer_entries=list(entries)).encode(_VERSION)[4:]
    return _HEADER.pack(_VERSION, crc32c(rest)) + rest


def decode_snapshot(content: bytes, path: str) -> list[ProducerEntry]:
    """The entries of a snapshot; `path` is named in errors."""
    if len(content) < _HEADER.size:
        raise CorruptLogError(path, len(content), "the file ends within its header")
    version, crc = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise CorruptLogError(path, 0, f"version {version} is unknown; only {_VERSION} can be read")
    computed = crc32c(memoryview(content)[_HEADER.size :])
    if computed != crc:
        raise CorruptLogError(path, 2, f"the CRC is {computed:#010x}, not {crc:#010x} as the file says")
    try:
        return ProducerSnapshot.decode(memoryview(content)[2:], _VERSION).producer_entries
    except RemoteProtocolError as failure:
        raise CorruptLogError(path, _HEADER.size, str(failure)) from None


def read_snapshot(files: FileSystem, path: str) -> list[ProducerEntry]:
    return decode_snapshot(read_file(files, path), path)


class ProducerSnapshots:
    """The snapshot files of one partition. Knows their offsets, so that the directory is listed only once."""

    __slots__ = ("_directory", "_files", "_names_changed", "_offsets", "_taken")

    def __init__(self, files: FileSystem, directory: str, names: Collection[str] | None = None) -> None:
        """`names` are the files of the directory, if the caller has listed it already."""
        self._files = files
        self._directory = directory
        listed = files.names(directory) if names is None else names
        self._offsets = sorted(offset for name in listed if (offset := snapshot_offset(name)) is not None)
        # Where the state was last taken or loaded, or known to be empty: there, a snapshot would say nothing new.
        self._taken = 0
        self._names_changed = False

    @property
    def offsets(self) -> list[int]:
        """Of all files, the oldest first."""
        return list(self._offsets)

    def path(self, offset: int) -> str:
        return join(self._directory, snapshot_name(offset))

    def moved_to(self, directory: str) -> None:
        """The partition's directory has a new name."""
        self._directory = directory

    def take(self, states: ProducerStates, offset: int, *, sync: bool = True) -> bool:
        """Write the state as of `offset`, up to which all batches were applied; false if there is nothing new to say.

        Without `sync` the file becomes safe with a later `sync(offset)`; until then a crash may leave it unreadable.
        """
        if offset == self._taken:
            return False
        file = self._files.open(self.path(offset), create=True)
        try:
            file.truncate(0)
            file.write_at(0, encode_snapshot(states.entries()))
            if sync:
                file.sync()
        finally:
            file.close()
        if offset not in self._offsets:
            insort(self._offsets, offset)
        self._taken = offset
        return True

    def sync(self, offset: int) -> None:
        """Make a snapshot safe, unless it is gone by now."""
        try:
            file = self._files.open(self.path(offset))
        except FileNotFoundError:
            return
        try:
            file.sync()
        finally:
            file.close()

    def restore(self, states: ProducerStates, log_start_offset: int, log_end_offset: int) -> int:
        """Make `states` what the newest snapshot within the log says, or empty if there is none.

        Returns the offset from which on the log must apply its batches; then it tells its high watermark again.
        Snapshots that do not belong to the log, or cannot be read, are removed.
        """
        self.truncate(log_start_offset, log_end_offset)
        while self._offsets:
            offset = self._offsets[-1]
            try:
                states.restore(read_snapshot(self._files, self.path(offset)))
            except CorruptLogError as failure:
                _log.warning("producer state is loaded from an older snapshot: %s", failure)
                self.forget(offset)
            except FileNotFoundError:
                self._offsets.pop()
            else:
                self._taken = states.restored_at = offset
                return offset
        states.clear()
        self._taken = log_start_offset
        return log_start_offset

    def truncate(self, log_start_offset: int, log_end_offset: int) -> None:
        """Remove what lies outside of the log, where there are no batches that could complete the state.

        Returns when the files cannot come back. After a crash they would speak of other records than those that have
        taken their offsets since.
        """
        for offset in self.offsets:
            if offset > log_end_offset or offset <= log_start_offset:
                self.forget(offset)
        if self._names_changed:
            self._files.sync_directory(self._directory)
            self._names_changed = False

    def remove_strays(self, segment_offsets: Collection[int]) -> None:
        """Remove the files that belong to no segment, but keep the newest if it lies above all segments: it was taken
        when the log was closed."""
        bases = set(segment_offsets)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and (not bases or strays[-1] > max(bases)):
            strays.pop()
        for offset in strays:
            self.forget(offset)

    def forget(self, offset: int) -> None:
        """Remove one file, if it is there."""
        place = bisect_left(self._offsets, offset)
        if place == len(self._offsets) or self._offsets[place] != offset:
            return
        del self._offsets[place]
        if offset == self._taken:
            self._taken = _NOWHERE
        with suppress(FileNotFoundError):
            self._files.remove(self.path(offset))
            self._names_changed = True
