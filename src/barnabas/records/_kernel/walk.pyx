# cython: boundscheck=False, wraparound=False
"""Steps from batch to batch, reads a batch's header, and checks a batch's records without making objects."""

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t

from barnabas.records._kernel.bytes cimport (
    PyMemoryView_GET_BUFFER, data_of, load_i16, load_i32, load_i64, load_u32, plain_view, size_of, store_i32, store_i64,
)
from barnabas.records._kernel.crc cimport has_native_crc, native_crc
from barnabas.records._kernel.cursor cimport (
    MIN_RECORD_BYTES, Cursor, RawRecord, cursor_over, end_record, fail, read_record, skip_headers,
)

from crc32c import crc32c

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError

cdef class RecordSummary

cdef enum:
    FRAME_BYTES = 12          # base offset and length: the same in every message format
    MIN_ENTRY_BYTES = 26      # the smallest message of format 0, which has 14 bytes after the frame
    MAGIC_AT = 16
    BATCH_HEADER_BYTES = 61
    ATTRIBUTES_AT = 21        # the CRC covers everything from here on
    TRANSACTIONAL_BIT = 0x10
    SHORT_BATCH_BYTES = 1024  # up to here a loop without a call is faster than the library


@cython.final
cdef class EntryWalk:
    """Iterates over the log entries (batches, or old messages) in a buffer; `make` turns each entry's bytes into one.

    Where both may come, `make_old` is for those of the formats before today's. The walk ends before an entry that the
    buffer holds only in part: `truncated` then says so, and `position` is where that entry begins.
    """

    def __init__(self, buffer, make, make_old=None):
        self.view = plain_view(buffer)
        self.make = make
        self.make_old = make if make_old is None else make_old
        self.position = 0

    @property
    def truncated(self) -> bool:
        cdef Py_ssize_t left = size_of(self.view) - self.position
        if left < FRAME_BYTES:
            return left > 0
        return left < FRAME_BYTES + load_i32(data_of(self.view) + self.position + 8)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t left = size_of(self.view) - self.position
        cdef int64_t entry_bytes
        if left < FRAME_BYTES:
            raise StopIteration
        entry_bytes = <int64_t>load_i32(data_of(self.view) + self.position + 8) + FRAME_BYTES
        if entry_bytes < MIN_ENTRY_BYTES:
            raise RemoteProtocolError(f"a batch is said to have {entry_bytes} bytes, at byte {self.position}")
        if left < entry_bytes:
            raise StopIteration
        make = self.make_old if data_of(self.view)[self.position + MAGIC_AT] < 2 else self.make
        entry = make(self.view[self.position : self.position + entry_bytes])
        self.position += entry_bytes
        return entry


