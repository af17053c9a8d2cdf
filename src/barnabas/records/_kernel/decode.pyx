# cython: boundscheck=False, wraparound=False
"""Records as Python objects, one after another."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.records._kernel.bytes cimport data_of, plain_view, size_of
from barnabas.records._kernel.cursor cimport (
    MIN_RECORD_BYTES, Cursor, RawHeader, RawRecord, cursor_over, end_record, fail, read_header, read_record,
)

from barnabas.base.errors import RemoteProtocolError


cdef tuple checked_header(str name, bytes content):
    if name is None:
        raise TypeError("a header's key must be str, not None")
    return name, content


# No cycle can run through a record (its parts are bytes, and tuples of str and bytes): the collector need not see it.
@cython.final
@cython.freelist(256)
@cython.no_gc
cdef class Record:
    """One record as it lies in the log. Equal to another if every part is."""

    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly int8_t timestamp_type
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers

    def __init__(
        self,
        int64_t offset,
        int64_t timestamp_ms,
        bytes key,
        bytes value,
        headers=(),
        int8_t timestamp_type=0,
    ):
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = tuple([checked_header(name, content) for name, content in headers])

    cdef tuple parts(self):
        return self.offset, self.timestamp_ms, self.key, self.value, self.headers, self.timestamp_type

    def __eq__(self, other):
        if type(other) is not Record:
            return NotImplemented
        return self.parts() == (<Record>other).parts()

    def __hash__(self):
        return hash(self.parts())

    def __reduce__(self):
        return Record, self.parts()

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, timestamp_type={self.timestamp_type})"
        )


cdef inline object bytes_or_none(const uint8_t* data, int32_t size_bytes):
    if size_bytes < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>data, size_bytes)


cdef tuple read_headers(Cursor* cursor, int32_t count):
    cdef tuple headers = PyTuple_New(count)
    cdef RawHeader header
    cdef object pair
    cdef int32_t i
    for i in range(count):
        if not read_header(cursor, &header):
            fail(cursor)
        # What is not UTF-8 is replaced, as Java does it: one odd header must not keep a consumer from its records.
        name = PyUnicode_DecodeUTF8(<const char*>header.key, header.key_size, b"replace")
        pair = (name, bytes_or_none(header.value, header.value_size))
        Py_INCREF(pair)  # SET_ITEM takes over a reference
        PyTuple_SET_ITEM(headers, i, pair)
    return headers


cdef tuple NO_HEADERS = ()


@cython.final
cdef class RecordReader:
    """Iterates over the records in `payload` (decompressed), of which the batch's header says there are `record_count`.

    With `append_time` every record carries `max_timestamp_ms`, else its own timestamp. Records below `from_offset`
    are stepped over.
    """

    cdef memoryview view
    cdef Cursor cursor
    cdef const uint8_t* payload_end
    cdef int64_t base_offset
    cdef int64_t base_timestamp_ms
    cdef int64_t max_timestamp_ms
    cdef int64_t from_offset
    cdef bint append_time
    cdef int32_t left

    def __init__(
        self,
        payload,
        int32_t record_count,
        int64_t base_offset,
        int64_t base_timestamp_ms,
        int64_t max_timestamp_ms,
        bint append_time,
        int64_t from_offset=INT64_MIN,
    ):
        self.view = plain_view(payload)
        if record_count > size_of(self.view) // MIN_RECORD_BYTES:
            raise RemoteProtocolError(f"{record_count} records cannot fit in {size_of(self.view)} bytes")
        self.cursor = cursor_over(data_of(self.view), size_of(self.view))
        self.payload_end = self.cursor.end
        self.base_offset = base_offset
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.append_time = append_time
        self.from_offset = from_offset
        self.left = record_count

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self.left

    def __next__(self):
        cdef Record made
        while self.left > 0:
            self.left -= 1
            made = self.read_one()
            if made.offset >= self.from_offset:
                return made
        if self.cursor.at != self.payload_end:
            self.cursor.failure = b"bytes are left after the last record"
            fail(&self.cursor)
        raise StopIteration

    cdef Record read_one(self):
        cdef RawRecord raw
        cdef Cursor* cursor = &self.cursor
        cdef Record record = Record.__new__(Record)
        if not read_record(cursor, &raw):
            fail(cursor)
        record.key = bytes_or_none(raw.key, raw.key_size)
        record.value = bytes_or_none(raw.value, raw.value_size)
        record.headers = read_headers(cursor, raw.header_count) if raw.header_count else NO_HEADERS
        if not end_record(cursor, self.payload_end):
            fail(cursor)
        record.offset = <int64_t>(<uint64_t>self.base_offset + raw.offset_delta)
        if self.append_time:
            record.timestamp_ms = self.max_timestamp_ms
            record.timestamp_type = 1
        else:
            record.timestamp_ms = <int64_t>(<uint64_t>self.base_timestamp_ms + <uint64_t>raw.timestamp_delta)
            record.timestamp_type = 0
        return record
