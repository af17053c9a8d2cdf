"""The request in process of a connection, as those who count see it."""

from libc.stdint cimport int16_t, int32_t, int64_t

cdef enum:
    # Keys of APIs, and above them names under which an API is counted besides.
    SLOTS = 128
    VERSIONS = 32
    PARTS = 7
    BUCKETS = 28


cdef struct ApiCounts:
    int64_t count
    int64_t request_bytes
    int64_t max_request_bytes
    int64_t response_bytes
    int64_t versions[VERSIONS]
    int64_t sums_ns[PARTS]
    int64_t max_ns[PARTS]
    int64_t buckets[PARTS][BUCKETS]


cdef class RequestMeter:
    cdef ApiCounts* apis[SLOTS]
    cdef object _clock
    cdef list _observers
    cdef readonly dict errors
    cdef int64_t _observed_from_ns
    cdef bint _is_stale
    cdef bint _was_read
    cdef public bint is_recording
    cdef readonly int64_t last_ns
    cdef readonly int64_t busy_ns
    cdef readonly int64_t longest_turn_ns
    cdef int64_t _turn_began_ns

    cdef int64_t read_clock(self) except? -1
    cdef int note(self, int slot, RequestFields request, const int64_t* parts) except -1


cdef class RequestFields:
    cdef RequestMeter _meter
    cdef int64_t _arrived_ns
    cdef int64_t _begun_ns
    cdef int64_t _waiting_since_ns
    cdef int64_t _remote_ns
    cdef int64_t _charged_ns
    cdef int64_t _ready_ns
    cdef int64_t _send_began_ns
    cdef int64_t _parts[PARTS]
    cdef readonly int64_t request_bytes
    cdef readonly int64_t response_bytes
    cdef readonly int32_t correlation_id
    cdef readonly int16_t api_key
    cdef readonly int16_t api_version
    cdef public int32_t throttle_time_ms
    cdef bytes _client_id
    cdef object _client_id_text
    cdef int _also
    cdef public object allowance
    cdef bint _is_underway
    cdef bint _is_ready
    cdef readonly bint is_charged

    cdef int64_t elapsed(self) except? -1
