# cython: boundscheck=False, wraparound=False
"""What clients with quotas may use before anybody has to look: it is counted here, and told to the rules afterwards.

Whether somebody is within a quota takes a sum over samples. But as long as what is used fits into what was certainly left when that sum was
made last, and the newest sample goes on, the answer is yes. So those who are far from their bounds cost next to nothing.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from barnabas.net._kernel.metering cimport RequestFields

cdef enum:
    PRODUCE = 0
    NS_PER_MS = 1000000

# An answer in a frame has at most 128 KiB of records, and what is said of 200 partitions with their topics around them.
cdef double MOST_FETCHED_BYTES = 200 * 1024
# A hundred percent is the whole time of the loop.
cdef double PERCENT_SECONDS_PER_NS = 100 / 1e9
# Whoever has not so much left of the loop's time, 2 ms, is for the rules.
cdef double SOME_PERCENT_SECONDS = 0.2


@cython.final
cdef class Credit:
    """Of one quota of one owner. It has nothing until the rules grant something."""

    cdef double _left
    cdef double _spent
    cdef int64_t _until_ns
    cdef int64_t _last_ns
    cdef readonly bint is_gone

    def grant(self, double left, int64_t until_ms):
        self._left = left
        self._until_ns = until_ms * NS_PER_MS

    def take(self):
        cdef double spent = self._spent
        cdef int64_t last_ns = self._last_ns
        self._left = self._spent = 0
        self._last_ns = 0
        return (spent, last_ns // NS_PER_MS) if last_ns else None

    def end(self):
        self._left = 0
        self.is_gone = True

    cdef bint has(self, double value, int64_t now_ns) noexcept:
        return value < self._left and now_ns < self._until_ns

    cdef void spend(self, double value, int64_t now_ns) noexcept:
        self._left -= value
        self._spent += value
        self._last_ns = now_ns


@cython.final
cdef class Allowance:
    """Of one client: its credits, as far as it has quotas."""

    cdef Credit _produce
    cdef Credit _fetch
    cdef Credit _request
    cdef bint _is_stale
    cdef bint _is_free

    def __init__(self, Credit produce, Credit fetch, Credit request):
        self._produce = produce
        self._fetch = fetch
        self._request = request
        self._is_free = produce is None and fetch is None and request is None

    @property
    def is_stale(self):
        return (
            self._is_stale
            or (self._produce is not None and self._produce.is_gone)
            or (self._fetch is not None and self._fetch.is_gone)
            or (self._request is not None and self._request.is_gone)
        )

    def forget(self):
        self._is_stale = True

    def has_room(self, RequestFields request not None):
        cdef int64_t now_ns
        if self._is_stale:
            return False
        if self._is_free:
            return True
        if request._meter is None:
            return False
        now_ns = request._meter.last_ns
        return (self._fetch is None or self._fetch.has(MOST_FETCHED_BYTES, now_ns)) and (
            self._request is None or self._request.has(SOME_PERCENT_SECONDS, now_ns)
        )

    def covers(self, RequestFields request not None, bytes answer not None):
        cdef Py_ssize_t answer_bytes = PyBytes_GET_SIZE(answer)
        cdef Credit bandwidth = self._produce if request.api_key == PRODUCE else self._fetch
        cdef Credit time = self._request
        cdef double value = request.request_bytes if request.api_key == PRODUCE else answer_bytes
        cdef double percent_seconds = 0
        cdef int64_t now_ns
        if self._is_free:
            return not self._is_stale
        if self._is_stale or request._meter is None:
            return False
        if request.api_key == PRODUCE and not answer_bytes:
            time = None
        if time is not None:
            percent_seconds = request.elapsed() * PERCENT_SECONDS_PER_NS
        now_ns = request._meter.last_ns
        if bandwidth is not None and not bandwidth.has(value, now_ns):
            return False
        if time is not None:
            if not time.has(percent_seconds, now_ns):
                return False
            time.spend(percent_seconds, now_ns)
        if bandwidth is not None:
            bandwidth.spend(value, now_ns)
        return True
