"""What leading and following have in common, for those who look at many partitions."""

from libc.stdint cimport int32_t, int64_t


cdef class TopicMeter:
    cdef public int64_t bytes_in
    cdef public int64_t messages_in
    cdef public int64_t produce_requests
    cdef public int64_t failed_produce_requests
    cdef public int64_t bytes_rejected
    cdef public int64_t bytes_out
    cdef public int64_t fetch_requests
    cdef public int64_t failed_fetch_requests
    cdef public int64_t replication_bytes_in
    cdef public int64_t replication_bytes_out


cdef class RoleFields:
    cdef public TopicMeter meter
    cdef public object partition
    cdef public object log
    cdef public int32_t leader_epoch
    cdef public int64_t appended_bytes
    cdef public bint is_over
    cdef public dict delayed
