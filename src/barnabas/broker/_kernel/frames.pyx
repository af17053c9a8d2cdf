# cython: boundscheck=False, wraparound=False
"""Requests read where they lie in their frame; what is unusual about one, or cannot be read, is left to its codec."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from barnabas.records._kernel.bytes cimport load_i16, load_i32, load_i64

from barnabas.base.ids import Uuid

cdef enum:
    CORRELATION_ID_END = 8


cdef class FrameReader:
    """`is_readable` says whether all was there that was read. It never reads beyond the frame."""

    cdef void open(self, bytearray frame, int version, int first_flexible, int first_by_id) noexcept:
        self.frame = frame
        self.version = version
        self.is_flexible = version >= first_flexible
        self.is_by_id = version >= first_by_id
        self.at = CORRELATION_ID_END
        self.is_readable = True

    cdef uint8_t read_byte(self) noexcept:
        self.at += 1
        if self.at > PyByteArray_GET_SIZE(self.frame):
            self.is_readable = False
            return 0
        return <uint8_t>PyByteArray_AS_STRING(self.frame)[self.at - 1]

    cdef int16_t read_i16(self) noexcept:
        self.at += 2
        if self.at > PyByteArray_GET_SIZE(self.frame):
            self.is_readable = False
            return 0
        return load_i16(<const uint8_t*>PyByteArray_AS_STRING(self.frame) + self.at - 2)

    cdef int32_t read_i32(self) noexcept:
        self.at += 4
        if self.at > PyByteArray_GET_SIZE(self.frame):
            self.is_readable = False
            return 0
        return load_i32(<const uint8_t*>PyByteArray_AS_STRING(self.frame) + self.at - 4)

    cdef int64_t read_i64(self) noexcept:
        self.at += 8
        if self.at > PyByteArray_GET_SIZE(self.frame):
            self.is_readable = False
            return 0
        return load_i64(<const uint8_t*>PyByteArray_AS_STRING(self.frame) + self.at - 8)

    cdef int64_t read_uvarint(self) noexcept:
        cdef const uint8_t* data = <const uint8_t*>PyByteArray_AS_STRING(self.frame)
        cdef int64_t value = 0
        cdef int shift = 0
        while self.at < PyByteArray_GET_SIZE(self.frame) and shift < 35:
            value |= <int64_t>(data[self.at] & 0x7F) << shift
            self.at += 1
            if data[self.at - 1] < 0x80:
                return value
            shift += 7
        self.is_readable = False
        return 0

    cdef int64_t read_size(self, bint is_short) noexcept:
        """Of a text, or of an array or bytes; -1 of one that is null."""
        if self.is_flexible:
            return self.read_uvarint() - 1
        return self.read_i16() if is_short else self.read_i32()

    cdef void skip(self, int64_t size_bytes) noexcept:
        if size_bytes < 0 or size_bytes > PyByteArray_GET_SIZE(self.frame) - self.at:
            self.is_readable = False
        else:
            self.at += size_bytes

    cdef void skip_no_tags(self) noexcept:
        """Tags are for others to read, or to pass over."""
        if self.is_flexible and self.read_uvarint():
            self.is_readable = False

    cdef void skip_header(self) noexcept:
        """Whether the client's id is a text at all is only seen where it is plain."""
        cdef Py_ssize_t start = self.at + 2
        cdef int16_t size_bytes = self.read_i16()
        if size_bytes != NULL_SIZE:
            self.skip(size_bytes)
        while start < self.at and self.is_readable:
            self.is_readable = <uint8_t>PyByteArray_AS_STRING(self.frame)[start] < 0x80
            start += 1
        self.skip_no_tags()

    cdef object read_topic(self, Topic* topic):
        """The topic's name, or its id; then comes how many partitions of it there are."""
        cdef int64_t name_bytes = UUID_BYTES if self.is_by_id else self.read_size(True)
        cdef const char* name
        topic.name_start = self.at
        topic.name_bytes = name_bytes
        self.skip(name_bytes)
        topic.partition_count = 0
        if not self.is_readable:
            return None
        name = PyByteArray_AS_STRING(self.frame) + topic.name_start
        return Uuid(name[:name_bytes]) if self.is_by_id else name[:name_bytes].decode("utf-8", "replace")

    cdef uint8_t* put_topic(self, uint8_t* at, const Topic* topic) noexcept:
        """The same in an answer, with the number of partitions."""
        if not self.is_flexible:
            at = put_i16(at, <int16_t>topic.name_bytes)
        elif not self.is_by_id:
            at = put_uvarint(at, <uint32_t>topic.name_bytes + 1)
        memcpy(at, PyByteArray_AS_STRING(self.frame) + topic.name_start, topic.name_bytes)
        return put_count(at + topic.name_bytes, topic.partition_count, self.is_flexible)
