"""The two indexes of a segment: from an offset to a place in the file, and from a timestamp to an offset.

Both are sparse: an entry every `index.interval.bytes` or so. New entries stay in memory until `write` puts them into
the file, which happens before the segment's data counts as flushed and when the segment is closed. A crash may
therefore lose entries, but only of data that recovery reads again anyway, and recovery writes the indexes anew.

What is in memory and written can be dropped with `unload` at any time; it is read again when asked for.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSystem, read_file, replace_content, sync_if_there

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class OffsetEntry(NamedTuple):
    """The batch at `position` ends with `offset`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """No record up to `offset` is younger than `timestamp_ms`."""

    timestamp_ms: int
    offset: int


class OffsetIndex:
    """`.index`: entries of relative offset and position, four bytes each, both rising."""

    __slots__ = ("_files", "_is_synced", "_offsets", "_positions", "_stored", "base_offset", "max_entries", "path")

    def __init__(self, files: FileSystem, path: str, base_offset: int, max_bytes: int) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // OFFSET_ENTRY_BYTES
        self._offsets: array[int] | None = None
        self._positions: array[int] | None = None
        # How many of the entries the file holds, and whether it was synced since.
        self._stored = 0
        self._is_synced = True

    def create(self) -> None:
        """Begin anew, with no entries."""
        self._offsets, self._positions = array("i"), array("i")
        self._stored = -1

    @property
    def is_loaded(self) -> bool:
        return self._offsets is not None

    def load(self) -> None:
        """Read all entries, for those who need them soon."""
        self._entries()

    def _entries(self) -> tuple[array[int], array[int]]:
        if self._offsets is None or self._positions is None:
            raw = read_file(self._files, self.path)
            if len(raw) % OFFSET_ENTRY_BYTES:
                raise CorruptLogError(self.path, len(raw), "an offset index does not end with a whole entry")
            numbers = array("i", raw)
            if sys.byteorder == "little":
                numbers.byteswap()
            self._offsets, self._positions = numbers[0::2], numbers[1::2]
            self._drop_unused_end()
            self._stored = len(self._offsets)
        return self._offsets, self._positions

    def _drop_unused_end(self) -> None:
        """An index that was not closed has the size it was given beforehand, and zeros where no entry came."""
        assert self._offsets is not None
        assert self._positions is not None
        while self._offsets and self._offsets[-1] == 0 and self._positions[-1] == 0:
            self._offsets.pop()
            self._positions.pop()

    def __len__(self) -> int:
        return len(self._entries()[0])

    @property
    def size_bytes(self) -> int:
        return len(self) * OFFSET_ENTRY_BYTES

    def append(self, offset: int, position: int) -> bool:
        """Add an entry; whether it was the last that there is room for."""
        offsets, positions = self._offsets, self._positions
        if offsets is None or positions is None:
            offsets, positions = self._entries()
        relative = offset - self.base_offset
        if not offsets or relative > offsets[-1]:
            offsets.append(relative)
            positions.append(position)
        return len(offsets) >= self.max_entries

    def lookup(self, offset: int) -> OffsetEntry:
        """The last entry that does not lie beyond `offset`, or the segment's beginning."""
        offsets, positions = self._entries()
        place = bisect_right(offsets, min(offset - self.base_offset, MAX_RELATIVE_OFFSET)) - 1
        if place < 0:
            return OffsetEntry(self.base_offset, 0)
        return OffsetEntry(self.base_offset + offsets[place], positions[place])

    def surroundings(self, offset: int) -> tuple[int, int]:
        """The positions of the last entry that does not lie beyond `offset` and of the one after it; 0 for none."""
        offsets, positions = self._offsets, self._positions
        if offsets is None or positions is None:
            offsets, positions = self._entries()
        place = bisect_right(offsets, offset - self.base_offset)
        return positions[place - 1] if place else 0, positions[place] if place < len(positions) else 0

    def position_now(self, offset: int) -> int | None:
        """The first of `surroundings`, without waiting for the disk and without keeping the entries in memory; None if
        it cannot be told so, yet."""
        if self._offsets is not None:
            return self.surroundings(offset)[0]
        file = self._files.open(self.path)
        try:
            low, high, found = 0, file.size() // OFFSET_ENTRY_BYTES, 0
            while low < high:
                middle = (low + high) // 2
                raw = file.read_now(middle * OFFSET_ENTRY_BYTES, OFFSET_ENTRY_BYTES)
                if raw is None or len(raw) < OFFSET_ENTRY_BYTES:
                    file.prefetch(0, file.size())
                    return None
                relative, position = _OFFSET_ENTRY.unpack(raw)
                is_unused = not relative and not position
                if is_unused or relative > offset - self.base_offset:
                    high = middle
                else:
                    low, found = middle + 1, position
            return found
        finally:
            file.close()

    def upper_bound(self, entry: OffsetEntry, size_bytes: int) -> OffsetEntry | None:
        """The first entry at least `size_bytes` further on in the file than `entry`, if there is one."""
        offsets, positions = self._entries()
        place = bisect_right(positions, min(entry.position + size_bytes - 1, MAX_RELATIVE_OFFSET))
        return OffsetEntry(self.base_offset + offsets[place], positions[place]) if place < len(offsets) else None

    def entry_at(self, position: int) -> OffsetEntry:
        """The last entry that does not lie beyond a place in the file, or the segment's beginning."""
        place = bisect_right(self._entries()[1], position) - 1
        return OffsetEntry(self.base_offset, 0) if place < 0 else self._entry(place)

    def _entry(self, place: int) -> OffsetEntry:
        offsets, positions = self._entries()
        return OffsetEntry(self.base_offset + offsets[place], positions[place])

    @property
    def last_entry(self) -> OffsetEntry:
        return self.lookup(self.base_offset + MAX_RELATIVE_OFFSET)

    def peek_last_entry(self) -> OffsetEntry | None:
        """The last entry, if there is one, without bringing the others into memory where that can be avoided."""
        if self._offsets is None:
            raw = _read_end(self._files, self.path, OFFSET_ENTRY_BYTES)
            relative, position = _OFFSET_ENTRY.unpack(raw) if raw else (0, 0)
            if relative or position:
                return OffsetEntry(self.base_offset + relative, position)
        return self.last_entry if len(self) else None

    def truncate_to(self, offset: int) -> None:
        """Forget entries at and beyond `offset`."""
        offsets, positions = self._entries()
        place = bisect_right(offsets, offset - 1 - self.base_offset)
        if place < len(offsets):
            del offsets[place:], positions[place:]
            self._stored = -1

    def check(self, log_bytes: int) -> None:
        """Raise unless the entries can be right for a segment of `log_bytes`."""
        offsets, positions = self._entries()
        for numbers, what in ((offsets, "offsets"), (positions, "positions")):
            if any(map(_falls, numbers, numbers[1:])):
                raise CorruptLogError(self.path, 0, f"the {what} of an offset index do not rise")
        if offsets and (offsets[0] < 0 or positions[-1] >= log_bytes):
            raise CorruptLogError(self.path, 0, "an offset index points outside its segment")

    def write(self, *, sync: bool = False) -> None:
        """Bring the file up to date, and with `sync` make it safe."""
        if self._offsets is None or self._positions is None or self._stored == len(self._offsets):
            if sync:
                for make_safe in self.begin_sync():
                    make_safe()
            return
        start = max(self._stored, 0)
        numbers = array("i", bytes(8 * (len(self._offsets) - start)))
        numbers[0::2], numbers[1::2] = self._offsets[start:], self._positions[start:]
        if sys.byteorder == "little":
            numbers.byteswap()
        replace_content(self._files, self.path, start * OFFSET_ENTRY_BYTES, numbers.tobytes(), sync=sync)
        self._stored = len(self._offsets)
        self._is_synced = sync

    def begin_sync(self) -> list[Callable[[], None]]:
        """What makes safe what was written, if anything was since the last time."""
        if self._is_synced:
            return []
        self._is_synced = True
        return [partial(sync_if_there, self._files, self.path)]

    def unload(self) -> None:
        """Free the memory if nothing would be lost."""
        if self._offsets is not None and self._stored == len(self._offsets):
            self._offsets = self._positions = None


