"""Rows by partition, and what a record takes, for those who put them into batches."""

from libc.stdint cimport int32_t, int64_t

from barnabas.records._kernel.columns cimport LongColumn, RowColumns
from barnabas.records._kernel.varint cimport varint_size

cdef enum:
    BATCH_HEAD_BYTES = 61
    # length 5, attributes 1, timestamp delta 10, offset delta 5: what a record takes at most around its contents
    MAX_FRAME_BYTES = 21


cdef inline int64_t bound_of(int64_t key_size, int64_t value_size, int64_t header_count, int64_t headers_size) noexcept nogil:
    """What a record takes at most, alone in a batch."""
    cdef int64_t size_bytes = BATCH_HEAD_BYTES + MAX_FRAME_BYTES
    size_bytes += varint_size(key_size) + max(key_size, 0)
    size_bytes += varint_size(value_size) + max(value_size, 0)
    return size_bytes + varint_size(header_count) + headers_size


cdef class RowGroups:
    cdef RowColumns rows
    cdef readonly int32_t partition_count
    cdef readonly int64_t row_count
    cdef int64_t* starts      # of each group within `order`, and the end
    cdef int64_t* size_bytes  # of each group, at most
    cdef int32_t* order       # the rows, group by group; NULL if all rows are in one group
    cdef int64_t largest_row_at
    cdef int64_t largest_row_bytes

    cdef int64_t choose(
        self, RowColumns rows, int32_t* targets, LongColumn partitions, bint by_column, bint by_key
    ) noexcept nogil
    cdef void place(self, int32_t* targets) noexcept nogil
    cdef int refuse(self, int64_t row, LongColumn partitions, int64_t first_row) except -1
    cdef int check_group(self, int32_t group) except -1
