"""One segment of a log: a file of batches, its indexes, and the aborted transactions whose markers lie in it.

Guarantees:
- `size_bytes` covers whole batches only. What a failed write left behind it is cut off before the error is raised.
- Offsets rise from batch to batch, and the first is not below `base_offset`.
- Reading never depends on the indexes being complete or right: they only say where to start looking, and the batch that
  lies there must bear them out. If it does not, they are made anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.log_context import logger
from barnabas.records._kernel.scan import covers_offset, find_offset, find_timestamp
from barnabas.records.batch import HEADER, BatchView
from barnabas.records.legacy import LegacyMessage
from barnabas.records.reading import iter_entries
from barnabas.storage._kernel.appending import SegmentTail
from barnabas.storage.aborted import AbortedTransactions
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import File, FileSystem, join
from barnabas.storage.indexes import MAX_RELATIVE_OFFSET, OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from barnabas.storage.searching import Search

_log = logger("barnabas.storage")

Entry = BatchView | LegacyMessage

LOG_SUFFIX: Final = ".log"
ABORTED_SUFFIX: Final = ".txnindex"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
#: All files of a segment, the data first.
SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

_NO_TIMESTAMP_MS: Final = -1
_ENDLESS: Final = 2**63
# Enough for the stretch between two index entries at the default interval, and a header.
_HEADER_BYTES: Final = HEADER.size
_MAGIC_AT: Final = 16
_MAX_MAGIC: Final = 2
_LOOK_BYTES: Final = 4096 + _HEADER_BYTES
# Who must not wait gives up after so many looks: the index does not say much then.
_MOST_LOOKS_NOW: Final = 16
# Looking through more records takes too long where others wait, and so may unpacking compressed ones.
_FEW_RECORDS: Final = 1000
# From how many bytes on setting up a mapping costs less than a copy.
_MAPPED_BYTES: Final = 128 * 1024
# How much of a file is read at once when all of it must be read.
SCAN_BYTES: Final = 1024 * 1024


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


def _first_not_older(timestamp_ms: int, from_offset: int, entry: Entry) -> tuple[int, int] | None:
    for record in entry.records(from_offset):
        if record.timestamp_ms >= timestamp_ms:
            return record.timestamp_ms, record.offset
    return None


def _first_youngest(than_ms: int, from_offset: int, entry: Entry) -> tuple[int, int] | None:
    """The first record with the highest timestamp, if that is above `than_ms`."""
    best: tuple[int, int] | None = None
    for record in entry.records(from_offset):
        if record.timestamp_ms > than_ms:
            than_ms = record.timestamp_ms
            best = record.timestamp_ms, record.offset
    return best


class FileRange(NamedTuple):
    """Bytes of a file that can be sent as they lie there."""

    file: File
    position: int
    size_bytes: int

    def read(self) -> bytes:
        data = self.file.read_at(self.position, self.size_bytes)
        if len(data) != self.size_bytes:
            raise CorruptLogError(self.file.path, self.position + len(data), "the file is shorter than it was")
        return data

    def read_now(self) -> bytes | bytearray | None:
        """The bytes if they are in memory, or None: then `read` has to wait for the disk, away from the loop, or tells
        that the file does not hold as many any more."""
        data = self.file.read_now(self.position, self.size_bytes)
        return None if data is None or len(data) != self.size_bytes else data

    def map_now(self) -> bytes | bytearray | memoryview | None:
        """The same for a system call alone: much of it is not copied, but sent from where it lies."""
        mapped = None
        if self.size_bytes >= _MAPPED_BYTES:
            mapped = self.file.map_now(self.position, self.size_bytes)
        return self.read_now() if mapped is None else mapped


class Location(NamedTuple):
    """Where a batch lies."""

    position: int
    size_bytes: int
    last_offset: int


class BatchPlace(NamedTuple):
    """Which place in the log a batch takes, by its header."""

    base_offset: int
    last_offset: int
    leader_epoch: int


class Segment(SegmentTail):
    """A segment that is open. The last one of a log is appended to, the others only read."""

    __slots__ = ("_files", "_stem", "_suffix", "aborted", "cut_count", "is_removed")

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        base_offset: int,
        *,
        index_bytes: int,
        index_interval_bytes: int,
        create: bool,
        suffix: str = "",
    ) -> None:
        self._files = files
        self._stem = join(directory, segment_name(base_offset))
        self._suffix = suffix
        self.base_offset = base_offset
        self.is_removed = False
        self.offset_index = OffsetIndex(files, self.path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(files, self.path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.aborted = AbortedTransactions(files, self.path(ABORTED_SUFFIX))
        self.file = files.open(self.path(LOG_SUFFIX), create=create)
        self.size_bytes = self.file.size()
        if create and not self.size_bytes:
            self.create_indexes()
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_entry = 0
        #: How often a part was cut off: who has read the segment before must read it again.
        self.cut_count = 0
        #: Whether the indexes cannot take another entry; learned when one is added.
        self.is_index_full = False
        # The highest timestamp and the last offset of its batch; None until it is needed.
        self._max_timestamp = (_NO_TIMESTAMP_MS, base_offset) if not self.size_bytes else None
        # The highest timestamp that the index by time was told of.
        self._indexed_timestamp = None
        self._first_timestamp_ms = None

    def path(self, suffix: str) -> str:
        return self._stem + suffix + self._suffix

    def create_indexes(self) -> None:
        self.offset_index.create()
        self.time_index.create()

    def __repr__(self) -> str:
        return f"<segment {self.path(LOG_SUFFIX)}, {self.size_bytes} bytes>"

    # Appending

    def can_hold(self, last_offset: int) -> bool:
        return last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def offset_limit(self, bound: int) -> int:
        """The first offset that it cannot hold if the next segment begins at `bound`."""
        return min(bound, self.base_offset + MAX_RELATIVE_OFFSET + 1, _ENDLESS - 1)

    def append(self, data: bytes | bytearray | memoryview, last_offset: int, max_timestamp_ms: int) -> None:
        """Write one batch."""
        position, size_bytes = self.size_bytes, len(data)
        try:
            self.file.write_at(position, data)
        except OSError:
            # A part may have landed. If it stayed, a shorter batch written over it could leave whole batches of the
            # failed write behind, and recovery would take them for real.
            self.file.truncate(position)
            raise
        self.size_bytes = position + size_bytes
        self.note_batch(position, size_bytes, last_offset, max_timestamp_ms)

    def append_batches(self, data: memoryview, batches: list[BatchView]) -> None:
        """Write several batches with one write."""
        position = self.size_bytes
        try:
            self.file.write_at(position, data)
        except OSError:
            self.file.truncate(position)
            raise
        self.size_bytes = position + len(data)
        for batch in batches:
            self.index_entry(position, batch)
            position += batch.size_bytes

    # Timestamps

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The highest timestamp, and the last offset of the batch that has it; -1 if there is none."""
        return self._max_timestamp or self.learn_max_timestamp(self.size_bytes)

    def learn_max_timestamp(self, end_position: int) -> tuple[int, int]:
        """From the index, unless the batches before `end_position` say that it is wrong."""
        problem = self._time_index_problem(end_position)
        if problem:
            self.rebuild_indexes(problem)
        entry = self.time_index.last_entry
        self._max_timestamp = entry.timestamp_ms, entry.offset
        return self._max_timestamp

    def _time_index_problem(self, end_position: int) -> str:
        """Why the last entry of the time index cannot be right, by the batch that it names and by the last one."""
        try:
            entry = self.time_index.last_entry
        except CorruptLogError as problem:
            return str(problem)
        if entry.timestamp_ms >= 0 and not self._bears_out_time(entry):
            return f"{self.time_index.path}: its last entry is of no batch"
        youngest_ms = _NO_TIMESTAMP_MS
        for position, batch in self.positioned_entries(self._position_for(MAX_RELATIVE_OFFSET + self.base_offset)):
            if position >= end_position:
                break
            youngest_ms = batch.max_timestamp_ms
        if youngest_ms > entry.timestamp_ms:
            return f"{self.time_index.path}: the timestamp of the last batch is not in it"
        return ""

    def _bears_out_time(self, entry: TimeEntry) -> bool:
        """Whether the batch with the offset of an entry has its timestamp. In old formats not all have one."""
        found = self._locate(entry.offset)
        if found is None:
            return False
        batch = next(self.entries(found[0]))
        if isinstance(batch, LegacyMessage):
            return True
        return batch.base_offset <= entry.offset and batch.max_timestamp_ms == entry.timestamp_ms

    @property
    def largest_timestamp_ms(self) -> int:
        """What retention by time goes by: the time of the file where no record has one."""
        timestamp_ms = self.max_timestamp[0]
        return timestamp_ms if timestamp_ms >= 0 else self._files.modified_ms(self.file.path)

    @property
    def first_timestamp_ms(self) -> int:
        """The timestamp of the first batch, from which the age of the segment counts; -1 if it is empty."""
        timestamp_ms = self._first_timestamp_ms
        if timestamp_ms is None:
            first = next(self.entries(), None)
            if first is None:
                return _NO_TIMESTAMP_MS
            timestamp_ms = self._first_timestamp_ms = first.max_timestamp_ms
        return timestamp_ms

    # Reading

    def locate(self, offset: int) -> Location | None:
        """The first batch that reaches `offset`, or None if none does."""
        found = self._locate(offset)
        return None if found is None else Location(*found)

    def _locate(self, offset: int) -> tuple[int, int, int] | None:
        # A plain tuple: a consumer that reads in order pays for every object made here.
        found = self.recent.get(offset)
        if found is not None:
            return found
        try:
            return self._search(offset)
        except CorruptLogError as problem:
            if not self.offset_index.surroundings(offset)[0]:
                raise
            # Whose fault is it? If it is not the index's, the batches will say so now.
            self.rebuild_indexes(str(problem))
            return self._search(offset)

    def _search(self, offset: int) -> tuple[int, int, int] | None:
        position, next_position = self._surroundings(offset)
        if next_position - position > _LOOK_BYTES:
            # Batches are so large that the next entry is likely the next batch, and the one that is wanted.
            size_bytes, last_offset = covers_offset(self.file.read_at(next_position, _HEADER_BYTES), offset)
            if size_bytes > 0:
                return next_position, size_bytes, last_offset
        must_be_checked = position != 0
        while position < self.size_bytes:
            look = self.file.read_at(position, min(_LOOK_BYTES, self.size_bytes - position))
            if must_be_checked:
                must_be_checked = False
                if not self._lies_at_or_below(look, offset):
                    self.rebuild_indexes(self._not_a_batch(position))
                    position = self.offset_index.surroundings(offset)[0]
                    continue
            try:
                step, size_bytes, last_offset = find_offset(look, offset)
            except RemoteProtocolError as error:
                raise CorruptLogError(self.file.path, position, str(error)) from None
            if size_bytes:
                if int.from_bytes(look[step : step + 8], "big", signed=True) > offset:
                    self._check_gap(position + step, offset)
                return position + step, size_bytes, last_offset
            if not step:
                raise CorruptLogError(self.file.path, position, "the file ends within a header")
            position += step
        if position > self.size_bytes:
            raise CorruptLogError(self.file.path, self.size_bytes, "the file ends within a batch")
        return None

    def header_now(self, offset: int) -> bytes | bytearray | None:
        """The header of the first batch that reaches `offset`; nothing if none does. None if that cannot be told
        without waiting for the disk, which may be otherwise the next time, or not by the index as it is, or if it is
        not of today's format."""
        recent = self.recent.get(offset)
        if recent is not None:
            return self._look_now(recent[0], _HEADER_BYTES)
        position = self.offset_index.position_now(offset)
        if position is None:
            return None
        must_be_checked = position != 0
        for _ in range(_MOST_LOOKS_NOW):
            if position == self.size_bytes:
                return b""
            look = self._look_now(position, max(0, min(_LOOK_BYTES, self.size_bytes - position)))
            if look is None or (must_be_checked and not self._begins_at_or_below(look, offset)):
                return None
            must_be_checked = False
            try:
                step, size_bytes, _ = find_offset(look, offset)
            except RemoteProtocolError:
                return None  # who reads it will be told
            position += step
            if size_bytes:
                header = look[step : step + _HEADER_BYTES]
                return header if len(header) == _HEADER_BYTES and header[_MAGIC_AT] == _MAX_MAGIC else None
            if not step:
                return None
        return None

    def _look_now(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        """What is in memory of that. Who looks again after a while finds what was not."""
        look = self.file.read_now(position, size_bytes)
        if look is None:
            self.file.prefetch(position, size_bytes)
        return look

    def _check_gap(self, position: int, offset: int) -> None:
        """Raise if a batch that was found for an offset before its first cannot be where it is."""
        batch = next(self.entries(position))
        problem = self.misplaced(position, batch, offset) if isinstance(batch, BatchView) else ""
        if problem:
            raise CorruptLogError(self.file.path, position, problem)

    def misplaced(self, position: int, batch: BatchView, next_offset: int, bound: int = _ENDLESS) -> str:
        """Why a batch cannot be where it is, behind one that ends before `next_offset` and in a segment after which the
        next begins at `bound`: its offset is under no CRC, and the file may be another's."""
        if batch.base_offset < next_offset:
            return f"offset {batch.base_offset} comes after offset {next_offset - 1}"
        if not self.can_hold(batch.last_offset):
            return f"offset {batch.last_offset} is too far from the segment's first"
        if batch.last_offset >= bound:
            return f"it holds offset {batch.last_offset}, but the next segment begins at {bound}"
        if batch.base_offset > next_offset:
            following = self.header_at(position + batch.size_bytes)
            if following is not None and next_offset <= following.base_offset < batch.next_offset:
                return f"offset {batch.base_offset} lies between {next_offset - 1} and {following.base_offset}"
        return ""

    def _surroundings(self, offset: int) -> tuple[int, int]:
        """As the index's, which is made anew if it points outside the file or cannot be read."""
        try:
            around = self.offset_index.surroundings(offset)
        except CorruptLogError as problem:
            self.rebuild_indexes(str(problem))
            return self.offset_index.surroundings(offset)
        if around[0] and not 0 < around[0] < self.size_bytes:
            self.rebuild_indexes(self._not_a_batch(around[0]))
            return self.offset_index.surroundings(offset)
        return around

    def _position_for(self, offset: int) -> int:
        """Where to begin to look for an offset: where the index says, if the batch there bears that out."""
        position = self._surroundings(offset)[0]
        if position and not self.bears_out(self.offset_index.lookup(offset)):
            self.rebuild_indexes(self._not_a_batch(position))
            position = self.offset_index.surroundings(offset)[0]
        return position

    def _lies_at_or_below(self, header: bytes, offset: int) -> bool:
        """Whether a batch begins with these bytes that leaves no records out which are looked for from `offset` on."""
        return self._begins_at_or_below(header, offset) and (
            header[_MAGIC_AT] == _MAX_MAGIC or self._begins_with_old_format()
        )

    def _begins_at_or_below(self, header: bytes | bytearray, offset: int) -> bool:
        """The same, for all that these bytes themselves can say."""
        return (
            len(header) > _MAGIC_AT
            and header[_MAGIC_AT] <= _MAX_MAGIC
            and self.base_offset <= int.from_bytes(header[:8], "big", signed=True) <= offset
            and 0 < int.from_bytes(header[8:12], "big", signed=True) < self.size_bytes
        )

    def _begins_with_old_format(self) -> bool:
        """Only then may there be more of it: what is appended is in today's."""
        return self.size_bytes > _HEADER_BYTES and self.file.read_at(_MAGIC_AT, 1)[0] < _MAX_MAGIC

    def bears_out(self, entry: OffsetEntry) -> bool:
        """Whether a batch begins where an index entry says, and not beyond the entry's offset."""
        return self._lies_at_or_below(self.file.read_at(entry.position, _HEADER_BYTES), entry.offset)

    def _not_a_batch(self, position: int) -> str:
        return f"{self.offset_index.path}: it points to byte {position}, where the batch that it means is not"

    def rebuild_indexes(self, why: str) -> None:
        """Make the indexes by offset and time anew from the batches, which are all read; a warning says why."""
        _log.warning("%s; the indexes are made anew", why)
        self.begin_rebuild()
        next_offset = self.base_offset
        for position, entry in self.positioned_entries():
            problem = self.misplaced(position, entry, next_offset) if isinstance(entry, BatchView) else ""
            if problem:
                raise CorruptLogError(self.file.path, position, problem)
            self.index_entry(position, entry)
            next_offset = entry.next_offset
        self.finish()
        self.write_indexes(sync=True)

    def end_position(self, end_offset: int) -> int:
        """Up to where it may be read by those who must not see `end_offset`."""
        found = self.locate(end_offset)
        return self.size_bytes if found is None else found.position

    def read(self, offset: int, max_bytes: int, end_position: int, *, at_least_one: bool) -> FileRange | None:
        """The bytes from the batch that reaches `offset` on, up to `end_position`; None if there is no such batch.

        They may end within a batch, but never within the first: if that is too large there are none or, with
        `at_least_one`, it comes alone.
        """
        found = self._locate(offset)
        if found is None:
            return None
        position, batch_bytes, _ = found
        if position + batch_bytes > self.size_bytes:
            raise CorruptLogError(self.file.path, position, "the file ends within a batch")
        if batch_bytes > max_bytes:
            max_bytes = batch_bytes if at_least_one else 0
        left_bytes = end_position - position if end_position > position else 0
        return FileRange(self.file, position, max_bytes if max_bytes < left_bytes else left_bytes)

    def entries(self, from_position: int = 0) -> Iterator[Entry]:
        """All batches from a position on. `CorruptLogError` for what is not a batch, also for a cut-off last one."""
        for _, entry in self.positioned_entries(from_position):
            yield entry

    def positioned_entries(self, from_position: int = 0) -> Iterator[tuple[int, Entry]]:
        """All batches from a position on, with where they lie."""
        position, wanted_bytes = from_position, SCAN_BYTES
        while position < self.size_bytes:
            chunk = self.file.read_at(position, min(wanted_bytes, self.size_bytes - position))
            walk = iter_entries(chunk)
            try:
                for entry in walk:
                    yield position + walk.position - entry.size_bytes, entry
            except RemoteProtocolError as error:
                raise CorruptLogError(self.file.path, position + walk.position, str(error)) from None
            if walk.position:
                position += walk.position
                wanted_bytes = SCAN_BYTES
            elif len(chunk) < min(wanted_bytes, self.size_bytes - position) or len(chunk) == self.size_bytes - position:
                raise CorruptLogError(self.file.path, position, "the file ends within a batch")
            else:
                wanted_bytes = max(wanted_bytes * 2, 12 + int.from_bytes(chunk[8:12], "big"))

    def next_offset(self) -> int:
        """The offset after the last batch."""
        last = self.last_entry()
        return self.base_offset if last is None else last.next_offset

    def last_entry(self) -> Entry | None:
        """The last batch, if there is one."""
        tail = deque(self.entries(self._position_for(self.base_offset + MAX_RELATIVE_OFFSET)), maxlen=1)
        return tail[0] if tail else None

    def header_at(self, position: int) -> BatchPlace | None:
        """What the header of the batch at a position says; None if there is none of today's format."""
        header = self.file.read_at(position, _HEADER_BYTES) if position < self.size_bytes else b""
        if len(header) < _HEADER_BYTES or header[_MAGIC_AT] != _MAX_MAGIC:
            return None
        base_offset, _, leader_epoch, _, _, _, last_offset_delta, *_ = HEADER.unpack(header)
        return BatchPlace(base_offset, base_offset + last_offset_delta, leader_epoch)

    def find_timestamp(self, timestamp_ms: int, from_offset: int) -> Search[tuple[int, int] | None]:
        """The timestamp and offset of the first record from `from_offset` on that is not older than `timestamp_ms`."""
        if self.max_timestamp[0] < timestamp_ms:
            return None
        indexed = self.time_index.lookup(timestamp_ms)
        if indexed.timestamp_ms >= 0 and not self._bears_out_time(indexed):
            self.rebuild_indexes(f"{self.time_index.path}: an entry is of no batch")
            indexed = self.time_index.lookup(timestamp_ms)
        position = self._position_for(max(indexed.offset, from_offset))
        while position < self.size_bytes:
            look = self.file.read_at(position, min(_LOOK_BYTES, self.size_bytes - position))
            try:
                step, size_bytes = find_timestamp(look, timestamp_ms, from_offset)
            except RemoteProtocolError as error:
                raise CorruptLogError(self.file.path, position, str(error)) from None
            if size_bytes:
                found = yield from self._look_at(position + step, partial(_first_not_older, timestamp_ms, from_offset))
                if found is not None:
                    return found
                step += size_bytes
            elif not step:
                raise CorruptLogError(self.file.path, position, "the file ends within a header")
            position += step
        return None

    def find_max_timestamp(self, from_offset: int) -> Search[tuple[int, int] | None]:
        """The highest timestamp from `from_offset` on, and the offset of the first record that has it."""
        timestamp_ms, batch_end = self.max_timestamp
        location = self.locate(max(batch_end, from_offset))
        if timestamp_ms < 0 or location is None:
            return None
        if location.last_offset == batch_end:
            youngest = yield from self._look_at(location.position, partial(_first_not_older, timestamp_ms, from_offset))
            if youngest is not None and youngest[0] == timestamp_ms:
                return youngest
        # The youngest record is deleted, although its segment is still there.
        best: tuple[int, int] | None = None
        for position, entry in self.positioned_entries(location.position):
            least_ms = _NO_TIMESTAMP_MS if best is None else best[0]
            if entry.max_timestamp_ms > least_ms:
                best = (yield from self._look_at(position, partial(_first_youngest, least_ms, from_offset))) or best
        return best

    def _look_at(
        self, position: int, look: Callable[[Entry], tuple[int, int] | None]
    ) -> Search[tuple[int, int] | None]:
        """What `look` finds among the records of the batch at a position, of which there may be millions."""
        entry = next(self.entries(position))

        def work() -> tuple[int, int] | None:
            try:
                return look(entry)
            except RemoteProtocolError as error:
                raise CorruptLogError(self.file.path, position, str(error)) from None

        is_small = isinstance(entry, BatchView) and not entry.codec and entry.record_count <= _FEW_RECORDS
        return work() if is_small else (yield work)

    # Changing

    def truncate_to(self, offset: int) -> int:
        """Cut off all batches that reach `offset`; how many bytes went."""
        found = self.locate(offset)
        if found is None:
            return 0
        removed_bytes = self.size_bytes - found.position
        self.cut_at(found.position, offset)
        return removed_bytes

    def cut_at(self, position: int, offset: int) -> None:
        """Make the file end at `position`, where `offset` comes next; for good, as what was cut must not come back."""
        self.cut_count += 1
        self.recent.clear()
        self.file.truncate(position)
        self.file.sync()
        self.size_bytes = position
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.aborted.truncate_to(offset)
        self._bytes_since_entry = 0
        self.is_index_full = False
        self._max_timestamp = (_NO_TIMESTAMP_MS, self.base_offset) if not position else self._read_max_timestamp()
        self._first_timestamp_ms = None

    def _read_max_timestamp(self) -> tuple[int, int]:
        highest = self.time_index.last_entry.timestamp_ms, self.time_index.last_entry.offset
        for entry in self.entries(self._position_for(highest[1])):
            if entry.max_timestamp_ms > highest[0]:
                highest = entry.max_timestamp_ms, entry.last_offset
        return highest

    def index_entry(self, position: int, entry: Entry) -> None:
        """Take a batch that lies in the file already into the indexes."""
        self.note_batch(position, entry.size_bytes, entry.last_offset, entry.max_timestamp_ms)

    def begin_rebuild(self) -> None:
        """Forget the indexes by offset and time, to make them anew from the batches."""
        self.create_indexes()
        self._bytes_since_entry = 0
        self.is_index_full = False
        self._max_timestamp = (_NO_TIMESTAMP_MS, self.base_offset)
        self._first_timestamp_ms = None

    # Life

    def finish(self) -> None:
        """Called when no more batches will come: the indexes get their last entry and reach their files."""
        self.recent.clear()
        if self.size_bytes:
            self.time_index.append(*self.max_timestamp, closing=True)
        self.write_indexes()

    def write_indexes(self, *, sync: bool = False) -> None:
        self.offset_index.write(sync=sync)
        self.time_index.write(sync=sync)

    def begin_flush(self) -> list[Callable[[], None]]:
        """Write what is still in memory; what is returned makes all of it safe, and may be called in another thread."""
        self.write_indexes()
        return [
            self._sync_data,
            *self.offset_index.begin_sync(),
            *self.time_index.begin_sync(),
            *self.aborted.begin_sync(),
        ]

    def _sync_data(self) -> None:
        try:
            self.file.sync()
        except OSError:
            if not self.is_removed:
                raise

    def flush(self) -> None:
        """Make the segment safe against a crash of the machine."""
        for sync in self.begin_flush():
            sync()

    def unload_indexes(self) -> None:
        self.offset_index.unload()
        self.time_index.unload()

    def close(self) -> None:
        self.file.close()
        self.aborted.close()

    def rename_suffix(self, suffix: str, *, after_data: Callable[[], None] = lambda: None) -> None:
        """Give all files another suffix, the data first: whoever finds it half done goes by the data's name.

        `after_data` is called when the data has its new name and the others have not.
        """
        old = {kind: self.path(kind) for kind in SUFFIXES}
        self._suffix = suffix
        for kind in SUFFIXES:
            # Left by an earlier segment of this name: if it stayed beside the index that has not got its new name yet,
            # what we do would look like a loss of the data.
            if kind != LOG_SUFFIX and self._files.exists(self.path(kind)):
                self._files.remove(self.path(kind))
        for kind, path in old.items():
            if self._files.exists(path):
                self._files.rename(path, self.path(kind))
            if kind == LOG_SUFFIX:
                after_data()
        self.offset_index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.aborted.path = self.path(ABORTED_SUFFIX)

    def remove(self) -> None:
        """Remove all files."""
        self.is_removed = True
        self.close()
        for kind in SUFFIXES:
            if self._files.exists(self.path(kind)):
                self._files.remove(self.path(kind))
