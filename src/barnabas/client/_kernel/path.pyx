# cython: boundscheck=False, wraparound=False
"""The way of a record into its batch.

`send` writes a record into the open batch of its partition and returns a future, in C from end to end. It relies on the
lock of the interpreter: from the look at whether a batch is open until its records are counted nothing may run that
could be Python code, so no allocation that the garbage collector counts either. Whoever closes a batch therefore closes
it before a record or after it, and never in between. Everything that is not ready at hand goes a slow way, in Python.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t

from barnabas.client._kernel.deliveries cimport Delivery, Home, SendFuture
from barnabas.client._kernel.tables cimport RowGroups, bound_of
from barnabas.records._kernel.build cimport (
    RecordBuffer, as_bytes, body_size, flat_headers, put_nullable, put_record, size_or_null,
)
from barnabas.records._kernel.columns cimport RowColumns
from barnabas.records._kernel.murmur2 cimport murmur2_of
from barnabas.records._kernel.varint cimport varint_size

from asyncio import _get_running_loop
from operator import index

from barnabas.client.serialization import not_bytes

cdef extern from *:
    """
    #include <time.h>
    #ifdef _WIN32
    static long long wall_clock_ms(void) {
        FILETIME filetime;
        GetSystemTimeAsFileTime(&filetime);
        unsigned long long ticks = (unsigned long long)filetime.dwHighDateTime << 32 | filetime.dwLowDateTime;
        return (long long)(ticks / 10000ULL) - 11644473600000LL;
    }
    #else
    static long long wall_clock_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    #endif

    /* What is awaited and there already is handed over without an exception (up to Python 3.11), or at least without
       a traceback. */
    static void end_at_once(PyObject *type, iternextfunc next, sendfunc send) {
        ((PyTypeObject *)type)->tp_iternext = next;
        ((PyTypeObject *)type)->tp_as_async->am_send = send;
    }
    """
    ctypedef PyObject* (*iternextfunc)(PyObject*) noexcept
    ctypedef enum PySendResult:
        PYGEN_RETURN
    ctypedef PySendResult (*sendfunc)(PyObject*, PyObject*, PyObject**) noexcept
    long long wall_clock_ms() noexcept nogil
    void end_at_once(object type, iternextfunc next, sendfunc send)

cdef extern from "Python.h":
    void PyErr_SetObject(object type, object value)
    void Py_INCREF(object)
    PyObject* PyDict_GetItemWithError(object, object) except? NULL
    object PyUnicode_FromObject(object)
    long long PyLong_AsLongLongAndOverflow(object, int*) noexcept


def now_ms() -> int:
    """Milliseconds since 1970."""
    return wall_clock_ms()


def record_bound_bytes(bytes value, bytes key, headers=None) -> int:
    """What a record takes at most, alone in a batch: by this it is measured against max.request.size."""
    cdef int64_t headers_size = 0
    cdef list flat = flat_headers(headers, &headers_size) if headers else None
    return bound_of(length(key), length(value), PyList_GET_SIZE(flat) // 2 if flat is not None else 0, headers_size)


def topic_name(topic) -> str:
    """A topic that a program named, as plain text: names may be members of an enumeration."""
    if not PyUnicode_CheckExact(topic):
        if not isinstance(topic, str):
            raise TypeError(f"a topic must be text, not {type(topic).__name__}")
        topic = PyUnicode_FromObject(topic)
    if not topic:
        raise ValueError("a topic must have a name")
    return topic


def partition_number(partition) -> int:
    """A partition that a program named: anything that is an index, as numbers of numpy are, but no truth value."""
    number = whole_number(partition, "a partition")
    if number < 0:
        raise ValueError(f"partition = {number}: 0 or more is expected, or None for any")
    return number


def record_timestamp_ms(timestamp_ms) -> int:
    """A timestamp that a program gave a record."""
    number = whole_number(timestamp_ms, "timestamp_ms")
    if not 0 <= number <= INT64_MAX:
        raise ValueError(f"timestamp_ms = {number}: milliseconds since 1970 are expected")
    return number


cdef object whole_number(object given, str what):
    if PyLong_CheckExact(given):
        return given
    if not isinstance(given, bool):
        try:
            return index(given)
        except TypeError:
            pass
    raise TypeError(f"{what} must be an integer, not {type(given).__name__}")


cdef inline Py_ssize_t as_number(object partition) noexcept:
    """No topic has so many partitions that one of them would not fit."""
    cdef int is_beyond = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(partition, &is_beyond)
    return number if is_beyond == 0 else is_beyond * INT32_MAX


cdef inline Py_ssize_t length(bytes part) noexcept:
    """-1 for null. May be more than any record can hold."""
    return -1 if part is None else PyBytes_GET_SIZE(part)


cdef class BatchRoom:
    cdef RecordBuffer records
    cdef readonly Delivery delivery
    cdef readonly bint is_closed

    def __init__(self, RecordBuffer records not None, Delivery delivery not None):
        self.records = records
        self.delivery = delivery
        # All at once, so that `send` finds out with one look whether there is room.
        records.expect(records.limit_bytes)

    def close(self):
        self.is_closed = True

    def widen(self, int64_t limit_bytes):
        self.records.check_open()
        if limit_bytes > INT32_MAX:
            raise ValueError(f"a batch cannot have {limit_bytes} bytes")
        if limit_bytes > self.records.limit_bytes:
            self.records.resize(limit_bytes)
            self.records.limit_bytes = limit_bytes

    def append(self, bytes value, bytes key, int64_t timestamp_ms, headers=None, on_delivery=None):
        cdef int64_t headers_size = 0
        cdef list flat = flat_headers(headers, &headers_size) if headers else None
        cdef SendFuture future = new_future(size_or_null(value), size_or_null(key), timestamp_ms, on_delivery)
        if not self.prepare(on_delivery):
            return None
        if put_in(self, future, value, key, flat, headers_size):
            return future
        self.is_closed = True
        return None

    cdef inline bint prepare(self, object on_delivery) except -1:
        """Make what a callback needs before the record goes in; False if the batch is closed."""
        cdef list fresh
        if on_delivery is not None and self.delivery.watchers is None:
            fresh = []
            if self.delivery.watchers is None:
                self.delivery.watchers = fresh
        return not self.is_closed

    def append_rows(self, RowColumns rows not None, RowGroups groups not None, int32_t group, int64_t done):
        cdef int64_t size, i, row
        cdef int64_t sent = done
        cdef int32_t first_index = self.records.last_offset_delta + 1
        groups.check_group(group)
        size = groups.starts[group + 1] - groups.starts[group]
        if groups.row_count != rows.row_count or not 0 <= done <= size:
            raise ValueError(f"{done} of {size} rows sent: these are not the groups of these rows")
        if self.is_closed:
            return done, first_index
        # The interpreter's lock is kept: it is one batch, and another thread may not see it half-written.
        if groups.order == NULL:
            sent = self.records.append_each(rows, done, size)
        else:
            for i in range(groups.starts[group] + done, groups.starts[group + 1]):
                row = groups.order[i]
                if self.records.append_each(rows, row, row + 1) == row:
                    break
                sent += 1
        if sent < size:
            self.is_closed = True
        return sent, first_index


cdef inline SendFuture new_future(int32_t value_size, int32_t key_size, int64_t timestamp_ms, object on_delivery):
    cdef SendFuture future = SendFuture.__new__(SendFuture)
    future.timestamp_ms = timestamp_ms
    future.key_size = key_size
    future.value_size = value_size
    future.on_delivery = on_delivery
    return future


cdef inline bint put_in(
    BatchRoom room, SendFuture future, bytes value, bytes key, list flat, int64_t headers_size
) except -1:
    """Write a record into an open batch; False if it has no room. Runs nothing but itself."""
    cdef RecordBuffer records = room.records
    cdef int64_t header_count = 0 if flat is None else PyList_GET_SIZE(flat) // 2
    cdef int64_t timestamp_delta = records.delta_of(future.timestamp_ms)
    cdef int32_t index = records.last_offset_delta + 1
    cdef int64_t body_bytes = body_size(
        timestamp_delta, index, future.key_size, future.value_size, header_count, headers_size
    )
    cdef uint8_t* at
    cdef Py_ssize_t i
    cdef object part
    if records.size_bytes + varint_size(body_bytes) + body_bytes > records.capacity_bytes:
        return False
    at = put_record(
        records.data + records.size_bytes, body_bytes, timestamp_delta, index,
        PyBytes_AS_STRING(key) if future.key_size > 0 else NULL, future.key_size,
        PyBytes_AS_STRING(value) if future.value_size > 0 else NULL, future.value_size,
        header_count,
    )
    if flat is not None:
        for i in range(PyList_GET_SIZE(flat)):
            part = <object>PyList_GET_ITEM(flat, i)
            if part is None:
                at = put_nullable(at, NULL, -1)
            else:
                at = put_nullable(at, PyBytes_AS_STRING(part), <int32_t>PyBytes_GET_SIZE(part))
    records.added(at, index, future.timestamp_ms)
    future.delivery = room.delivery
    future.index = index
    if future.on_delivery is not None:
        PyList_Append(room.delivery.watchers, future)
    return True


cdef class Lane:
    cdef readonly str topic
    cdef public bint is_open
    cdef public int32_t sticky_partition
    cdef public int64_t sticky_bytes
    cdef int64_t switch_bytes
    cdef list rooms

    def __init__(self, str topic, int64_t switch_bytes):
        self.topic = topic
        self.switch_bytes = switch_bytes
        self.sticky_partition = -1
        self.rooms = []

    @property
    def partition_count(self):
        return PyList_GET_SIZE(self.rooms)

    def resize(self, Py_ssize_t partition_count):
        cdef list rooms = self.rooms
        cdef Py_ssize_t known = PyList_GET_SIZE(rooms)
        if partition_count != known:
            self.rooms = rooms[:partition_count] + [None] * max(0, partition_count - known)
            if self.sticky_partition >= partition_count:
                self.sticky_partition = -1

    def set_room(self, Py_ssize_t partition, BatchRoom room):
        if 0 <= partition < PyList_GET_SIZE(self.rooms):
            self.rooms[partition] = room


cdef class SendPath:
    cdef public dict lanes
    cdef public bint is_direct
    cdef readonly Home home
    cdef int64_t max_record_bytes
    cdef bint ignores_keys
    cdef object key_serializer
    cdef object value_serializer
    cdef object clock_ms

    def __init__(
        self,
        dict lanes not None,
        Home home not None,
        *,
        int64_t max_record_bytes,
        bint ignores_keys=False,
        key_serializer=None,
        value_serializer=None,
        now_ms=None,
    ):
        self.lanes = lanes
        self.home = home
        self.max_record_bytes = min(max_record_bytes, INT32_MAX)  # which is what sizes in a record are written with
        self.ignores_keys = ignores_keys
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.clock_ms = now_ms
        self.is_direct = True

    cdef object send_one(self, str topic, value, key, headers, partition, timestamp_ms, on_delivery):
        cdef Lane lane
        cdef BatchRoom room
        cdef SendFuture future
        cdef PyObject* found = NULL
        cdef bytes key_bytes, value_bytes
        cdef list flat = None
        cdef int64_t headers_size = 0, timestamp
        cdef int64_t header_count = 0, before_bytes
        cdef Py_ssize_t number = -1, key_size, value_size
        cdef bint is_sticky = False
        cdef object open_batch

        if isinstance(headers, dict):
            headers = list(headers.items())
        if self.is_direct and self.home.is_usable():
            found = PyDict_GetItemWithError(self.lanes, topic)
        if found == NULL:
            return self._send_slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        lane = <Lane?>found
        if partition is not None:
            number = as_number(partition if PyLong_CheckExact(partition) else partition_number(partition))
        if not lane.is_open or (partition is not None and not 0 <= number < PyList_GET_SIZE(lane.rooms)):
            return self._send_slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if timestamp_ms is None:
            timestamp = wall_clock_ms() if self.clock_ms is None else self.clock_ms()
        else:
            timestamp = record_timestamp_ms(timestamp_ms)

        if self.key_serializer is not None or self.value_serializer is not None:
            headers = list(headers) if headers else []
            if self.key_serializer is not None:
                key = self.key_serializer(topic, headers, key)
            if self.value_serializer is not None:
                value = self.value_serializer(topic, headers, value)
        key_bytes = key if key is None or PyBytes_CheckExact(key) else bytes_of(topic, True, key)
        value_bytes = value if value is None or PyBytes_CheckExact(value) else bytes_of(topic, False, value)
        if headers:
            headers = headers if type(headers) is list else list(headers)  # one that can be read only once is read twice
            flat = flat_headers(headers, &headers_size)
            header_count = PyList_GET_SIZE(flat) // 2
        key_size = length(key_bytes)
        value_size = length(value_bytes)
        if key_size > INT32_MAX or value_size > INT32_MAX:
            # No size in a record can tell this: it is refused there.
            return self._append_slowly(lane, number, value_bytes, key_bytes, headers, timestamp, on_delivery)
        future = new_future(<int32_t>value_size, <int32_t>key_size, timestamp, on_delivery)

        if number < 0:
            if key_bytes is not None and not self.ignores_keys:
                number = murmur2_of(<const uint8_t*>PyBytes_AS_STRING(key_bytes), PyBytes_GET_SIZE(key_bytes)) & INT32_MAX
                number %= PyList_GET_SIZE(lane.rooms)
            else:
                is_sticky = True
                number = lane.sticky_partition
        if (
            0 <= number < PyList_GET_SIZE(lane.rooms)
            and bound_of(key_size, value_size, header_count, headers_size) <= self.max_record_bytes
        ):
            open_batch = <object>PyList_GET_ITEM(lane.rooms, number)
            if open_batch is not None:
                room = <BatchRoom>open_batch
                # From the look at whether it is open until the record is counted nothing runs but this.
                if room.prepare(on_delivery) and lane.is_open:
                    before_bytes = room.records.size_bytes
                    if put_in(room, future, value_bytes, key_bytes, flat, headers_size):
                        if is_sticky:
                            lane.sticky_bytes += room.records.size_bytes - before_bytes
                            if lane.sticky_bytes >= 2 * lane.switch_bytes:
                                lane.sticky_partition = -1
                        return future
        if is_sticky:
            number = -1
        return self._append_slowly(lane, number, value_bytes, key_bytes, headers, timestamp, on_delivery)

    def _send_slowly(self, topic, value, key, headers, partition, timestamp_ms, on_delivery):
        raise NotImplementedError

    def _append_slowly(self, lane, partition, value, key, headers, timestamp_ms, on_delivery):
        raise NotImplementedError


cdef bytes bytes_of(str topic, bint is_key, object part):
    try:
        return as_bytes(part, "key" if is_key else "value")
    except TypeError:
        raise not_bytes(topic, is_key, part) from None


cdef class SyncSendPath(SendPath):
    def send(
        self, topic, value=None, key=None, *, headers=None, partition=None, timestamp_ms=None, on_delivery=None
    ):
        """Put a record into a batch of its partition, and give the future of its acknowledgement.

        `partition` is one of the topic's; without it the key decides, and without a key what is best for batches.
        `timestamp_ms` is now unless given. `on_delivery(metadata, error)` is called with the outcome.

        Raises, and then on_delivery is not called and nothing is sent: `RecordTooLargeError` for more than
        max.request.size or buffer.memory; `BufferFullError` if buffer.memory was used up for max.block.ms;
        `ClientTimeoutError` if the topic was not found in that time; `SerializationError`, `UnknownPartitionError`,
        TypeError and ValueError for what cannot be sent as it is; `ClientClosedError` once the producer is closed.
        """
        if not PyUnicode_CheckExact(topic):
            topic = topic_name(topic)
        return self.send_one(topic, value, key, headers, partition, timestamp_ms, on_delivery)


cdef class AsyncSendPath(SendPath):
    # The event loop that it belongs to. In another one a record would be taken, and nobody would send it.
    cdef public object owner

    def send(
        self, topic, value=None, key=None, *, headers=None, partition=None, timestamp_ms=None, on_delivery=None
    ):
        """Put a record into a batch of its partition, and give the future of its acknowledgement: await this.

        `partition` is one of the topic's; without it the key decides, and without a key what is best for batches.
        `timestamp_ms` is now unless given. `on_delivery(metadata, error)` is called with the outcome.

        Raises, and then on_delivery is not called and nothing is sent: `RecordTooLargeError` for more than
        max.request.size or buffer.memory; `BufferFullError` if buffer.memory was used up for max.block.ms;
        `ClientTimeoutError` if the topic was not found in that time; `SerializationError`, `UnknownPartitionError`,
        TypeError and ValueError for what cannot be sent as it is; `ClientClosedError` once the producer is closed.
        """
        cdef Ready ready
        cdef object sent
        if not PyUnicode_CheckExact(topic):
            topic = topic_name(topic)
        if self.owner is not None and _get_running_loop() is not self.owner:
            return self._send_slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        sent = self.send_one(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if type(sent) is not SendFuture:
            return sent
        ready = Ready.__new__(Ready)
        ready.future = sent
        return ready


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Ready:
    """An awaitable that has its result. It passes for a coroutine, which is what sends that have to wait are."""

    cdef SendFuture future

    def send(self, value):
        raise StopIteration(self.future)

    def throw(self, *error):
        # As of a coroutine that has not begun.
        if isinstance(error[0], BaseException):
            raise error[0]
        raise error[0](*error[1:2])

    def close(self):
        pass

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self.future)


cdef PyObject* ready_next(PyObject* ready) noexcept:
    PyErr_SetObject(StopIteration, (<Ready>ready).future)
    return NULL


cdef PySendResult ready_send(PyObject* ready, PyObject* ignored, PyObject** result) noexcept:
    Py_INCREF((<Ready>ready).future)
    result[0] = <PyObject*>(<Ready>ready).future
    return PYGEN_RETURN


end_at_once(Ready, ready_next, ready_send)
