"""The one place where a failure found in bytes becomes an exception, and the slow path of varints."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from barnabas.base.errors import RemoteProtocolError


cdef int fail(Cursor* cursor) except -1 with gil:
    raise RemoteProtocolError(f"{cursor.failure.decode()}, at byte {cursor.at - cursor.start} of the batch's records")


cdef const uint8_t* get_long_varint(
    const uint8_t* at, const uint8_t* end, int64_t* out, int last_shift, uint8_t last_max
) noexcept nogil:
    """A varint of any length. Its last possible byte, at `last_shift`, may hold no more than `last_max`."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at < end:
        byte = at[0]
        at += 1
        if shift == last_shift and byte > last_max:
            return NULL
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return at
        shift += 7
    return NULL
