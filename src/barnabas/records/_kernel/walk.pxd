"""The walk over entries, for those who read the usual ones of them without making an object of each."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct WalkedRecords:
    int32_t record_count
    int32_t last_offset_delta
    int32_t first_gap
    int32_t first_disorder
    int32_t first_null_key
    int32_t max_timestamp_offset_delta
    int64_t min_timestamp_ms
    int64_t max_timestamp_ms


cdef bint is_usual_header(const uint8_t* at, Py_ssize_t size_bytes) noexcept nogil
cdef bint has_usual_records(
    const uint8_t* at, Py_ssize_t size_bytes, unsigned int crc, WalkedRecords* walked
) noexcept nogil
cdef unsigned int crc_of(memoryview view, Py_ssize_t start, Py_ssize_t size_bytes) except? 0


cdef class EntryWalk:
    cdef memoryview view
    cdef object make
    cdef object make_old
    cdef readonly Py_ssize_t position
