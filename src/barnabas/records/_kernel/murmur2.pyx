# cython: boundscheck=False, wraparound=False
"""MurmurHash2 with the seed that every Kafka client uses, so that all of them send a key to the same partition."""

from libc.stdint cimport int32_t, uint8_t


def murmur2(const uint8_t[::1] key not None) -> int:
    """The signed 32-bit hash of `key`. Partitioners use it as `(murmur2(key) & 0x7FFFFFFF) % partitions`."""
    cdef Py_ssize_t size_bytes = key.shape[0]
    return <int32_t>murmur2_of(&key[0] if size_bytes else NULL, size_bytes)
