# cython: boundscheck=False, wraparound=False
"""Records for programs: objects made one by one out of what was fetched, and where a program is in it."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.records._kernel.bytes cimport data_of, load_i16, load_i32, load_i64, load_u32, plain_view, size_of
from barnabas.records._kernel.collect cimport RecordColumns, UnreadBatch
from barnabas.records._kernel.cursor cimport (
    MIN_RECORD_BYTES, Cursor, RawHeader, RawRecord, cursor_over, end_record, fail, read_header, read_record,
    skip_headers,
)
from barnabas.records._kernel.walk cimport EntryWalk

from types import GenericAlias

from crc32c import crc32c

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.client.errors import CorruptRecordsError, SerializationError, WrongUseError

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject* each) noexcept

cdef enum:
    FRAME_BYTES = 12          # base offset and length: the same in every message format
    MIN_ENTRY_BYTES = 26
    EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21        # the CRC covers everything from here on
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    RECORD_COUNT_AT = 57
    BATCH_HEADER_BYTES = 61
    APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    UNUSUAL_BITS = 0x27       # codec, control


cdef inline bint is_plain(object part) noexcept:
    """Whether no cycle can run through it: then the collector need not see the record."""
    return part is None or type(part) is bytes or type(part) is str or type(part) is int or type(part) is float


@cython.final
@cython.freelist(512)
cdef class ConsumerRecord:
    """One record as a consumer got it. Equal to another if every part is."""

    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int8_t timestamp_type
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef int32_t epoch
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size

    def __init__(
        self,
        str topic,
        int32_t partition,
        int64_t offset,
        key=None,
        value=None,
        headers=(),
        *,
        int64_t timestamp_ms=-1,
        int8_t timestamp_type=0,
        leader_epoch=None,
        int32_t serialized_key_size=-1,
        int32_t serialized_value_size=-1,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.epoch = -1 if leader_epoch is None else leader_epoch
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    @property
    def leader_epoch(self) -> int | None:
        return None if self.epoch < 0 else self.epoch

    cdef tuple parts(self):
        return (
            self.topic, self.partition, self.offset, self.key, self.value, self.headers, self.timestamp_ms,
            self.timestamp_type, self.epoch, self.serialized_key_size, self.serialized_value_size,
        )

    def __eq__(self, other):
        if type(other) is not ConsumerRecord:
            return NotImplemented
        return self.parts() == (<ConsumerRecord>other).parts()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self):
        return restored, self.parts()

    @classmethod
    def __class_getitem__(cls, kinds):
        """`ConsumerRecord[str, bytes]`: for type checkers."""
        return GenericAlias(cls, kinds)

    def __repr__(self):
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp_ms={self.timestamp_ms}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


def restored(
    topic, partition, offset, key, value, headers, timestamp_ms, timestamp_type, epoch, key_size, value_size
) -> ConsumerRecord:
    """A record out of its pickled parts."""
    return ConsumerRecord(
        topic, partition, offset, key, value, headers, timestamp_ms=timestamp_ms, timestamp_type=timestamp_type,
        leader_epoch=epoch, serialized_key_size=key_size, serialized_value_size=value_size,
    )


cdef inline object bytes_or_none(const uint8_t* data, int32_t size_bytes):
    if size_bytes < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>data, size_bytes)


cdef tuple NO_HEADERS = ()


@cython.final
cdef class Chunk:
    """What was fetched of one partition, as records. An iterator, and `take` for lists.

    `source` gives the batches: `next_batch()`, and `next_offset`, `next_epoch`, `timestamp_type` of the last one. If it
    has `entries`, a walk over them, the usual ones are read from there without its help, and `passed` tells it. With a
    deserializer `key` and `value` are what it makes of them, called with the topic, the headers and the bytes; None
    stays None.

    Guarantee: after an error nothing is lost, whatever was raised. The next call meets the same record again. A chunk is
    for one thread at a time: who comes while another is in it gets an error.
    """

    cdef readonly str topic
    cdef readonly int32_t partition
    #: Behind the last record handed out, and the leader epoch of that record.
    cdef readonly int64_t next_offset
    cdef readonly int32_t next_epoch
    #: Behind the last record that the program has come back from.
    cdef readonly int64_t handed_offset
    cdef readonly int32_t handed_epoch
    #: Of the answer that it came in; what the chunk keeps in memory.
    cdef readonly int64_t size_bytes
    #: How much has been handed out.
    cdef readonly int64_t record_count
    cdef readonly int64_t record_bytes
    cdef readonly bint is_halted
    #: Of all rows that the last `add_to` added: -1, 0 or 1.
    cdef readonly int8_t added_timestamp_type
    cdef object source
    cdef object key_deserializer
    cdef object value_deserializer
    cdef bint is_busy  # somebody reads; the program's deserializers may run meanwhile, and other threads with them

    cdef EntryWalk entries  # None if the source has to be asked for each batch
    cdef bint check_crcs
    cdef short unusual_bits
    cdef bint is_source_behind  # of what was read from the entries without its help
    cdef object pending  # a batch that the source has given and that could not be entered yet
    cdef memoryview payload  # what the cursor reads in, None between batches
    cdef Cursor cursor
    cdef const uint8_t* payload_end
    cdef int32_t left  # how many records lie from the cursor on
    cdef int64_t base_offset
    cdef int64_t base_timestamp_ms
    cdef int64_t max_timestamp_ms
    cdef int64_t batch_next_offset
    cdef int32_t batch_epoch
    cdef int8_t timestamp_type

    def __init__(
        self,
        str topic,
        int32_t partition,
        source,
        int64_t size_bytes,
        key_deserializer=None,
        value_deserializer=None,
    ):
        self.topic = topic
        self.partition = partition
        self.source = source
        self.size_bytes = size_bytes
        self.key_deserializer = key_deserializer
        self.value_deserializer = value_deserializer
        self.entries = getattr(source, "entries", None)
        if self.entries is not None:
            self.check_crcs = source.check_crcs
            self.unusual_bits = UNUSUAL_BITS if source.sees_all else UNUSUAL_BITS | TRANSACTIONAL_BIT
        self.next_offset = self.handed_offset = self.batch_next_offset = source.next_offset
        self.next_epoch = self.handed_epoch = source.next_epoch

    def __iter__(self):
        return self

    def __next__(self):
        cdef ConsumerRecord record
        self.begin()
        try:
            self.handed_offset = self.next_offset
            self.handed_epoch = self.next_epoch
            record = self.read_one()
            if record is None:
                # Behind the last record there may be markers; the program is done with those too.
                self.handed_offset = self.next_offset
                self.handed_epoch = self.next_epoch
        finally:
            self.is_busy = False
        if record is None:
            raise StopIteration
        return record

    def take(self, Py_ssize_t limit) -> list:
        """Up to so many records; fewer only where the chunk ends, was halted, or an error is next."""
        cdef list taken = []
        cdef ConsumerRecord record
        cdef Py_ssize_t i
        self.begin()
        try:
            for i in range(limit):
                record = self.read_one()
                if record is None:
                    break
                taken.append(record)
        except Exception:
            if not taken:
                raise
        finally:
            self.is_busy = False
        return taken

    def has_more(self) -> bool:
        """Whether another record may come. Steps over what is not for the program."""
        self.begin()
        try:
            return not self.is_halted and self.find_batch()
        finally:
            self.is_busy = False

    def add_to(self, RecordColumns columns not None, int64_t row_limit, int64_t byte_limit=0) -> int:
        """Add records to `RecordColumns`, at most so many, all with one type of timestamp; how many.

        Of as many batches as keep `taken_bytes` within the limit, or of one. None means that there are no more, or that
        the next batch has no room beside what is in the columns already.
        """
        cdef int64_t added = 0
        self.begin()
        try:
            while added < row_limit and not self.is_halted and self.find_batch():
                if added and self.timestamp_type != self.added_timestamp_type:
                    break
                if byte_limit <= 0:
                    if added:
                        break
                elif columns.values.rows and columns.taken_bytes + self.payload_bytes() > byte_limit:
                    break
                self.added_timestamp_type = self.timestamp_type
                added += self.add_batch(columns, row_limit - added)
        except Exception:
            if not added:
                raise
        finally:
            self.is_busy = False
        return added

    cdef int64_t payload_bytes(self) noexcept:
        return 0 if self.payload is None else self.payload_end - self.cursor.start

    cdef int begin(self) except -1:
        if self.is_busy:
            raise WrongUseError(
                f"records of {self.topic}-{self.partition} are being read already: a consumer is for one thread at a "
                "time, and deserializers must not poll it"
            )
        self.is_busy = True
        return 0

    cdef int64_t add_batch(self, RecordColumns columns, int64_t row_limit) except -1:
        cdef int64_t before = columns.values.rows
        cdef int64_t added
        cdef bint is_whole
        try:
            is_whole = columns.add_from(
                UnreadBatch(
                    self.cursor, self.left, self.base_offset, self.base_timestamp_ms, self.max_timestamp_ms,
                    self.timestamp_type == 1,
                ),
                self.next_offset,
                row_limit,
            )
        except RemoteProtocolError as error:
            raise self.corrupt(str(error)) from error
        added = columns.values.rows - before
        self.record_count += added
        self.record_bytes += columns.read_bytes
        if is_whole:
            self.leave_batch()
        else:
            self.cursor.at += columns.read_bytes
            self.left -= columns.read_count
            self.next_offset = columns.last_offset + 1
            self.next_epoch = self.batch_epoch
        return added

    @property
    def batch_bytes(self) -> int:
        """Of the present batch, unpacked; 0 between batches."""
        return self.payload_bytes()

    @property
    def is_exhausted(self) -> bool:
        return self.source is None

    def hand_over(self, int64_t handed_offset, int32_t handed_epoch) -> None:
        """The program gets this chunk. It may still have records from before, and is done only up to this offset."""
        self.handed_offset = handed_offset
        self.handed_epoch = handed_epoch

    def confirm(self) -> None:
        """The program has come back: it is done with all that was handed out."""
        self.handed_offset = self.next_offset
        self.handed_epoch = self.next_epoch

    def halt(self) -> None:
        """Give out nothing more, until `resume`."""
        self.is_halted = True

    def resume(self) -> None:
        self.is_halted = False

    cdef bint find_batch(self) except -1:
        """See to it that there is a batch with records left; False at the end."""
        if self.payload is not None and self.left > 0:
            return True
        while True:
            if self.payload is not None:
                if self.left > 0:
                    return True
                if self.cursor.at != self.payload_end:
                    raise self.corrupt("bytes are left after the last record of a batch")
                self.leave_batch()
            if self.source is None:
                return False
            if self.pending is None:
                if self.entries is not None and self.enter_usual():
                    return True
                if self.is_source_behind:
                    self.source.passed(self.batch_next_offset, self.batch_epoch, self.timestamp_type)
                    self.is_source_behind = False
                try:
                    self.pending = self.source.next_batch()
                except BaseException:
                    self.entries = None  # the source has them no more, or no more of them are good
                    raise
            if self.pending is None:
                # The bytes of the answer need not be kept any longer.
                self.next_offset = max(self.next_offset, <int64_t>self.source.next_offset)
                self.next_epoch = self.source.next_epoch
                self.source = self.entries = None
                return False
            self.enter_batch(self.pending)
            self.pending = None

    cdef bint enter_usual(self) except -1:
        """Enter the next batch if nothing is unusual about it: whole, of today's format, not compressed, no part of a
        transaction that may be aborted, with records behind the last one. Else False, also for what is wrong: the
        source can tell."""
        cdef EntryWalk entries = self.entries
        cdef memoryview view = entries.view
        cdef Py_ssize_t left = size_of(view) - entries.position
        cdef const uint8_t* at = data_of(view) + entries.position
        cdef int64_t entry_bytes, next_offset
        cdef int32_t record_count, last_delta
        if left < BATCH_HEADER_BYTES:
            return False
        entry_bytes = <int64_t>load_i32(at + 8) + FRAME_BYTES
        if entry_bytes < BATCH_HEADER_BYTES or entry_bytes > left or at[MAGIC_AT] != 2:
            return False
        record_count = load_i32(at + RECORD_COUNT_AT)
        last_delta = load_i32(at + LAST_DELTA_AT)
        next_offset = <int64_t>(<uint64_t>load_i64(at) + last_delta + 1)
        if (
            load_i16(at + ATTRIBUTES_AT) & self.unusual_bits
            or record_count < 1
            or record_count > (entry_bytes - BATCH_HEADER_BYTES) // MIN_RECORD_BYTES
            or last_delta < 0
            or next_offset <= self.batch_next_offset
        ):
            return False
        if self.check_crcs and <unsigned int>crc32c(
            view[entries.position + ATTRIBUTES_AT : entries.position + entry_bytes]
        ) != load_u32(at + CRC_AT):
            return False
        entries.position += entry_bytes
        self.is_source_behind = True
        self.base_offset = load_i64(at)
        self.batch_next_offset = next_offset
        self.batch_epoch = load_i32(at + EPOCH_AT)
        self.timestamp_type = 1 if at[ATTRIBUTES_AT + 1] & APPEND_TIME_BIT else 0
        self.base_timestamp_ms = load_i64(at + BASE_TIMESTAMP_AT)
        self.max_timestamp_ms = load_i64(at + MAX_TIMESTAMP_AT)
        self.cursor = cursor_over(at + BATCH_HEADER_BYTES, entry_bytes - BATCH_HEADER_BYTES)
        self.payload_end = self.cursor.end
        self.left = record_count
        self.payload = view
        return True

    cdef int enter_batch(self, batch) except -1:
        """Nothing is changed before everything has worked: unpacking may fail for reasons that pass."""
        cdef int32_t record_count = batch.record_count
        cdef int64_t base_timestamp_ms = batch.base_timestamp_ms
        cdef int64_t max_timestamp_ms = batch.max_timestamp_ms
        cdef memoryview payload
        try:
            payload = plain_view(batch.payload())
            if record_count > size_of(payload) // MIN_RECORD_BYTES:
                raise RemoteProtocolError(f"{record_count} records cannot fit in {size_of(payload)} bytes")
        except RemoteProtocolError as error:
            self.pending = self.entries = None
            self.source.spoil(self.next_offset, str(error))
            raise self.corrupt(str(error)) from error
        self.base_offset = batch.base_offset
        self.batch_next_offset = self.source.next_offset
        self.batch_epoch = self.source.next_epoch
        self.timestamp_type = self.source.timestamp_type
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.cursor = cursor_over(data_of(payload), size_of(payload))
        self.payload_end = self.cursor.end
        self.left = record_count
        self.payload = payload
        return 0

    cdef int leave_batch(self) except -1:
        self.payload = None
        self.left = 0
        self.next_offset = self.batch_next_offset
        self.next_epoch = self.batch_epoch
        return 0

    cdef object corrupt(self, str reason):
        return CorruptRecordsError(TopicPartition(self.topic, self.partition), self.next_offset, reason)

    cdef ConsumerRecord read_one(self):
        """The next record, None at the end."""
        cdef Cursor cursor
        cdef RawRecord raw
        cdef int64_t offset
        cdef ConsumerRecord record = None
        if self.is_halted:
            return None
        while True:
            if self.left <= 0 and not self.find_batch():
                return None
            # The chunk's own cursor moves when the record is done: a deserializer may raise anything.
            cursor = self.cursor
            if not read_record(&cursor, &raw):
                self.refuse(&cursor)
            offset = <int64_t>(<uint64_t>self.base_offset + raw.offset_delta)
            if offset >= self.next_offset:
                record = self.make(&cursor, &raw, offset)
            elif not skip_headers(&cursor, raw.header_count):
                self.refuse(&cursor)
            if not end_record(&cursor, self.payload_end):
                self.refuse(&cursor)
            self.left -= 1
            if record is not None:
                self.next_offset = offset + 1
                self.next_epoch = self.batch_epoch
                self.record_count += 1
                self.record_bytes += cursor.at - self.cursor.at
                self.cursor.at = cursor.at
                return record
            self.cursor.at = cursor.at

    cdef int refuse(self, Cursor* cursor) except -1:
        try:
            fail(cursor)
        except RemoteProtocolError as error:
            raise self.corrupt(str(error)) from error
        return 0

    cdef ConsumerRecord make(self, Cursor* cursor, RawRecord* raw, int64_t offset):
        cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
        cdef object part
        record.topic = self.topic
        record.partition = self.partition
        record.offset = offset
        record.epoch = self.batch_epoch
        record.timestamp_type = self.timestamp_type
        if self.timestamp_type == 1:
            record.timestamp_ms = self.max_timestamp_ms
        else:
            record.timestamp_ms = <int64_t>(<uint64_t>self.base_timestamp_ms + <uint64_t>raw.timestamp_delta)
        record.headers = self.headers_of(cursor, raw.header_count) if raw.header_count else NO_HEADERS
        record.serialized_key_size = raw.key_size
        record.serialized_value_size = raw.value_size
        part = bytes_or_none(raw.key, raw.key_size)
        if self.key_deserializer is not None and part is not None:
            part = self.deserialize(self.key_deserializer, record.headers, part, offset, "key")
        record.key = part
        part = bytes_or_none(raw.value, raw.value_size)
        if self.value_deserializer is not None and part is not None:
            part = self.deserialize(self.value_deserializer, record.headers, part, offset, "value")
        record.value = part
        if is_plain(record.key) and is_plain(record.value):
            PyObject_GC_UnTrack(<PyObject*>record)
        return record

    cdef tuple headers_of(self, Cursor* cursor, int32_t count):
        cdef tuple headers = PyTuple_New(count)
        cdef RawHeader header
        cdef object pair
        cdef int32_t i
        for i in range(count):
            if not read_header(cursor, &header):
                self.refuse(cursor)
            # What is not UTF-8 is replaced, as Java does it: one odd header must not keep a consumer from its records.
            name = PyUnicode_DecodeUTF8(<const char*>header.key, header.key_size, b"replace")
            pair = (name, bytes_or_none(header.value, header.value_size))
            Py_INCREF(pair)  # SET_ITEM takes over a reference
            PyTuple_SET_ITEM(headers, i, pair)
        return headers

    cdef object deserialize(self, deserializer, tuple headers, part, int64_t offset, str what):
        try:
            return deserializer(self.topic, headers, part)
        except Exception as error:
            failure = SerializationError(
                f"the {what} of {self.topic}-{self.partition} at offset {offset} cannot be deserialized: "
                f"{type(error).__name__}: {error}; seek past it to go on"
            )
            failure.partition = TopicPartition(self.topic, self.partition)
            failure.offset = offset
            raise failure from error


def survey(buffer) -> tuple[int, int, int, int]:
    """How many whole entries lie in `buffer`, how many records they say they have, and the offset behind the last of
    them with its leader epoch.

    Only headers are looked at; one that cannot be ends the count, and is left for whoever reads the entries.
    """
    cdef memoryview view = plain_view(buffer)
    cdef const uint8_t* at = data_of(view)
    cdef Py_ssize_t left = size_of(view)
    cdef const uint8_t* last = NULL
    cdef int64_t entry_bytes, entry_count = 0, record_count = 0, next_offset = -1
    cdef int32_t epoch = -1
    while left >= MIN_ENTRY_BYTES:
        entry_bytes = <int64_t>load_i32(at + 8) + FRAME_BYTES
        if entry_bytes < MIN_ENTRY_BYTES or entry_bytes > left:
            break
        if at[MAGIC_AT] >= 2:
            if entry_bytes < BATCH_HEADER_BYTES:
                break
            record_count += load_i32(at + RECORD_COUNT_AT)
        else:
            record_count += 1
        last = at
        entry_count += 1
        at += entry_bytes
        left -= entry_bytes
    if last != NULL:
        next_offset = <int64_t>(<uint64_t>load_i64(last) + 1)
        if last[MAGIC_AT] >= 2:
            next_offset = <int64_t>(<uint64_t>next_offset + <uint64_t>load_i32(last + LAST_DELTA_AT))
            epoch = load_i32(last + EPOCH_AT)
    return entry_count, record_count, next_offset, epoch
