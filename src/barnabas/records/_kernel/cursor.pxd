"""Bounded reading of records. A `Cursor` stops at its end; what does not fit is reported, never read."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

# length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each at least
cdef enum:
    MIN_RECORD_BYTES = 7
    MIN_HEADER_BYTES = 2


cdef struct Cursor:
    const uint8_t* start
    const uint8_t* at
    const uint8_t* end
    const char* failure  # what is wrong at `at`; NULL while all is well


cdef struct RawRecord:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size      # -1 is null
    int32_t value_size    # -1 is null
    int32_t header_count
    const uint8_t* key
    const uint8_t* value


cdef struct RawHeader:
    int32_t key_size
    int32_t value_size    # -1 is null
    const uint8_t* key
    const uint8_t* value


# Raises RemoteProtocolError for the cursor's failure.
cdef int fail(Cursor* cursor) except -1 with gil


cdef inline Cursor cursor_over(const uint8_t* data, Py_ssize_t size_bytes) noexcept nogil:
    cdef Cursor cursor
    cursor.start = data
    cursor.at = data
    cursor.end = data + size_bytes
    cursor.failure = NULL
    return cursor


cdef inline bint refuse(Cursor* cursor, const char* failure) noexcept nogil:
    cursor.failure = failure
    return False


# Readers of varints take and return places instead of a cursor, so that the compiler can keep all of it in registers.
# They return NULL for a varint that is cut off or too long.
cdef const uint8_t* get_long_varint(
    const uint8_t* at, const uint8_t* end, int64_t* out, int last_shift, uint8_t last_max
) noexcept nogil


cdef inline const uint8_t* get_varlong(const uint8_t* at, const uint8_t* end, int64_t* out) noexcept nogil:
    cdef int64_t value = 0
    if at < end and at[0] < 0x80:
        out[0] = (at[0] >> 1) ^ -<int64_t>(at[0] & 1)
        return at + 1
    at = get_long_varint(at, end, &value, 63, 0x01)
    out[0] = value
    return at


cdef inline const uint8_t* get_varint(const uint8_t* at, const uint8_t* end, int32_t* out) noexcept nogil:
    cdef int64_t value = 0
    cdef uint32_t raw
    if end - at >= 2:
        if at[0] < 0x80:
            out[0] = (at[0] >> 1) ^ -<int32_t>(at[0] & 1)
            return at + 1
        if at[1] < 0x80:
            raw = (at[0] & 0x7F) | <uint32_t>at[1] << 7
            out[0] = <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
            return at + 2
    at = get_long_varint(at, end, &value, 28, 0x0F)
    out[0] = <int32_t>value
    return at


cdef inline bint refuse_at(Cursor* cursor, const uint8_t* at, const char* failure) noexcept nogil:
    cursor.at = at
    return refuse(cursor, failure)


cdef inline bint read_record(Cursor* cursor, RawRecord* record) noexcept nogil:
    """Read one record up to its headers, and narrow the cursor to the record. `end_record` widens it again."""
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* field = at
    cdef int64_t timestamp_delta = 0
    cdef int32_t record_bytes = 0, offset_delta = 0, size_bytes = 0, header_count = 0

    at = get_varint(field, end, &record_bytes)
    if at == NULL:
        return refuse_at(cursor, field, b"a record's length is no varint")
    if record_bytes < MIN_RECORD_BYTES - 1 or record_bytes > end - at:
        return refuse_at(cursor, field, b"a record's length does not fit")
    end = at + record_bytes

    field = at + 1  # past the attributes, of which no bit is in use
    at = get_varlong(field, end, &timestamp_delta)
    if at == NULL:
        return refuse_at(cursor, field, b"a timestamp delta is no varint")
    record.timestamp_delta = timestamp_delta

    field = at
    at = get_varint(field, end, &offset_delta)
    if at == NULL:
        return refuse_at(cursor, field, b"an offset delta is no varint")
    if offset_delta < 0:
        return refuse_at(cursor, field, b"an offset delta is negative")
    record.offset_delta = offset_delta

    field = at
    at = get_varint(field, end, &size_bytes)
    if at == NULL:
        return refuse_at(cursor, field, b"a key's length is no varint")
    if size_bytes < -1 or size_bytes > end - at:
        return refuse_at(cursor, field, b"a key's length does not fit")
    record.key = at
    record.key_size = size_bytes
    at += max(size_bytes, 0)

    field = at
    at = get_varint(field, end, &size_bytes)
    if at == NULL:
        return refuse_at(cursor, field, b"a value's length is no varint")
    if size_bytes < -1 or size_bytes > end - at:
        return refuse_at(cursor, field, b"a value's length does not fit")
    record.value = at
    record.value_size = size_bytes
    at += max(size_bytes, 0)

    field = at
    if end - at == 1 and at[0] == 0:  # a record that ends without headers, as most do
        at += 1
    else:
        at = get_varint(field, end, &header_count)
        if at == NULL:
            return refuse_at(cursor, field, b"a header count is no varint")
        if header_count < 0 or header_count > (end - at) // MIN_HEADER_BYTES:
            return refuse_at(cursor, field, b"a header count does not fit")
    record.header_count = header_count
    cursor.at = at
    cursor.end = end
    return True


cdef inline bint read_nullable(
    Cursor* cursor, const uint8_t** data, int32_t* size_bytes, const char* failure
) noexcept nogil:
    """A length and as many bytes; -1 is null."""
    cdef const uint8_t* at = get_varint(cursor.at, cursor.end, size_bytes)
    if at == NULL or size_bytes[0] < -1 or size_bytes[0] > cursor.end - at:
        return refuse(cursor, failure)
    data[0] = at
    cursor.at = at + max(size_bytes[0], 0)
    return True


cdef inline bint read_header(Cursor* cursor, RawHeader* header) noexcept nogil:
    if not read_nullable(cursor, &header.key, &header.key_size, b"a header key's length does not fit"):
        return False
    if header.key_size < 0:
        return refuse(cursor, b"a header key is null")
    return read_nullable(cursor, &header.value, &header.value_size, b"a header value's length does not fit")


cdef inline bint end_record(Cursor* cursor, const uint8_t* payload_end) noexcept nogil:
    if cursor.at != cursor.end:
        return refuse(cursor, b"a record is longer than its fields")
    cursor.end = payload_end
    return True


cdef inline bint skip_headers(Cursor* cursor, int32_t count) noexcept nogil:
    cdef RawHeader header
    cdef int32_t i
    for i in range(count):
        if not read_header(cursor, &header):
            return False
    return True
