"""MurmurHash2 with the seed that every Kafka client uses, for loops over many keys."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    SEED = 0x9747B28C
    MULTIPLIER = 0x5BD1E995


cdef inline uint32_t murmur2_of(const uint8_t* at, Py_ssize_t size_bytes) noexcept nogil:
    cdef Py_ssize_t left = size_bytes
    cdef uint32_t hashed = <uint32_t>SEED ^ <uint32_t>size_bytes
    cdef uint32_t word
    while left >= 4:
        word = at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        word *= <uint32_t>MULTIPLIER
        word ^= word >> 24
        word *= <uint32_t>MULTIPLIER
        hashed = hashed * <uint32_t>MULTIPLIER ^ word
        at += 4
        left -= 4
    if left == 3:
        hashed ^= <uint32_t>at[2] << 16
    if left >= 2:
        hashed ^= <uint32_t>at[1] << 8
    if left >= 1:
        hashed = (hashed ^ at[0]) * <uint32_t>MULTIPLIER
    hashed ^= hashed >> 13
    hashed *= <uint32_t>MULTIPLIER
    hashed ^= hashed >> 15
    return hashed