cdef class BatchHeader:
    """The header of one batch of format 2, over `data`, the bytes of the whole batch."""

    cdef readonly memoryview data
    cdef readonly int64_t base_offset
    cdef readonly int32_t leader_epoch
    cdef readonly uint8_t magic
    cdef readonly unsigned int crc
    cdef readonly short attributes
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t producer_id
    cdef readonly short producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t record_count

    def __init__(self, data):
        self.data = plain_view(data)
        self.read_header()

    @property
    def size_bytes(self) -> int:
        return size_of(self.data)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    def is_intact(self) -> bool:
        """Whether the batch is as its builder left it, by its CRC."""
        cdef memoryview view = plain_view(self.data)  # as in `read_header`
        return <unsigned int>crc32c(view[ATTRIBUTES_AT:]) == self.crc

    def follows(self, int64_t next_offset, int64_t bound) -> bool:
        """Whether the batch begins just at `next_offset`, ends before `bound`, and leaves out no offset."""
        return (
            self.base_offset == next_offset
            and self.record_count == <int64_t>self.last_offset_delta + 1
            and next_offset <= bound - self.record_count
        )

    def stamp(self, *, int64_t base_offset, int32_t leader_epoch):
        """Give the batch its place in the log. The CRC covers neither field."""
        cdef uint8_t* at = <uint8_t*>data_of(self.data)
        if PyMemoryView_GET_BUFFER(self.data).readonly:
            raise LocalProtocolError("a batch can be stamped only in a writable buffer")
        store_i64(at, base_offset)
        store_i32(at + 12, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def summarise_if_usual(self) -> RecordSummary | None:
        """What the records of a batch are like that a producer has just sent, if nothing is unusual about it.

        Usual is: in writable memory, with the base offset 0, not compressed, no control batch, timestamps of the
        producer; offsets that count up from 0; a header that agrees with the records, in the CRC and the highest
        timestamp too; a sequence if there is a producer id. None for all else, also for what is wrong: whoever has
        the time to look closely can say what it is.
        """
        cdef memoryview view = plain_view(self.data)  # as in `read_header`
        cdef WalkedRecords walked
        if PyMemoryView_GET_BUFFER(view).readonly:
            return None
        if not is_usual_header(data_of(view), size_of(view)):
            return None
        if not has_usual_records(data_of(view), size_of(view), crc_of(view, 0, size_of(view)), &walked):
            return None
        return summary_of(&walked)

    def read_header(self):
        """Read the fields from `data` again, for those who have just written there."""
        cdef memoryview view = plain_view(self.data)  # `data` is public, so somebody may have released it
        cdef Py_ssize_t size_bytes = size_of(view)
        cdef const uint8_t* at = data_of(view)
        if size_bytes > MAGIC_AT and at[MAGIC_AT] != 2:
            raise RemoteProtocolError(f"a batch has magic {at[MAGIC_AT]}, where 2 was expected")
        if size_bytes < BATCH_HEADER_BYTES:
            raise RemoteProtocolError(f"a batch has {size_bytes} bytes; its header alone takes {BATCH_HEADER_BYTES}")
        if <int64_t>load_i32(at + 8) + FRAME_BYTES != size_bytes:
            raise RemoteProtocolError(f"a batch says {load_i32(at + 8) + FRAME_BYTES} bytes but has {size_bytes}")
        self.base_offset = load_i64(at)
        self.leader_epoch = load_i32(at + 12)
        self.magic = at[MAGIC_AT]
        self.crc = load_u32(at + 17)
        self.attributes = load_i16(at + 21)
        self.last_offset_delta = load_i32(at + 23)
        self.base_timestamp_ms = load_i64(at + 27)
        self.max_timestamp_ms = load_i64(at + 35)
        self.producer_id = load_i64(at + 43)
        self.producer_epoch = load_i16(at + 51)
        self.base_sequence = load_i32(at + 53)
        self.record_count = load_i32(at + 57)
        if self.record_count < 0:
            raise RemoteProtocolError(f"a batch says it has {self.record_count} records, at byte 57")
        if self.last_offset_delta < 0:
            raise RemoteProtocolError(f"a batch has the last offset delta {self.last_offset_delta}, at byte 23")


@cython.final
cdef class RecordSummary:
    """What a walk over all records of a batch found. An index of -1 means that no record is of that kind."""

    cdef readonly int32_t record_count
    cdef readonly int32_t last_offset_delta
    cdef readonly int32_t first_gap
    cdef readonly int32_t first_disorder
    cdef readonly int32_t first_null_key
    cdef readonly int64_t min_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int32_t max_timestamp_offset_delta

    def __repr__(self):
        return (
            f"RecordSummary(record_count={self.record_count}, last_offset_delta={self.last_offset_delta}, "
            f"first_gap={self.first_gap}, first_disorder={self.first_disorder}, "
            f"first_null_key={self.first_null_key}, min_timestamp_ms={self.min_timestamp_ms}, "
            f"max_timestamp_ms={self.max_timestamp_ms}, "
            f"max_timestamp_offset_delta={self.max_timestamp_offset_delta})"
        )


cdef RecordSummary summary_of(const WalkedRecords* walked):
    cdef RecordSummary found = RecordSummary.__new__(RecordSummary)
    found.record_count = walked.record_count
    found.last_offset_delta = walked.last_offset_delta
    found.first_gap = walked.first_gap
    found.first_disorder = walked.first_disorder
    found.first_null_key = walked.first_null_key
    found.min_timestamp_ms = walked.min_timestamp_ms
    found.max_timestamp_ms = walked.max_timestamp_ms
    found.max_timestamp_offset_delta = walked.max_timestamp_offset_delta
    return found


cdef bint is_usual_header(const uint8_t* at, Py_ssize_t size_bytes) noexcept nogil:
    """Whether nothing is unusual about the header of a batch that a producer sent, but perhaps that it lies."""
    cdef int32_t record_count
    if size_bytes < BATCH_HEADER_BYTES or at[MAGIC_AT] != 2:
        return False
    if <int64_t>load_i32(at + 8) + FRAME_BYTES != size_bytes or load_i64(at):
        return False
    record_count = load_i32(at + 57)
    return (
        not load_i16(at + ATTRIBUTES_AT) & ~TRANSACTIONAL_BIT
        and 1 <= record_count <= (size_bytes - BATCH_HEADER_BYTES) // MIN_RECORD_BYTES
        and load_i32(at + 23) == record_count - 1
        and (load_i64(at + 43) < 0 or load_i32(at + 53) >= 0)
    )


cdef bint has_usual_records(
    const uint8_t* at, Py_ssize_t size_bytes, unsigned int crc, WalkedRecords* walked
) noexcept nogil:
    """Whether the records agree with a usual header, and with the CRC that was made of them."""
    cdef Cursor cursor
    if crc != load_u32(at + 17):
        return False
    cursor = cursor_over(at + BATCH_HEADER_BYTES, size_bytes - BATCH_HEADER_BYTES)
    return (
        walk_records(&cursor, load_i32(at + 57), load_i64(at + 27), walked)
        and walked.first_gap < 0
        and walked.max_timestamp_ms == load_i64(at + 35)
    )


cdef unsigned int crc_of(memoryview view, Py_ssize_t start, Py_ssize_t size_bytes) except? 0:
    """Of the batch that begins at `start` of a view. The library is faster than a simple loop, once it is called."""
    if size_bytes <= SHORT_BATCH_BYTES and has_native_crc():
        return native_crc(data_of(view) + start + ATTRIBUTES_AT, size_bytes - ATTRIBUTES_AT)
    return <unsigned int>crc32c(view[start + ATTRIBUTES_AT : start + size_bytes])


cdef bint walk_records(
    Cursor* cursor, int32_t count, int64_t base_timestamp_ms, WalkedRecords* found
) noexcept nogil:
    cdef const uint8_t* payload_end = cursor.end
    cdef RawRecord record
    cdef int32_t i, last_offset_delta = -1, max_offset_delta = -1
    cdef int32_t first_gap = -1, first_disorder = -1, first_null_key = -1
    cdef int64_t timestamp_ms, min_ms = INT64_MAX, max_ms = INT64_MIN
    for i in range(count):
        if not read_record(cursor, &record):
            return False
        if record.header_count and not skip_headers(cursor, record.header_count):
            return False
        if not end_record(cursor, payload_end):
            return False
        if record.offset_delta != i and first_gap < 0:
            first_gap = i
        if record.offset_delta <= last_offset_delta and first_disorder < 0:
            first_disorder = i
        last_offset_delta = record.offset_delta
        if record.key_size < 0 and first_null_key < 0:
            first_null_key = i
        timestamp_ms = <int64_t>(<uint64_t>base_timestamp_ms + <uint64_t>record.timestamp_delta)
        if timestamp_ms < min_ms:
            min_ms = timestamp_ms
        if timestamp_ms > max_ms or i == 0:
            max_ms = timestamp_ms
            max_offset_delta = record.offset_delta
    if cursor.at != payload_end:
        cursor.failure = b"bytes are left after the last record"
        return False
    found.record_count = count
    found.last_offset_delta = last_offset_delta
    found.first_gap = first_gap
    found.first_disorder = first_disorder
    found.first_null_key = first_null_key
    found.min_timestamp_ms = min_ms if count else -1
    found.max_timestamp_ms = max_ms if count else -1
    found.max_timestamp_offset_delta = max_offset_delta
    return True


def summarise_records(payload, int32_t record_count, int64_t base_timestamp_ms) -> RecordSummary:
    """Check the form of every record in `payload` (decompressed) and tell what a broker needs to know of them."""
    cdef memoryview view = plain_view(payload)
    cdef Cursor cursor = cursor_over(data_of(view), size_of(view))
    cdef WalkedRecords walked
    cdef bint good
    if record_count > size_of(view) // MIN_RECORD_BYTES:
        raise RemoteProtocolError(f"{record_count} records cannot fit in {size_of(view)} bytes")
    with nogil:
        good = walk_records(&cursor, record_count, base_timestamp_ms, &walked)
    if not good:
        fail(&cursor)
    return summary_of(&walked)
