# cython: boundscheck=False, wraparound=False
"""A Produce request with nothing but ordinary batches: read from its frame, appended, answered.

What is ordinary is for each log to say (`storage/_kernel/appending.pyx`). First all of a request is looked at; if a
single batch, or the request itself, asks for a decision, nothing was changed, and it is decoded and dealt with by the
rules (`broker/data/producing.py`). So no rule stands here.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from barnabas.broker._kernel.frames cimport (
    NULL_SIZE, FrameReader, Topic, put_byte, put_count, put_i16, put_i32, put_i64
)
from barnabas.records._kernel.bytes cimport store_i32
from barnabas.replication._kernel.following cimport RoleFields, TopicMeter
from barnabas.storage._kernel.appending cimport LogTail, OrdinaryBatch

from barnabas.replication.leader_state import LeaderState

cdef enum:
    FIRST_FLEXIBLE = 9
    FIRST_BY_ID = 13
    FIRST_WITH_START_OFFSET = 5
    FIRST_WITH_RECORD_ERRORS = 8
    ALL = -1
    # So much is done in one turn of the loop.
    MOST_PARTITIONS = 1000
    # What an answer says of a partition at most, of a topic beside its name, and at its ends.
    PARTITION_ANSWER_BYTES = 40
    TOPIC_ANSWER_BYTES = 24
    ENDS_ANSWER_BYTES = 32

cdef long claims = 0


cdef struct Entry:
    int32_t index
    int64_t base_offset
    OrdinaryBatch batch


@cython.final
cdef class OrdinaryProduce(FrameReader):
    """One request. `answer` has its whole answer once all is appended, `leaders` who took each batch."""

    cdef memoryview view
    cdef Topic* topics
    cdef Entry* entries
    cdef int topic_count
    cdef int count
    cdef int appended_count
    cdef readonly list leaders
    cdef readonly int16_t acks
    cdef readonly int32_t timeout_ms
    cdef readonly object failure

    def __cinit__(self):
        self.topics = NULL
        self.entries = NULL

    def __dealloc__(self):
        PyMem_Free(self.topics)
        PyMem_Free(self.entries)

    # What was appended

    @property
    def offsets(self) -> list:
        """Of each batch that was appended, in the order of the request: its first offset, and the one after its last."""
        return [
            (self.entries[i].base_offset, self.entries[i].base_offset + self.entries[i].batch.last_offset_delta + 1)
            for i in range(self.appended_count)
        ]

    def uncommitted(self) -> list:
        """Of each batch whose leader has followers to wait for: the leader, and the offset after the batch's last."""
        cdef int i
        waited_for = []
        for i in range(self.appended_count):
            leader = self.leaders[i]
            if not leader.is_alone:
                waited_for.append((leader, self.entries[i].base_offset + self.entries[i].batch.last_offset_delta + 1))
        return waited_for

    # Reading the request

    cdef bint read(self, dict index, may_write, int64_t now_ms) except -1:
        """Whether the request, and each batch in it, is ordinary, by all that is cheap to see."""
        cdef int64_t topic_count
        self.skip_header()
        if self.read_size(True) != NULL_SIZE:
            return False  # a transaction, or no size
        self.acks = self.read_i16()
        self.timeout_ms = self.read_i32()
        topic_count = self.read_size(False)
        if not self.is_readable or not -1 <= self.acks <= 1 or not 0 < topic_count <= MOST_PARTITIONS:
            return False
        self.topics = <Topic*>PyMem_Realloc(NULL, topic_count * sizeof(Topic))
        if self.topics == NULL:
            raise MemoryError
        self.topic_count = <int>topic_count
        for number in range(self.topic_count):
            if not self.read_partitions(&self.topics[number], index, may_write, now_ms):
                return False
        self.skip_no_tags()
        return self.is_readable and self.count > 0

    cdef bint read_partitions(self, Topic* topic, dict index, may_write, int64_t now_ms) except -1:
        cdef int64_t partition_count
        key = self.read_topic(topic)
        partition_count = self.read_size(False)
        if not self.is_readable or not 0 < partition_count <= MOST_PARTITIONS - self.count:
            return False
        if may_write is not None and not may_write(key):
            return False
        topic.partition_count = <int32_t>partition_count
        self.entries = <Entry*>PyMem_Realloc(self.entries, (self.count + partition_count) * sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError
        for _ in range(partition_count):
            if not self.read_partition(key, index, now_ms):
                return False
        self.skip_no_tags()
        return self.is_readable

    cdef bint read_partition(self, key, dict index, int64_t now_ms) except -1:
        cdef Entry* entry = &self.entries[self.count]
        cdef int64_t size_bytes
        cdef Py_ssize_t start
        entry.index = self.read_i32()
        size_bytes = self.read_size(False)
        start = self.at
        self.skip(size_bytes)
        self.skip_no_tags()
        if not self.is_readable:
            return False
        partition = index.get((key, entry.index))
        if partition is None:
            return False
        leader = partition.role
        if type(leader) is not LeaderState or not leader.takes_ordinary(self.acks == ALL):
            return False
        self.leaders.append(leader)
        self.count += 1
        return (<LogTail?>leader.log).takes(
            self.view, start, size_bytes, leader.leader_epoch, now_ms, claims, &entry.batch
        )

    cdef bint admits_records(self, int64_t now_ms) except -1:
        cdef int i
        for i in range(self.count):
            if not (<LogTail>self.leaders[i].log).admits_records(self.view, &self.entries[i].batch, now_ms):
                return False
        return True

    # Appending

    cdef int append(self) except -1:
        """As far as the disk takes it. What is left then is for the rules, and what the failure means too."""
        cdef Entry* entry
        cdef TopicMeter meter
        cdef int i
        try:
            for leader in self.leaders:
                entry = &self.entries[self.appended_count]
                entry.base_offset = (<LogTail>leader.log).append_ordinary(
                    self.view, &entry.batch, leader.leader_epoch
                )
                self.appended_count += 1
        except OSError as failure:
            self.failure = failure
        # Whoever waits for them is told when all are in: what happens then must not come between check and append.
        for i in range(self.appended_count):
            leader = self.leaders[i]
            meter = (<RoleFields>leader).meter
            meter.produce_requests += 1
            meter.bytes_in += self.entries[i].batch.size_bytes
            meter.messages_in += self.entries[i].batch.last_offset_delta + 1
            if leader.is_alone and not leader.delayed:
                # What `appended` comes to then.
                leader.appended_bytes = leader.appended_bytes + self.entries[i].batch.size_bytes
                (<LogTail>leader.log).high_watermark = (<LogTail>leader.log).log_end_offset
            else:
                leader.appended(self.entries[i].batch.size_bytes)
        return 0

    # The answer

    cpdef bytes answer(self):
        """The whole answer, with its size in front."""
        cdef Py_ssize_t most_bytes = ENDS_ANSWER_BYTES + self.count * PARTITION_ANSWER_BYTES
        cdef bint is_flexible = self.is_flexible
        cdef uint8_t* at
        cdef uint8_t* start
        cdef int number, i, entry = 0
        cdef bytes made
        for number in range(self.topic_count):
            most_bytes += TOPIC_ANSWER_BYTES + self.topics[number].name_bytes
        made = PyBytes_FromStringAndSize(NULL, most_bytes)
        start = <uint8_t*>PyBytes_AS_STRING(made)
        memcpy(start + 4, PyByteArray_AS_STRING(self.frame) + 4, 4)  # the correlation id
        at = start + 8
        if is_flexible:
            at = put_byte(at, 0)
        at = put_count(at, self.topic_count, is_flexible)
        for number in range(self.topic_count):
            at = self.put_topic(at, &self.topics[number])
            for i in range(self.topics[number].partition_count):
                at = self.put_partition(at, &self.entries[entry], (<LogTail>self.leaders[entry].log).log_start_offset)
                entry += 1
            if is_flexible:
                at = put_byte(at, 0)
        at = put_i32(at, 0)  # nobody is slowed down
        if is_flexible:
            at = put_byte(at, 0)
        store_i32(start, <int32_t>(at - start - 4))
        return made[: at - start]

    cdef uint8_t* put_partition(self, uint8_t* at, const Entry* entry, int64_t log_start_offset) noexcept:
        at = put_i32(at, entry.index)
        at = put_i16(at, 0)  # no error
        at = put_i64(at, entry.base_offset)
        at = put_i64(at, -1)  # records keep their own timestamps
        if self.version >= FIRST_WITH_START_OFFSET:
            at = put_i64(at, log_start_offset)
        if self.is_flexible:
            at = put_byte(put_byte(put_byte(at, 1), 0), 0)  # no wrong records, no message, no tags
        elif self.version >= FIRST_WITH_RECORD_ERRORS:
            at = put_i16(put_i32(at, 0), NULL_SIZE)
        return at


def append_ordinary(bytearray frame, int version, dict index, may_write, int64_t now_ms):
    """Append all batches of a Produce request if each is ordinary; None, and nothing was changed, if not.

    `index` has the partitions by topic (its name, or from v13 on its id) and number; `may_write` says whether the
    client may write to a topic, and is None where everybody may. If a write fails, what came before it is appended, and the rest is not.
    """
    global claims
    cdef OrdinaryProduce request = OrdinaryProduce.__new__(OrdinaryProduce)
    claims += 1
    request.open(frame, version, FIRST_FLEXIBLE, FIRST_BY_ID)
    request.view = memoryview(frame)
    request.leaders = []
    if not request.read(index, may_write, now_ms) or not request.admits_records(now_ms):
        return None
    request.append()
    return request
