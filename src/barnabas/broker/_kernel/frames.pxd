"""Requests read where they lie in their frame, and answers written, without objects between; for the other kernels."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from barnabas.records._kernel.bytes cimport store_i32, store_i64

cdef enum:
    NULL_SIZE = -1
    UUID_BYTES = 16


cdef struct Topic:
    Py_ssize_t name_start  # of its name, or of its id
    Py_ssize_t name_bytes
    int32_t partition_count


cdef class FrameReader:
    cdef bytearray frame
    cdef int version
    cdef bint is_flexible
    cdef bint is_by_id
    cdef Py_ssize_t at
    cdef bint is_readable

    cdef void open(self, bytearray frame, int version, int first_flexible, int first_by_id) noexcept
    cdef uint8_t read_byte(self) noexcept
    cdef int16_t read_i16(self) noexcept
    cdef int32_t read_i32(self) noexcept
    cdef int64_t read_i64(self) noexcept
    cdef int64_t read_uvarint(self) noexcept
    cdef int64_t read_size(self, bint is_short) noexcept
    cdef void skip(self, int64_t size_bytes) noexcept
    cdef void skip_no_tags(self) noexcept
    cdef void skip_header(self) noexcept
    cdef object read_topic(self, Topic* topic)
    cdef uint8_t* put_topic(self, uint8_t* at, const Topic* topic) noexcept


cdef inline uint8_t* put_byte(uint8_t* at, uint8_t value) noexcept:
    at[0] = value
    return at + 1


cdef inline uint8_t* put_i16(uint8_t* at, int16_t value) noexcept:
    return put_byte(put_byte(at, <uint8_t>(value >> 8)), <uint8_t>value)


cdef inline uint8_t* put_i32(uint8_t* at, int32_t value) noexcept:
    store_i32(at, value)
    return at + 4


cdef inline uint8_t* put_i64(uint8_t* at, int64_t value) noexcept:
    store_i64(at, value)
    return at + 8


cdef inline uint8_t* put_uvarint(uint8_t* at, uint32_t value) noexcept:
    while value >= 0x80:
        at = put_byte(at, <uint8_t>(value | 0x80))
        value >>= 7
    return put_byte(at, <uint8_t>value)


cdef inline uint8_t* put_count(uint8_t* at, int32_t count, bint is_flexible) noexcept:
    """Of the elements of an array, or of the bytes of a value."""
    return put_uvarint(at, <uint32_t>count + 1) if is_flexible else put_i32(at, count)