class TimeIndex:
    """`.timeindex`: entries of timestamp and relative offset; an entry is added when the timestamp has risen."""

    __slots__ = ("_entries_or_none", "_files", "_is_synced", "_stored", "base_offset", "max_entries", "path")

    def __init__(self, files: FileSystem, path: str, base_offset: int, max_bytes: int) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // TIME_ENTRY_BYTES
        self._entries_or_none: tuple[array[int], array[int]] | None = None
        self._stored = 0
        self._is_synced = True

    def create(self) -> None:
        """Begin anew, with no entries."""
        self._entries_or_none = array("q"), array("i")
        self._stored = -1

    @property
    def is_loaded(self) -> bool:
        return self._entries_or_none is not None

    def _entries(self) -> tuple[array[int], array[int]]:
        if self._entries_or_none is None:
            raw = read_file(self._files, self.path)
            if len(raw) % TIME_ENTRY_BYTES:
                raise CorruptLogError(self.path, len(raw), "a time index does not end with a whole entry")
            pairs = list(_TIME_ENTRY.iter_unpack(raw))
            # As with the other index; but a first entry of zeros alone is one: a record may be of the year 1970.
            while len(pairs) > 1 and pairs[-1] == (0, 0):
                pairs.pop()
            timestamps = array("q", [timestamp_ms for timestamp_ms, _ in pairs])
            offsets = array("i", [relative for _, relative in pairs])
            self._entries_or_none = timestamps, offsets
            self._stored = len(offsets)
        return self._entries_or_none

    def __len__(self) -> int:
        return len(self._entries()[0])

    @property
    def size_bytes(self) -> int:
        return len(self) * TIME_ENTRY_BYTES

    def append(self, timestamp_ms: int, offset: int, *, closing: bool = False) -> bool:
        """Add an entry if time has gone on; whether there is no more room but for the one that closes the segment."""
        timestamps, offsets = self._entries_or_none or self._entries()
        is_full = len(offsets) >= self.max_entries - 1
        if timestamp_ms < 0 or (
            timestamps and (timestamp_ms <= timestamps[-1] or offset - self.base_offset <= offsets[-1])
        ):
            return is_full
        if closing or not is_full:
            timestamps.append(timestamp_ms)
            offsets.append(offset - self.base_offset)
        return is_full

    def lookup(self, timestamp_ms: int) -> TimeEntry:
        """The last entry that is not younger than asked for, or the segment's beginning."""
        timestamps, offsets = self._entries()
        place = bisect_right(timestamps, timestamp_ms) - 1
        if place < 0:
            return TimeEntry(-1, self.base_offset)
        return TimeEntry(timestamps[place], self.base_offset + offsets[place])

    @property
    def last_entry(self) -> TimeEntry:
        timestamps, offsets = self._entries()
        return TimeEntry(timestamps[-1], self.base_offset + offsets[-1]) if offsets else TimeEntry(-1, self.base_offset)

    def peek_last_entry(self) -> TimeEntry | None:
        """As of the other index. Zeros are no entry here: an index that was not closed begins with them too."""
        if self._entries_or_none is None:
            raw = _read_end(self._files, self.path, TIME_ENTRY_BYTES)
            timestamp_ms, relative = _TIME_ENTRY.unpack(raw) if raw else (0, 0)
            if timestamp_ms or relative:
                return TimeEntry(timestamp_ms, self.base_offset + relative)
        entry = self.last_entry
        return entry if entry != TimeEntry(0, self.base_offset) and len(self) else None

    def truncate_to(self, offset: int) -> None:
        """Forget entries at and beyond `offset`."""
        timestamps, offsets = self._entries()
        place = bisect_right(offsets, offset - 1 - self.base_offset)
        if place < len(offsets):
            del timestamps[place:], offsets[place:]
            self._stored = -1

    def check(self) -> None:
        """Raise unless the entries can be right."""
        timestamps, offsets = self._entries()
        for numbers, what in ((timestamps, "timestamps"), (offsets, "offsets")):
            if any(map(_falls, numbers, numbers[1:])):
                raise CorruptLogError(self.path, 0, f"the {what} of a time index do not rise")
        if offsets and offsets[0] < 0:
            raise CorruptLogError(self.path, 0, "a time index points outside its segment")

    def write(self, *, sync: bool = False) -> None:
        """Bring the file up to date, and with `sync` make it safe."""
        if self._entries_or_none is None or self._stored == len(self):
            if sync:
                for make_safe in self.begin_sync():
                    make_safe()
            return
        timestamps, offsets = self._entries_or_none
        start = max(self._stored, 0)
        new = b"".join(map(_TIME_ENTRY.pack, timestamps[start:], offsets[start:]))
        replace_content(self._files, self.path, start * TIME_ENTRY_BYTES, new, sync=sync)
        self._stored = len(offsets)
        self._is_synced = sync

    def begin_sync(self) -> list[Callable[[], None]]:
        """What makes safe what was written, if anything was since the last time."""
        if self._is_synced:
            return []
        self._is_synced = True
        return [partial(sync_if_there, self._files, self.path)]

    def unload(self) -> None:
        """Free the memory if nothing would be lost."""
        if self._entries_or_none is not None and self._stored == len(self):
            self._entries_or_none = None


def _read_end(files: FileSystem, path: str, size_bytes: int) -> bytes:
    """The last bytes of a file of entries; none if it is empty, or does not end with a whole entry."""
    file = files.open(path)
    try:
        end = file.size()
        return file.read_at(end - size_bytes, size_bytes) if end and not end % size_bytes else b""
    finally:
        file.close()


def _falls(earlier: int, later: int) -> bool:
    return later < earlier
