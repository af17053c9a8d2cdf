"""Variable-length integers: zig-zag, then 7 bits a byte, lowest first. Sizes and writes; reads are in `cursor.pxd`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from *:
    # bits * 9 / 64 rounds up to whole groups of seven for every width up to 64.
    """
    static inline int varint_size_of(unsigned long long value) {
        int bits = 64 - __builtin_clzll(value | 1);
        return (bits * 9 + 64) / 64;
    }
    """
    int varint_size_of(uint64_t value) noexcept nogil


# One zig-zag serves both widths: a 32-bit number widened to 64 bits has the same zig-zag form.
cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(int64_t value) noexcept nogil:
    return varint_size_of(zigzag(value))


cdef inline uint8_t* put_varint(uint8_t* at, int64_t value) noexcept nogil:
    """Write `value` and return the place after it; the caller has made room."""
    cdef uint64_t rest = zigzag(value)
    while rest >= 0x80:
        at[0] = <uint8_t>(rest | 0x80)
        at += 1
        rest >>= 7
    at[0] = <uint8_t>rest
    return at + 1
