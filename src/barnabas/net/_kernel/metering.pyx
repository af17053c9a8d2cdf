# cython: boundscheck=False, wraparound=False
"""When a request came, was worked on, waited and left, counted without an object.

A connection has one request at a time, so its times lie in the connection. The clock is read where it must be, and not
where somebody has just read it: what ends one thing begins the next.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

import logging

cdef extern from *:
    """
    #include <time.h>
    static int64_t machine_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    /* The number of the first bucket, of those that grow by 2 from 1.024 us on, that holds it. */
    static int bucket_of(uint64_t ns) {
        ns = (ns + 1023) >> 10;
        if (ns < 2) return 0;
        ns--;
    #if defined(__GNUC__)
        return 64 - __builtin_clzll(ns);
    #else
        int bits = 0;
        for (; ns; ns >>= 1) bits++;
        return bits;
    #endif
    }
    static int16_t load_short(const char* at) {
        const unsigned char* bytes = (const unsigned char*)at;
        return (int16_t)(bytes[0] << 8 | bytes[1]);
    }
    static int32_t load_int(const char* at) {
        const unsigned char* bytes = (const unsigned char*)at;
        return (int32_t)((uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3]);
    }
    """
    int64_t machine_ns() noexcept
    int bucket_of(uint64_t ns) noexcept
    int16_t load_short(const char* at) noexcept
    int32_t load_int(const char* at) noexcept

cdef enum:
    QUEUE
    LOCAL
    REMOTE
    THROTTLE
    RESPONSE_QUEUE
    RESPONSE_SEND
    TOTAL
    # Key, version and correlation id; then comes the client's id.
    SHORTEST_BYTES = 8
    CLIENT_ID_START = 10

_log = logging.getLogger("barnabas.net")

cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF


cdef class RequestMeter:
    def __cinit__(self):
        for slot in range(SLOTS):
            self.apis[slot] = NULL

    def __init__(self, clock=None):
        self._clock = clock
        self._observers = []
        self.errors = {}
        self._observed_from_ns = NEVER
        self._is_stale = True
        self.is_recording = True

    def __dealloc__(self):
        for slot in range(SLOTS):
            PyMem_Free(self.apis[slot])

    cdef int64_t read_clock(self) except? -1:
        self._was_read = True
        self.last_ns = machine_ns() if self._clock is None else <int64_t>(<double>self._clock() * 1e9)
        return self.last_ns

    # The turns of a request channel

    def turn_begins(self, int64_t budget_ns):
        self._turn_began_ns = self.read_clock()
        self._is_stale = False
        return self._turn_began_ns + budget_ns

    def has_time(self, int64_t end_ns):
        """Asked after each request: mostly its answer was there a moment ago, and the clock was read for it."""
        if not self._was_read:
            self.read_clock()
        return self.last_ns < end_ns

    def turn_ends(self):
        cdef int64_t took_ns = self.read_clock() - self._turn_began_ns
        self.busy_ns += took_ns
        if took_ns > self.longest_turn_ns:
            self.longest_turn_ns = took_ns
        self._is_stale = True

    def take_longest_turn_ns(self):
        longest_ns, self.longest_turn_ns = self.longest_turn_ns, 0
        return longest_ns

    # One request

    def arrived(self, RequestFields request not None):
        if self._is_stale:
            self.read_clock()
            # A turn follows, and ends this. What others read between turns may be long ago by the next arrival.
            self._is_stale = False
        request._arrived_ns = self.last_ns

    def begins(self, RequestFields request not None, bytearray frame not None):
        cdef const char* data = PyByteArray_AS_STRING(frame)
        cdef Py_ssize_t size_bytes = PyByteArray_GET_SIZE(frame)
        cdef int16_t id_bytes = -1
        self._was_read = False
        request.is_charged = False
        request._is_underway = self.is_recording and size_bytes >= SHORTEST_BYTES
        if not request._is_underway:
            return
        request._meter = self
        request._is_ready = False
        request._send_began_ns = 0
        request._also = -1
        request._begun_ns = self.last_ns
        request._waiting_since_ns = request._remote_ns = request._charged_ns = 0
        request.throttle_time_ms = 0
        request.request_bytes = size_bytes
        request.response_bytes = 0
        request.api_key = load_short(data)
        request.api_version = load_short(data + 2)
        request.correlation_id = load_int(data + 4)
        if size_bytes >= CLIENT_ID_START:
            id_bytes = load_short(data + SHORTEST_BYTES)
        if id_bytes < 0 or id_bytes > size_bytes - CLIENT_ID_START:
            if request._client_id is not None:
                request.allowance = None
            request._client_id = None
            request._client_id_text = None
        elif (
            request._client_id is None
            or PyBytes_GET_SIZE(request._client_id) != id_bytes
            or memcmp(PyBytes_AS_STRING(request._client_id), data + CLIENT_ID_START, id_bytes)
        ):
            request._client_id = data[CLIENT_ID_START : CLIENT_ID_START + id_bytes]
            request._client_id_text = request.allowance = None

    cdef int note(self, int slot, RequestFields request, const int64_t* parts) except -1:
        cdef ApiCounts* counts = self.apis[slot]
        cdef int part
        if counts is NULL:
            counts = self.apis[slot] = <ApiCounts*>PyMem_Calloc(1, sizeof(ApiCounts))
            if counts is NULL:
                raise MemoryError
        counts.count += 1
        counts.request_bytes += request.request_bytes
        if request.request_bytes > counts.max_request_bytes:
            counts.max_request_bytes = request.request_bytes
        counts.response_bytes += request.response_bytes
        if 0 <= request.api_version < VERSIONS:
            counts.versions[request.api_version] += 1
        for part in range(PARTS):
            counts.sums_ns[part] += parts[part]
            if parts[part] > counts.max_ns[part]:
                counts.max_ns[part] = parts[part]
            counts.buckets[part][min(bucket_of(parts[part]), BUCKETS - 1)] += 1
        return 0

    # Who wants to know

    def observe(self, observer, int64_t slower_than_ns=0):
        entry = (slower_than_ns, observer)
        self._observers = [*self._observers, entry]
        self._watch()

        def stop():
            self._observers = [each for each in self._observers if each is not entry]
            self._watch()

        return stop

    def _watch(self):
        self._observed_from_ns = min((each[0] for each in self._observers), default=NEVER)

    @property
    def keys(self):
        return [slot for slot in range(SLOTS) if self.apis[slot] is not NULL]

    def counts_of(self, int slot):
        cdef ApiCounts* counts
        cdef int part, i
        if not 0 <= slot < SLOTS or self.apis[slot] is NULL:
            return None
        counts = self.apis[slot]
        versions = {i: counts.versions[i] for i in range(VERSIONS) if counts.versions[i]}
        parts = [
            (counts.sums_ns[part], counts.max_ns[part], [counts.buckets[part][i] for i in range(BUCKETS)])
            for part in range(PARTS)
        ]
        return counts.count, counts.request_bytes, counts.max_request_bytes, counts.response_bytes, versions, parts


cdef class RequestFields:
    @property
    def client_id(self):
        if self._client_id_text is None and self._client_id is not None:
            self._client_id_text = self._client_id.decode("utf-8", "replace")
        return self._client_id_text

    def count_error(self, int code):
        if self._is_underway:
            errors, key = self._meter.errors, (self.api_key, code)
            errors[key] = errors.get(key, 0) + 1

    def count_also_as(self, int slot):
        self._also = slot if 0 <= slot < SLOTS else -1

    def wait_begins(self):
        if self._is_underway and not self._waiting_since_ns:
            self._waiting_since_ns = self._meter.read_clock()

    def wait_ends(self):
        if self._is_underway and self._waiting_since_ns:
            self._remote_ns += self._meter.read_clock() - self._waiting_since_ns
            self._waiting_since_ns = 0

    def response_is_ready(self, int64_t size_bytes):
        if self._is_underway:
            self.response_bytes = size_bytes
            self._ready_ns = self._meter.read_clock()
            self._is_ready = True

    def response_is_leaving(self):
        """It does so bit by bit."""
        if self._is_ready and not self._send_began_ns:
            self._send_began_ns = max(self._meter.last_ns, self._ready_ns)

    def response_has_left(self):
        """It is told now, once. What never got so far, because its connection ended, is not."""
        cdef RequestMeter meter = self._meter
        cdef int64_t* parts = self._parts
        cdef int64_t send_began_ns, now_ns
        if not self._is_underway or not self._is_ready:
            return
        self._is_underway = False
        send_began_ns = self._send_began_ns or max(meter.last_ns, self._ready_ns)
        now_ns = meter.read_clock()
        parts[QUEUE] = max(0, self._begun_ns - self._arrived_ns)
        parts[REMOTE] = self._remote_ns
        parts[LOCAL] = max(0, self._ready_ns - self._begun_ns - self._remote_ns)
        parts[THROTTLE] = <int64_t>self.throttle_time_ms * 1000000
        parts[RESPONSE_QUEUE] = max(0, send_began_ns - self._ready_ns)
        parts[RESPONSE_SEND] = max(0, now_ns - send_began_ns)
        parts[TOTAL] = max(0, now_ns - self._arrived_ns)
        if 0 <= self.api_key < SLOTS:
            meter.note(self.api_key, self, parts)
        if self._also >= 0:
            meter.note(self._also, self, parts)
        if parts[TOTAL] >= meter._observed_from_ns:
            self._tell()

    def _tell(self):
        for slower_than_ns, observer in self._meter._observers:
            if self._parts[TOTAL] >= slower_than_ns:
                try:
                    observer(self)
                except Exception:
                    _log.exception("who was told of a request failed")

    def charge_ns(self):
        cdef int64_t elapsed_ns = self.elapsed()
        cdef int64_t uncharged_ns = elapsed_ns - self._charged_ns if self.is_charged else elapsed_ns
        self.is_charged = True
        self._charged_ns = elapsed_ns
        return uncharged_ns

    cdef int64_t elapsed(self) except? -1:
        """What the request in process has taken until now, without its time in the queue or waiting for others."""
        cdef int64_t now_ns, remote_ns
        if not self._is_underway:
            return 0
        now_ns = self._ready_ns if self._is_ready else self._meter.read_clock()
        remote_ns = self._remote_ns
        if self._waiting_since_ns:
            remote_ns += now_ns - self._waiting_since_ns
        return max(0, now_ns - self._begun_ns - remote_ns)

    @property
    def queue_time_ns(self):
        return self._parts[QUEUE]

    @property
    def local_time_ns(self):
        return self._parts[LOCAL]

    @property
    def remote_time_ns(self):
        return self._parts[REMOTE]

    @property
    def response_queue_time_ns(self):
        return self._parts[RESPONSE_QUEUE]

    @property
    def response_send_time_ns(self):
        return self._parts[RESPONSE_SEND]

    @property
    def total_time_ns(self):
        return self._parts[TOTAL]
