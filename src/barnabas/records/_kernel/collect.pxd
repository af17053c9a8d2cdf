"""Columns that records are put into, for those who have them as C."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.records._kernel.cursor cimport Cursor, RawHeader


cdef struct Growing:
    uint8_t* data
    int64_t used_bytes
    int64_t capacity_bytes


cdef struct BytesOut:
    Growing validity  # a bit a row, all set until a null comes
    Growing ends      # what Arrow calls offsets: 0, then for every row where its bytes end
    Growing data
    int64_t rows
    int64_t nulls


cdef struct UnreadBatch:
    Cursor cursor  # over the records that are left; somebody keeps alive what it reads
    int32_t record_count
    int64_t base_offset
    int64_t base_timestamp_ms
    int64_t max_timestamp_ms
    bint append_time


cdef class RecordColumns:
    cdef BytesOut keys
    cdef BytesOut values
    cdef BytesOut header_keys
    cdef BytesOut header_values
    cdef Growing header_ends
    cdef Growing offsets
    cdef Growing timestamps
    cdef bint busy  # a batch is being added without the lock of the interpreter
    cdef readonly int64_t taken_bytes
    #: How far the last `add` came: bytes of its payload, and records in them.
    cdef readonly int64_t read_bytes
    cdef readonly int32_t read_count

    cdef int check_idle(self) except -1
    cdef bint add_from(self, UnreadBatch batch, int64_t from_offset, int64_t row_limit) except -1
    cdef bint add_each(self, UnreadBatch* batch, int64_t from_offset, int64_t row_limit) noexcept nogil
    cdef bint add_headers(self, Cursor* cursor, int32_t count) noexcept nogil
    cdef bint put_mended_key(self, RawHeader* header) noexcept with gil
    cdef bint reserve_all(self, int64_t rows) noexcept nogil
