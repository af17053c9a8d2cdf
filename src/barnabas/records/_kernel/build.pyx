# cython: boundscheck=False, wraparound=False
"""Records into the bytes of a batch: one by one, or row by row from columns."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8String
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from barnabas.records._kernel.columns cimport ArrayIn, RowColumns, get_bytes, get_list, span_of, timestamp_of
from barnabas.records._kernel.varint cimport varint_size

from barnabas.base.errors import LocalProtocolError

cdef enum:
    FIRST_CAPACITY_BYTES = 1024
    USUAL_RECORD_OVERHEAD_BYTES = 12
    # A record's fields around its key, value and headers, each at its longest:
    # length 5, attributes 1, timestamp delta 10, offset delta 5, key length 5, value length 5, header count 5
    MAX_RECORD_OVERHEAD_BYTES = 36


cdef bytes as_bytes(object part, str what):
    """`part` as bytes (None stays None). What is not bytes already is copied once."""
    if part is None or type(part) is bytes:
        return part
    try:
        return bytes(memoryview(part))
    except TypeError:
        raise TypeError(f"{what} must be bytes or None, not {type(part).__name__}") from None


cdef int32_t size_or_null(bytes part) except -2:
    if part is None:
        return -1
    if PyBytes_GET_SIZE(part) > INT32_MAX:
        raise LocalProtocolError(f"{PyBytes_GET_SIZE(part)} bytes do not fit in a record")
    return <int32_t>PyBytes_GET_SIZE(part)


cdef list flat_headers(object headers, int64_t* size_bytes):
    """Names and values in turn, ready to write, and how many bytes they will take."""
    cdef list flat = []
    cdef bytes name, value
    cdef int32_t name_size, value_size
    for pair in headers:
        try:
            key, content = pair
        except (TypeError, ValueError):
            raise TypeError(f"a header is a pair of text and bytes, such as ('trace', b'1'), not {pair!r}") from None
        if type(key) is not str:
            raise TypeError(f"a header's key must be str, not {type(key).__name__}")
        try:
            name = PyUnicode_AsUTF8String(key)
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"the header key {key!r} cannot be UTF-8: {error.reason}") from None
        value = as_bytes(content, "a header's value")
        flat.append(name)
        flat.append(value)
        name_size = size_or_null(name)
        value_size = size_or_null(value)
        size_bytes[0] += varint_size(name_size) + name_size + varint_size(value_size) + max(value_size, 0)
    return flat


def max_record_size_bytes(value, key, headers=()) -> int:
    """The most that a record can add to a batch, wherever in the batch it comes to lie."""
    cdef int64_t size_bytes = MAX_RECORD_OVERHEAD_BYTES
    cdef bytes key_bytes = as_bytes(key, "a key")
    cdef bytes value_bytes = as_bytes(value, "a value")
    if headers:
        flat_headers(headers, &size_bytes)
    return size_bytes + max(size_or_null(key_bytes), 0) + max(size_or_null(value_bytes), 0)


cdef class RecordBuffer:
    """A growing run of records behind `head_bytes` of free room. It never grows past `limit_bytes`, head included.

    The one exception is asked for with `allow_oversized`: then a first record that is too large gets in, alone.
    Timestamps are written as distances from `base_timestamp_ms`, which is the first record's unless given.
    """

    def __init__(
        self, int64_t limit_bytes, int64_t head_bytes, *, base_timestamp_ms=None, bint allow_oversized=False
    ):
        if not 0 <= head_bytes <= limit_bytes <= INT32_MAX:
            raise ValueError(f"the limit must be from {head_bytes} to {INT32_MAX} bytes, not {limit_bytes}")
        self.head_bytes = head_bytes
        self.limit_bytes = limit_bytes
        self.allow_oversized = allow_oversized
        self.size_bytes = head_bytes
        self.last_offset_delta = -1
        self.max_timestamp_ms = -1
        self.base_timestamp_is_known = base_timestamp_ms is not None
        self.base_timestamp_ms = base_timestamp_ms if base_timestamp_ms is not None else -1
        self.capacity_bytes = min(limit_bytes, max(FIRST_CAPACITY_BYTES, head_bytes))
        self.storage = PyByteArray_FromStringAndSize(NULL, self.capacity_bytes)
        self.data = <uint8_t*>PyByteArray_AS_STRING(self.storage)

    def append(self, value, key, int64_t timestamp_ms, headers=(), int32_t offset_delta=-1):
        """Add a record and return its offset delta, or None if the batch is full.

        A record that no batch of this limit could take is refused with `LocalProtocolError`. Offset deltas count up
        from 0; give `offset_delta` to leave a gap, as compaction does.
        """
        cdef bytes key_bytes = as_bytes(key, "a key")
        cdef bytes value_bytes = as_bytes(value, "a value")
        cdef int32_t key_size = size_or_null(key_bytes)
        cdef int32_t value_size = size_or_null(value_bytes)
        cdef int64_t headers_size = 0
        cdef list flat = flat_headers(headers, &headers_size) if headers else None
        cdef int64_t header_count = len(flat) // 2 if flat is not None else 0
        cdef int64_t timestamp_delta, body_bytes
        cdef uint8_t* at
        cdef bytes part
        cdef int room

        self.check_open()
        if offset_delta < 0:
            if self.last_offset_delta == INT32_MAX:
                return None
            offset_delta = self.last_offset_delta + 1
        elif offset_delta <= self.last_offset_delta:
            raise LocalProtocolError(f"offset delta {offset_delta} does not come after {self.last_offset_delta}")
        timestamp_delta = self.delta_of(timestamp_ms)
        body_bytes = body_size(timestamp_delta, offset_delta, key_size, value_size, header_count, headers_size)
        room = self.make_room(varint_size(body_bytes) + body_bytes)
        if room == 0:
            return None
        at = put_record(
            self.data + self.size_bytes, body_bytes, timestamp_delta, offset_delta,
            PyBytes_AS_STRING(key_bytes) if key_size > 0 else NULL, key_size,
            PyBytes_AS_STRING(value_bytes) if value_size > 0 else NULL, value_size,
            header_count,
        )
        if flat is not None:
            for part in flat:
                at = put_nullable(at, PyBytes_AS_STRING(part) if part is not None else NULL, size_or_null(part))
        self.added(at, offset_delta, timestamp_ms)
        return offset_delta

    def append_rows(self, RowColumns rows not None, int64_t first, int64_t stop) -> int:
        """Add the rows from `first` up to `stop`, as far as they fit, and return the first that did not."""
        cdef int64_t row
        self.check_open()
        if not 0 <= first <= stop <= rows.row_count:
            raise ValueError(f"rows {first} to {stop} are not within the {rows.row_count} given")
        self.expect(span_of(&rows.values, first, stop) + (stop - first) * USUAL_RECORD_OVERHEAD_BYTES)
        self.busy = True
        try:
            with nogil:
                row = self.append_each(rows, first, stop)
        finally:
            self.busy = False
        return row

    cdef int64_t append_each(self, RowColumns rows, int64_t first, int64_t stop) except -1 nogil:
        cdef ArrayIn values = rows.values
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef int32_t key_size = -1, value_size = -1, offset_delta
        cdef int64_t row, timestamp_ms, timestamp_delta, body_bytes
        cdef int64_t first_header = 0, stop_header = 0, headers_size = 0
        cdef uint8_t* at
        for row in range(first, stop):
            if self.last_offset_delta == INT32_MAX:
                return row
            offset_delta = self.last_offset_delta + 1
            if not get_bytes(&values, row, &value, &value_size):
                refuse_row("value", row)
            if rows.has_keys and not get_bytes(&rows.keys, row, &key, &key_size):
                refuse_row("key", row)
            if rows.has_headers:
                if not get_list(&rows.headers, row, &first_header, &stop_header):
                    refuse_row("headers", row)
                headers_size = measure_headers(rows, first_header, stop_header)
            timestamp_ms = timestamp_of(rows, row)
            timestamp_delta = self.delta_of(timestamp_ms)
            body_bytes = body_size(
                timestamp_delta, offset_delta, key_size, value_size, stop_header - first_header, headers_size
            )
            if self.make_room(varint_size(body_bytes) + body_bytes) == 0:
                return row
            at = put_record(
                self.data + self.size_bytes, body_bytes, timestamp_delta, offset_delta,
                key, key_size, value, value_size, stop_header - first_header,
            )
            if stop_header > first_header:
                at = put_headers(at, rows, first_header, stop_header)
            self.added(at, offset_delta, timestamp_ms)
        return stop

    def record_size_bytes(self, value, key, int64_t timestamp_ms, headers=()) -> int:
        """Exactly what `append` with these arguments would add to `size_bytes`."""
        cdef bytes key_bytes = as_bytes(key, "a key")
        cdef bytes value_bytes = as_bytes(value, "a value")
        cdef int64_t headers_size = 0
        cdef int64_t header_count = len(flat_headers(headers, &headers_size)) // 2 if headers else 0
        cdef int64_t body_bytes = body_size(
            self.delta_of(timestamp_ms), self.last_offset_delta + 1,
            size_or_null(key_bytes), size_or_null(value_bytes), header_count, headers_size,
        )
        return varint_size(body_bytes) + body_bytes

    def view(self) -> memoryview:
        """Head and records. Release it before the next append or `take`."""
        self.check_open()
        return memoryview(self.storage)[: self.size_bytes]

    def take(self) -> bytearray:
        """Head and records, handed over without a copy. The buffer is of no use afterwards."""
        cdef bytearray taken = self.storage
        self.check_open()
        PyByteArray_Resize(taken, self.size_bytes)
        self.storage = None
        self.data = NULL
        return taken

    cdef int check_open(self) except -1:
        if self.storage is None:
            raise LocalProtocolError("the batch is built: nothing can be done with its builder any more")
        if self.busy:
            raise LocalProtocolError("another thread is appending to this batch")
        return 0

    cdef int grow(self, int64_t record_bytes) except -1 with gil:
        cdef int64_t needed_bytes = self.size_bytes + record_bytes
        cdef int64_t allowed_bytes = INT32_MAX if self.allow_oversized else self.limit_bytes
        if needed_bytes > self.limit_bytes:
            if self.record_count > 0:
                return 0
            if needed_bytes > allowed_bytes:
                raise LocalProtocolError(
                    f"a record of {record_bytes} bytes does not fit in a batch of at most {allowed_bytes} bytes, "
                    f"of which {self.head_bytes} are header"
                )
        self.resize(max(needed_bytes, min(self.limit_bytes, 2 * self.capacity_bytes)))
        return 1

    cdef int expect(self, int64_t more_bytes) except -1:
        """Grow at once for about so many bytes, instead of in steps that copy what is there already."""
        cdef int64_t capacity_bytes = min(self.limit_bytes, self.size_bytes + more_bytes)
        if capacity_bytes > self.capacity_bytes:
            self.resize(capacity_bytes)
        return 0

    cdef int resize(self, int64_t capacity_bytes) except -1:
        PyByteArray_Resize(self.storage, capacity_bytes)
        self.capacity_bytes = capacity_bytes
        self.data = <uint8_t*>PyByteArray_AS_STRING(self.storage)
        return 0


cdef int refuse_row(str column, int64_t row) except -1 with gil:
    raise LocalProtocolError(f"the offsets of column {column!r} are wrong at row {row}")


cdef int64_t measure_headers(RowColumns rows, int64_t first, int64_t stop) except -1 nogil:
    """The bytes of so many headers, which `put_headers` may then write without looking again."""
    cdef const uint8_t* part = NULL
    cdef int32_t size_bytes = 0
    cdef int64_t total_bytes = 0, i
    for i in range(first, stop):
        if not get_bytes(&rows.header_keys, i, &part, &size_bytes):
            refuse_row("headers.key", i)
        if size_bytes < 0:
            with gil:
                raise LocalProtocolError("a header's key is null")
        total_bytes += varint_size(size_bytes) + size_bytes
        if not get_bytes(&rows.header_values, i, &part, &size_bytes):
            refuse_row("headers.value", i)
        total_bytes += varint_size(size_bytes) + max(size_bytes, 0)
    return total_bytes


cdef uint8_t* put_headers(uint8_t* at, RowColumns rows, int64_t first, int64_t stop) noexcept nogil:
    cdef const uint8_t* part = NULL
    cdef int32_t size_bytes = 0
    cdef int64_t i
    for i in range(first, stop):
        get_bytes(&rows.header_keys, i, &part, &size_bytes)
        at = put_nullable(at, part, size_bytes)
        get_bytes(&rows.header_values, i, &part, &size_bytes)
        at = put_nullable(at, part, size_bytes)
    return at
