# cython: boundscheck=False, wraparound=False
"""MurmurHash2 with the seed that every Kafka client uses, so that all of them send a key to the same partition."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef enum:
    SEED = 0x9747B28C
    MULTIPLIER = 0x5BD1E995


def murmur2(const uint8_t[::1] key not None) -> int:
    """The signed 32-bit hash of `key`. Partitioners use it as `(murmur2(key) & 0x7FFFFFFF) % partitions`."""
    cdef Py_ssize_t size_bytes = key.shape[0]
    cdef const uint8_t* at = &key[0] if size_bytes else NULL
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
    return <int32_t>hashed
