"""Writing records into a buffer, for those who append them one by one without a call to Python for each."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from barnabas.records._kernel.columns cimport RowColumns
from barnabas.records._kernel.varint cimport put_varint, varint_size


cdef bytes as_bytes(object part, str what)
cdef list flat_headers(object headers, int64_t* size_bytes)
cdef int32_t size_or_null(bytes part) except -2


cdef inline uint8_t* put_nullable(uint8_t* at, const void* data, int32_t size_bytes) noexcept nogil:
    at = put_varint(at, size_bytes)
    if size_bytes > 0:
        memcpy(at, data, size_bytes)
        at += size_bytes
    return at


cdef inline int64_t body_size(
    int64_t timestamp_delta,
    int32_t offset_delta,
    int32_t key_size,
    int32_t value_size,
    int64_t header_count,
    int64_t headers_size,
) noexcept nogil:
    """The bytes of a record after its length."""
    cdef int64_t size_bytes = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    size_bytes += varint_size(key_size) + max(key_size, 0)
    size_bytes += varint_size(value_size) + max(value_size, 0)
    return size_bytes + varint_size(header_count) + headers_size


cdef inline uint8_t* put_record(
    uint8_t* at,
    int64_t body_bytes,
    int64_t timestamp_delta,
    int32_t offset_delta,
    const void* key,
    int32_t key_size,
    const void* value,
    int32_t value_size,
    int64_t header_count,
) noexcept nogil:
    """Everything of a record but its headers."""
    at = put_varint(at, body_bytes)
    at[0] = 0  # attributes: no bit of them is in use
    at = put_varint(at + 1, timestamp_delta)
    at = put_varint(at, offset_delta)
    at = put_nullable(at, key, key_size)
    at = put_nullable(at, value, value_size)
    return put_varint(at, header_count)


cdef class RecordBuffer:
    cdef bytearray storage
    cdef uint8_t* data
    cdef int64_t capacity_bytes
    cdef bint base_timestamp_is_known
    cdef bint busy  # rows are being appended without the lock of the interpreter
    cdef readonly bint allow_oversized
    cdef readonly int64_t head_bytes
    cdef readonly int64_t limit_bytes
    cdef readonly int64_t size_bytes
    cdef readonly int32_t record_count
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t largest_record_bytes

    cdef int64_t append_each(self, RowColumns rows, int64_t first, int64_t stop) except -1 nogil
    cdef int check_open(self) except -1
    cdef int expect(self, int64_t more_bytes) except -1
    cdef int grow(self, int64_t record_bytes) except -1 with gil
    cdef int resize(self, int64_t capacity_bytes) except -1

    cdef inline int64_t delta_of(self, int64_t timestamp_ms) noexcept nogil:
        if not self.base_timestamp_is_known:
            return 0
        return <int64_t>(<uint64_t>timestamp_ms - <uint64_t>self.base_timestamp_ms)

    cdef inline int make_room(self, int64_t record_bytes) except -1 nogil:
        """1 if there is room for so many bytes more, 0 if the batch is full."""
        if self.size_bytes + record_bytes <= self.capacity_bytes:
            return 1
        return self.grow(record_bytes)

    cdef inline void added(self, uint8_t* end, int32_t offset_delta, int64_t timestamp_ms) noexcept nogil:
        cdef int64_t record_bytes = end - self.data - self.size_bytes
        self.size_bytes += record_bytes
        self.largest_record_bytes = max(self.largest_record_bytes, record_bytes)
        self.last_offset_delta = offset_delta
        if not self.base_timestamp_is_known:
            self.base_timestamp_is_known = True
            self.base_timestamp_ms = timestamp_ms
        if timestamp_ms > self.max_timestamp_ms or self.record_count == 0:
            self.max_timestamp_ms = timestamp_ms
        self.record_count += 1
