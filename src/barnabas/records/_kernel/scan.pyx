# cython: boundscheck=False, wraparound=False
"""Looks for a batch by offset or timestamp in a piece of a log, reading headers alone; steps over what is intact."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.records._kernel.bytes cimport data_of, load_i32, load_i64, load_u32, plain_view, size_of

from crc32c import crc32c

from barnabas.base.errors import RemoteProtocolError

cdef enum:
    FRAME_BYTES = 12
    MIN_ENTRY_BYTES = 26
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21        # the CRC covers everything from here on
    LAST_OFFSET_DELTA_AT = 23
    MAX_TIMESTAMP_AT = 35
    RECORD_COUNT_AT = 57
    HEADER_BYTES = 61


cdef inline bint has_header(const uint8_t* at, int64_t left_bytes) noexcept:
    return left_bytes >= MIN_ENTRY_BYTES and (left_bytes >= HEADER_BYTES or at[MAGIC_AT] < 2)


cdef inline int64_t entry_size(const uint8_t* at) except -1:
    cdef int64_t size_bytes = <int64_t>load_i32(at + 8) + FRAME_BYTES
    if size_bytes < MIN_ENTRY_BYTES:
        raise RemoteProtocolError(f"a batch is said to have {size_bytes} bytes")
    return size_bytes


cdef inline int64_t last_offset_of(const uint8_t* at) noexcept:
    # Entries of the old formats are wrappers or single messages: their offset is that of the last message.
    if at[MAGIC_AT] < 2:
        return load_i64(at)
    return load_i64(at) + load_i32(at + LAST_OFFSET_DELTA_AT)


def find_offset(buffer, int64_t offset):
    """The first entry that reaches `offset`, as (position, size, last offset).

    If there is none in `buffer`, the size is 0 and the position is where the search must go on: that of the first entry
    whose header is not wholly there.
    """
    cdef memoryview view = plain_view(buffer)
    cdef const uint8_t* start = data_of(view)
    cdef int64_t size_bytes = size_of(view), position = 0, entry_bytes, last_offset
    while has_header(start + position, size_bytes - position):
        entry_bytes = entry_size(start + position)
        last_offset = last_offset_of(start + position)
        if last_offset >= offset:
            return position, entry_bytes, last_offset
        position += entry_bytes
    return position, 0, -1


def covers_offset(buffer, int64_t offset):
    """The size and the last offset of the entry whose header `buffer` is, if it holds `offset`; else (0, -1)."""
    cdef memoryview view = plain_view(buffer)
    cdef const uint8_t* at = data_of(view)
    cdef int64_t last_offset
    if not has_header(at, size_of(view)) or load_i64(at) > offset:
        return 0, -1
    last_offset = last_offset_of(at)
    if last_offset < offset:
        return 0, -1
    return <int64_t>load_i32(at + 8) + FRAME_BYTES, last_offset


def find_timestamp(buffer, int64_t timestamp_ms, int64_t from_offset):
    """The first entry that reaches `from_offset` and may hold a record of `timestamp_ms` or later.

    As (position, size); the size is 0 and the position where to go on if there is none in `buffer`. Entries of the old
    formats are always candidates: format 0 has no timestamp.
    """
    cdef memoryview view = plain_view(buffer)
    cdef const uint8_t* start = data_of(view)
    cdef const uint8_t* at
    cdef int64_t size_bytes = size_of(view), position = 0, entry_bytes
    while has_header(start + position, size_bytes - position):
        at = start + position
        entry_bytes = entry_size(at)
        if last_offset_of(at) >= from_offset and (at[MAGIC_AT] < 2 or load_i64(at + MAX_TIMESTAMP_AT) >= timestamp_ms):
            return position, entry_bytes
        position += entry_bytes
    return position, 0


def skip_intact(buffer, int64_t next_offset, int64_t end_offset):
    """Step over whole batches of today's format that follow each other without a gap from `next_offset` on, do not
    reach beyond `end_offset`, and are as their CRC says.

    As (position, next offset, where the last of them begins, its offset): of what comes there, something is different,
    or it is not wholly in `buffer`; whoever looks closely can say what it is.
    """
    cdef memoryview view = plain_view(buffer)
    cdef const uint8_t* start = data_of(view)
    cdef const uint8_t* at
    cdef int64_t size_bytes = size_of(view), position = 0, entry_bytes, last_position = 0, last_offset = next_offset
    cdef int32_t delta
    while size_bytes - position >= HEADER_BYTES:
        at = start + position
        entry_bytes = <int64_t>load_i32(at + 8) + FRAME_BYTES
        delta = load_i32(at + LAST_OFFSET_DELTA_AT)
        if (
            at[MAGIC_AT] != 2
            or entry_bytes < HEADER_BYTES
            or entry_bytes > size_bytes - position
            or load_i64(at) != next_offset
            or delta < 0
            or delta >= end_offset - next_offset
            or load_i32(at + RECORD_COUNT_AT) < 0
            or <unsigned int>crc32c(view[position + ATTRIBUTES_AT : position + entry_bytes]) != load_u32(at + CRC_AT)
        ):
            break
        last_position, last_offset = position, next_offset
        position += entry_bytes
        next_offset += <int64_t>delta + 1
    return position, next_offset, last_position, last_offset
