"""What leading and following have in common, for those who look at many partitions."""

from libc.stdint cimport int32_t, int64_t


cdef class RoleFields:
    cdef public object partition
    cdef public object log
    cdef public int32_t leader_epoch
    cdef public int64_t appended_bytes
    cdef public bint is_over
    cdef public dict delayed
