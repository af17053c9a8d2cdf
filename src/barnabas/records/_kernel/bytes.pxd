"""Big-endian integers, and the bytes behind a memoryview without taking another export of them."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view) noexcept


cdef inline uint32_t load_u32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int32_t load_i32(const uint8_t* at) noexcept nogil:
    return <int32_t>load_u32(at)


cdef inline int16_t load_i16(const uint8_t* at) noexcept nogil:
    return <int16_t>(<uint16_t>at[0] << 8 | at[1])


cdef inline int64_t load_i64(const uint8_t* at) noexcept nogil:
    return <int64_t>(<uint64_t>load_u32(at) << 32 | load_u32(at + 4))


cdef inline void store_i32(uint8_t* at, int32_t value) noexcept nogil:
    at[0] = <uint8_t>(<uint32_t>value >> 24)
    at[1] = <uint8_t>(<uint32_t>value >> 16)
    at[2] = <uint8_t>(<uint32_t>value >> 8)
    at[3] = <uint8_t>value


cdef inline void store_i64(uint8_t* at, int64_t value) noexcept nogil:
    store_i32(at, <int32_t>(value >> 32))
    store_i32(at + 4, <int32_t>value)


cdef inline memoryview plain_view(object buffer):
    """A contiguous view of single bytes over anything that has bytes.

    It is a new view even of a view: the caller may release theirs, and what `data_of` gave must stay.
    """
    cdef memoryview view = memoryview(buffer)
    cdef Py_buffer* raw = PyMemoryView_GET_BUFFER(view)
    if raw.ndim == 1 and raw.itemsize == 1 and (raw.strides == NULL or raw.strides[0] == 1 or raw.len <= 1):
        return view
    return view.cast("B")


cdef inline const uint8_t* data_of(memoryview view) noexcept:
    return <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf


cdef inline Py_ssize_t size_of(memoryview view) noexcept:
    return PyMemoryView_GET_BUFFER(view).len
