# cython: boundscheck=False, wraparound=False
"""Arrow's buffers as columns to read records from. They may come from files of others, so their offsets are checked."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from barnabas.records._kernel.bytes cimport data_of, plain_view, size_of

from barnabas.base.errors import LocalProtocolError


cdef inline uint64_t mixed(uint64_t state, uint64_t word) noexcept nogil:
    state = (state ^ word) * <uint64_t>0x9E3779B97F4A7C15
    return state ^ (state >> 32)


cdef uint64_t with_bytes(uint64_t state, const uint8_t* data, int32_t size_bytes) noexcept nogil:
    """Size and content, so that bytes cannot move from a key to its value unseen; null has a size of its own."""
    cdef uint64_t words[4]
    cdef uint64_t lanes[4]
    cdef uint64_t word
    cdef int32_t at = 0, i
    state = mixed(state, <uint64_t>(<int64_t>size_bytes))
    if size_bytes >= 64:
        # Four at a time: a processor need not wait for one word before it begins with the next.
        for i in range(4):
            lanes[i] = state + i
        while at + 32 <= size_bytes:
            memcpy(words, data + at, 32)
            for i in range(4):
                lanes[i] = mixed(lanes[i], words[i])
            at += 32
        for i in range(4):
            state = mixed(state, lanes[i])
    while at + 8 <= size_bytes:
        memcpy(&word, data + at, 8)
        state = mixed(state, word)
        at += 8
    if at < size_bytes:
        word = 0
        memcpy(&word, data + at, size_bytes - at)
        state = mixed(state, word)
    return state


cdef int64_t add_fingerprints(RowColumns rows, uint64_t* total) noexcept nogil:
    """Add those of all rows; the first row whose offsets are wrong, or -1."""
    cdef const uint8_t* data = NULL
    cdef int32_t size_bytes = -1
    cdef uint64_t state
    cdef int64_t row
    for row in range(rows.row_count):
        state = 0
        if rows.has_keys:
            if not get_bytes(&rows.keys, row, &data, &size_bytes):
                return row
            state = with_bytes(state, data, size_bytes)
        else:
            state = with_bytes(state, NULL, -1)
        if not get_bytes(&rows.values, row, &data, &size_bytes):
            return row
        total[0] += mixed(with_bytes(state, data, size_bytes), 0)
    return -1


cdef const uint8_t* checked(memoryview view, int64_t needed_bytes, str what) except? NULL:
    """The start of a buffer that must have at least so many bytes."""
    if size_of(view) < needed_bytes:
        raise LocalProtocolError(f"an Arrow column has {size_of(view)} bytes of {what}, but needs {needed_bytes}")
    return data_of(view)


cdef memoryview view_or_empty(object buffer):
    return plain_view(buffer if buffer is not None else b"")


cdef int check_rows(int64_t first_row, int64_t row_count) except -1:
    if first_row < 0 or row_count < 0:
        raise ValueError(f"rows cannot be negative: {row_count} from {first_row}")
    return 0


cdef int set_rows(
    ArrayIn* array,
    object validity,
    memoryview bits,
    memoryview offsets,
    int64_t first_row,
    int64_t row_count,
    bint wide,
) except -1:
    cdef int64_t stop_row = first_row + row_count
    check_rows(first_row, row_count)
    array.first_row = first_row
    array.row_count = row_count
    if row_count == 0:
        return 0
    if validity is not None:
        array.validity = checked(bits, (stop_row + 7) // 8, "validity")
    if wide:
        array.wide_offsets = <const int64_t*>checked(offsets, (stop_row + 1) * 8, "offsets")
    else:
        array.narrow_offsets = <const int32_t*>checked(offsets, (stop_row + 1) * 4, "offsets")
    return 0


@cython.final
cdef class BytesColumn:
    """Rows of bytes or null: a binary or string array, `wide` if its offsets have 64 bits."""

    def __init__(self, validity, offsets, data, int64_t first_row, int64_t row_count, bint wide):
        cdef memoryview bits = view_or_empty(validity)
        cdef memoryview ends = view_or_empty(offsets)
        cdef memoryview content = view_or_empty(data)
        self.keep_alive = (bits, ends, content)
        self.array.data = data_of(content)
        self.array.item_count = size_of(content)
        set_rows(&self.array, validity, bits, ends, first_row, row_count, wide)


@cython.final
cdef class ListColumn:
    """Rows of ranges into a child of `child_count` rows: a list or map array, `wide` if its offsets have 64 bits."""

    def __init__(self, validity, offsets, int64_t child_count, int64_t first_row, int64_t row_count, bint wide):
        cdef memoryview bits = view_or_empty(validity)
        cdef memoryview ends = view_or_empty(offsets)
        self.keep_alive = (bits, ends)
        self.array.item_count = child_count
        set_rows(&self.array, validity, bits, ends, first_row, row_count, wide)


@cython.final
cdef class LongColumn:
    """Rows of 64-bit integers or null."""

    def __init__(self, validity, data, int64_t first_row, int64_t row_count):
        cdef memoryview bits = view_or_empty(validity)
        cdef memoryview content = view_or_empty(data)
        check_rows(first_row, row_count)
        self.keep_alive = (bits, content)
        self.first_row = first_row
        self.row_count = row_count
        if validity is not None:
            self.validity = checked(bits, (first_row + row_count + 7) // 8, "validity")
        self.numbers = <const int64_t*>checked(content, (first_row + row_count) * 8, "numbers")


@cython.final
cdef class RowColumns:
    """The columns of records to be built. A missing or null timestamp reads as `default_timestamp_ms`."""

    def __init__(
        self,
        BytesColumn values not None,
        BytesColumn keys=None,
        ListColumn headers=None,
        BytesColumn header_keys=None,
        BytesColumn header_values=None,
        LongColumn timestamps=None,
        int64_t default_timestamp_ms=-1,
    ):
        self.keep_alive = (values, keys, headers, header_keys, header_values, timestamps)
        self.row_count = values.array.row_count
        self.default_timestamp_ms = default_timestamp_ms
        self.values = values.array
        if keys is not None:
            self.check_length(keys.array.row_count)
            self.has_keys = True
            self.keys = keys.array
        if headers is not None:
            if header_keys is None or header_values is None:
                raise ValueError("headers need a column of keys and one of values")
            if min(header_keys.array.row_count, header_values.array.row_count) < headers.array.item_count:
                raise ValueError("the columns of header keys and values are shorter than the lists say")
            self.check_length(headers.array.row_count)
            self.has_headers = True
            self.headers = headers.array
            self.header_keys = header_keys.array
            self.header_values = header_values.array
        if timestamps is not None:
            self.check_length(timestamps.row_count)
            self.timestamp_validity = timestamps.validity
            self.timestamps = timestamps.numbers
            self.first_timestamp = timestamps.first_row

    def fingerprint(self):
        cdef uint64_t total = 0
        cdef int64_t wrong_row
        with nogil:
            wrong_row = add_fingerprints(self, &total)
        if wrong_row >= 0:
            raise LocalProtocolError(f"the offsets of a column are wrong at row {wrong_row}")
        return total

    cdef int check_length(self, int64_t row_count) except -1:
        if row_count != self.row_count:
            raise ValueError(f"columns differ in length: {row_count} and {self.row_count}")
        return 0
