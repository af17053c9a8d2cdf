"""Columns that records are read from: Arrow's buffers, seen as rows of bytes, numbers and lists."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t


# What Arrow calls an array: `first_row` is where a slice begins. Without validity no row is null; of the two kinds of
# offsets one is there.
cdef struct ArrayIn:
    const uint8_t* validity
    const int32_t* narrow_offsets
    const int64_t* wide_offsets
    const uint8_t* data
    int64_t item_count  # how far offsets may reach: bytes of data, or rows of the child of a list
    int64_t first_row
    int64_t row_count


cdef inline bint is_null(const uint8_t* validity, int64_t i) noexcept nogil:
    return validity != NULL and not (validity[i >> 3] >> (i & 7)) & 1


cdef inline bint get_range(const ArrayIn* array, int64_t i, int64_t* first, int64_t* stop) noexcept nogil:
    """The items of row `i`; False if the offsets cannot be right."""
    if array.narrow_offsets != NULL:
        first[0] = array.narrow_offsets[i]
        stop[0] = array.narrow_offsets[i + 1]
    else:
        first[0] = array.wide_offsets[i]
        stop[0] = array.wide_offsets[i + 1]
    return 0 <= first[0] <= stop[0] <= array.item_count and stop[0] - first[0] <= INT32_MAX


cdef inline int64_t span_of(const ArrayIn* array, int64_t first, int64_t stop) noexcept nogil:
    """About how many items the rows have together; never more than there are."""
    cdef int64_t begin = 0, ignored = 0, end = 0
    if first >= stop:
        return 0
    get_range(array, array.first_row + first, &begin, &ignored)
    get_range(array, array.first_row + stop - 1, &ignored, &end)
    return min(max(end - begin, 0), array.item_count)


cdef inline bint get_bytes(const ArrayIn* array, int64_t row, const uint8_t** data, int32_t* size_bytes) noexcept nogil:
    """The bytes of a row, with size -1 if it is null; False if the offsets cannot be right."""
    cdef int64_t first = 0, stop = 0, i = row + array.first_row
    if is_null(array.validity, i):
        size_bytes[0] = -1
        return True
    if not get_range(array, i, &first, &stop):
        return False
    data[0] = array.data + first
    size_bytes[0] = <int32_t>(stop - first)
    return True


cdef inline bint get_list(const ArrayIn* array, int64_t row, int64_t* first, int64_t* stop) noexcept nogil:
    """The items of a row, none if it is null; False if the offsets cannot be right."""
    cdef int64_t i = row + array.first_row
    if is_null(array.validity, i):
        first[0] = stop[0] = 0
        return True
    return get_range(array, i, first, stop)


cdef class BytesColumn:
    cdef object keep_alive
    cdef ArrayIn array


cdef class ListColumn:
    cdef object keep_alive
    cdef ArrayIn array


cdef class LongColumn:
    cdef object keep_alive
    cdef const uint8_t* validity
    cdef const int64_t* numbers
    cdef int64_t first_row
    cdef readonly int64_t row_count


cdef class RowColumns:
    cdef object keep_alive
    cdef readonly int64_t row_count
    cdef bint has_keys
    cdef bint has_headers
    cdef ArrayIn values
    cdef ArrayIn keys
    cdef ArrayIn headers
    cdef ArrayIn header_keys
    cdef ArrayIn header_values
    cdef const uint8_t* timestamp_validity
    cdef const int64_t* timestamps  # NULL if there are none
    cdef int64_t first_timestamp
    cdef int64_t default_timestamp_ms

    cdef int check_length(self, int64_t row_count) except -1


cdef inline int64_t timestamp_of(RowColumns rows, int64_t row) noexcept nogil:
    cdef int64_t i = row + rows.first_timestamp
    if rows.timestamps == NULL or is_null(rows.timestamp_validity, i):
        return rows.default_timestamp_ms
    return rows.timestamps[i]
