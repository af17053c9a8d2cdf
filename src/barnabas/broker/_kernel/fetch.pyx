# cython: boundscheck=False, wraparound=False
"""A Fetch of a reader that keeps up: read from its frame, and answered at once with what was appended last.

It changes nothing that anybody else sees. Whatever asks for a decision (a session, a follower, an error, an open transaction, waiting, records
that are not among the last few or not in memory) is left to the rules, in `broker/data/fetching.py`.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from posix.types cimport off_t

from barnabas.broker._kernel.frames cimport (
    FrameReader, Topic, put_byte, put_count, put_i16, put_i32, put_i64
)
from barnabas.records._kernel.bytes cimport store_i32
from barnabas.replication._kernel.following cimport RoleFields, TopicMeter
from barnabas.storage._kernel.appending cimport DescriptorFile, LogTail, SegmentTail

from barnabas.replication.leader_state import LeaderState

cdef extern from *:
    """
    #include <sys/uio.h>
    /* What of it is in memory; less, or -1, if it cannot be told without waiting for a disk. */
    static Py_ssize_t read_cached(int descriptor, void* data, size_t size, off_t position) {
    #if defined(__linux__) && defined(RWF_NOWAIT)
        struct iovec part = {data, size};
        return preadv2(descriptor, &part, 1, position, RWF_NOWAIT);
    #else
        (void)descriptor, (void)data, (void)size, (void)position;
        return -1;
    #endif
    }
    """
    Py_ssize_t read_cached(int descriptor, void* data, size_t size, off_t position)

cdef enum:
    FIRST_WITH_START_OFFSET = 5
    FIRST_WITH_SESSIONS = 7
    FIRST_WITH_EPOCH = 9
    FIRST_WITH_RACK = 11
    FIRST_FLEXIBLE = 12
    FIRST_BY_ID = 13
    FIRST_WITHOUT_REPLICA = 15
    NO_SESSION_EPOCH = -1
    READ_COMMITTED = 1
    # So much is done in one turn of the loop.
    MOST_PARTITIONS = 200
    MOST_BYTES = 131072
    # What an answer says of a partition at most beside its records, of a topic beside its name, and at its ends.
    PARTITION_ANSWER_BYTES = 64
    TOPIC_ANSWER_BYTES = 24
    ENDS_ANSWER_BYTES = 40

# Below zero: those above are of requests that append.
cdef long claims = 0


cdef struct Found:
    int32_t index
    int64_t high_watermark
    int64_t log_start_offset
    int64_t position
    int64_t size_bytes


@cython.final
cdef class OrdinaryFetch(FrameReader):
    """One request, and what was found for it. `files` has the file of each partition with records, or None."""

    cdef Topic* topics
    cdef Found* found
    cdef int topic_count
    cdef int count
    cdef list files
    cdef list leaders
    cdef bint sees_committed_alone
    cdef int64_t min_bytes
    cdef int64_t left_bytes
    cdef int64_t size_bytes

    def __cinit__(self):
        self.topics = NULL
        self.found = NULL

    def __dealloc__(self):
        PyMem_Free(self.topics)
        PyMem_Free(self.found)

    # The request

    cdef bint read(self, dict index, may_read, int64_t most_bytes) except -1:
        """Whether it can be answered at once, with records."""
        cdef int64_t topic_count
        cdef int64_t isolation
        self.skip_header()
        if self.version < FIRST_WITHOUT_REPLICA and self.read_i32() != -1:
            return False
        self.read_i32()  # how long it would wait
        self.min_bytes = self.read_i32()
        self.left_bytes = min(<int64_t>self.read_i32(), most_bytes)
        isolation = self.read_byte()
        self.sees_committed_alone = isolation == READ_COMMITTED
        if isolation > READ_COMMITTED:
            return False
        if self.version >= FIRST_WITH_SESSIONS and (self.read_i32() or self.read_i32() != NO_SESSION_EPOCH):
            return False
        topic_count = self.read_size(False)
        if not self.is_readable or not 0 < topic_count <= MOST_PARTITIONS:
            return False
        self.topics = <Topic*>PyMem_Realloc(NULL, topic_count * sizeof(Topic))
        if self.topics == NULL:
            raise MemoryError
        self.topic_count = <int>topic_count
        for number in range(self.topic_count):
            if not self.read_partitions(&self.topics[number], index, may_read):
                return False
        if self.version >= FIRST_WITH_SESSIONS and self.read_size(False):
            return False  # topics to forget, without a session
        if self.version >= FIRST_WITH_RACK:
            self.skip(self.read_size(True))
        self.skip_no_tags()
        return self.is_readable and self.size_bytes > 0 and self.size_bytes >= self.min_bytes

    cdef bint read_partitions(self, Topic* topic, dict index, may_read) except -1:
        cdef int64_t partition_count
        key = self.read_topic(topic)
        partition_count = self.read_size(False)
        if not self.is_readable or not 0 < partition_count <= MOST_PARTITIONS - self.count or not may_read(key):
            return False
        topic.partition_count = <int32_t>partition_count
        self.found = <Found*>PyMem_Realloc(self.found, (self.count + partition_count) * sizeof(Found))
        if self.found == NULL:
            raise MemoryError
        for _ in range(partition_count):
            if not self.read_partition(key, index):
                return False
        self.skip_no_tags()
        return self.is_readable

    cdef bint read_partition(self, key, dict index) except -1:
        cdef Found* found = &self.found[self.count]
        cdef int32_t leader_epoch = -1, last_fetched_epoch = -1
        cdef int64_t offset, max_bytes
        cdef RoleFields leader
        found.index = self.read_i32()
        if self.version >= FIRST_WITH_EPOCH:
            leader_epoch = self.read_i32()
        offset = self.read_i64()
        if self.version >= FIRST_FLEXIBLE:
            last_fetched_epoch = self.read_i32()
        if self.version >= FIRST_WITH_START_OFFSET:
            self.read_i64()  # a follower's log start
        max_bytes = self.read_i32()
        self.skip_no_tags()
        if not self.is_readable or last_fetched_epoch >= 0:
            return False
        partition = index.get((key, found.index))
        if partition is None:
            return False
        role = partition.role
        if type(role) is not LeaderState:
            return False
        leader = <RoleFields>role
        if leader_epoch >= 0 and leader_epoch != leader.leader_epoch:
            return False
        self.count += 1
        self.leaders.append(role)
        return self.look(found, <LogTail?>leader.log, offset, min(max_bytes, self.left_bytes))

    cdef bint look(self, Found* found, LogTail log, int64_t offset, int64_t max_bytes) except -1:
        """Whether the reader has all there is, or what is missing is among what was appended last."""
        cdef SegmentTail segment
        cdef tuple place
        cdef int64_t end_position
        if log.claimed_by == claims or log.producers.first_unstable_offset is not None:
            return False  # named twice, or some of it is undecided
        log.claimed_by = claims
        found.high_watermark = log.high_watermark
        found.log_start_offset = log.log_start_offset
        found.size_bytes = 0
        if offset == log.high_watermark:
            self.files.append(None)
            return True
        segment = <SegmentTail>log._segments[len(log._segments) - 1]
        place = segment.recent.get(offset)
        if place is None or offset < log.log_start_offset or offset > log.high_watermark:
            return False
        if self.sees_committed_alone and not segment.aborted.is_known_empty:
            return False
        if log.high_watermark == log.log_end_offset:
            end_position = segment.size_bytes
        else:
            committed = segment.recent.get(log.high_watermark)
            if committed is None:
                return False
            end_position = (<tuple>committed)[0]
        found.position = place[0]
        if max_bytes < <int64_t>place[1]:
            return False
        found.size_bytes = min(max_bytes, end_position - found.position)
        self.left_bytes -= found.size_bytes
        self.size_bytes += found.size_bytes
        self.files.append(segment.file)
        return self.size_bytes <= MOST_BYTES

    # The answer

    cdef bytes answer(self):
        """The whole answer, with its size in front; None if the records are not in memory."""
        cdef Py_ssize_t most_bytes = ENDS_ANSWER_BYTES + self.count * PARTITION_ANSWER_BYTES + self.size_bytes
        cdef uint8_t* at
        cdef uint8_t* start
        cdef int number, i, place = 0
        cdef bytes made
        for number in range(self.topic_count):
            most_bytes += TOPIC_ANSWER_BYTES + self.topics[number].name_bytes
        made = PyBytes_FromStringAndSize(NULL, most_bytes)
        start = <uint8_t*>PyBytes_AS_STRING(made)
        memcpy(start + 4, PyByteArray_AS_STRING(self.frame) + 4, 4)  # the correlation id
        at = start + 8
        if self.is_flexible:
            at = put_byte(at, 0)
        at = put_i32(at, 0)  # nobody is slowed down
        if self.version >= FIRST_WITH_SESSIONS:
            at = put_i32(put_i16(at, 0), 0)  # no error, no session
        at = put_count(at, self.topic_count, self.is_flexible)
        for number in range(self.topic_count):
            at = self.put_topic(at, &self.topics[number])
            for i in range(self.topics[number].partition_count):
                at = self.put_partition(at, &self.found[place])
                if not has_read(self.files[place], at, &self.found[place]):
                    return None
                at += self.found[place].size_bytes
                if self.is_flexible:
                    at = put_byte(at, 0)
                place += 1
            if self.is_flexible:
                at = put_byte(at, 0)
        if self.is_flexible:
            at = put_byte(at, 0)
        store_i32(start, <int32_t>(at - start - 4))
        return made[: at - start]

    cdef int count_read(self) except -1:
        cdef TopicMeter meter
        cdef int place
        for place in range(self.count):
            meter = (<RoleFields>self.leaders[place]).meter
            meter.fetch_requests += 1
            meter.bytes_out += self.found[place].size_bytes
        return 0

    cdef uint8_t* put_partition(self, uint8_t* at, const Found* found) noexcept:
        """All but the records themselves."""
        at = put_i32(at, found.index)
        at = put_i16(at, 0)  # no error
        at = put_i64(at, found.high_watermark)
        at = put_i64(at, found.high_watermark)  # all transactions are decided
        if self.version >= FIRST_WITH_START_OFFSET:
            at = put_i64(at, found.log_start_offset)
        at = put_count(at, 0 if self.sees_committed_alone else -1, self.is_flexible)  # no aborted transactions
        if self.version >= FIRST_WITH_RACK:
            at = put_i32(at, -1)  # no better replica
        return put_count(at, <int32_t>found.size_bytes, self.is_flexible)


cdef bint has_read(file, uint8_t* at, const Found* found) except -1:
    cdef DescriptorFile real
    cdef bytes content
    if not found.size_bytes:
        return True
    if isinstance(file, DescriptorFile) and (<DescriptorFile>file).descriptor >= 0:
        # Nobody can take the descriptor away meanwhile: that needs the lock which is held here.
        real = <DescriptorFile>file
        real.used = True
        if read_cached(real.descriptor, at, found.size_bytes, found.position) == found.size_bytes:
            return True
    data = file.read_now(found.position, found.size_bytes)
    if data is None or len(data) != found.size_bytes:
        return False
    content = bytes(data)
    memcpy(at, PyBytes_AS_STRING(content), found.size_bytes)
    return True


def answer_ordinary_fetch(bytearray frame, int version, dict index, may_read, int64_t max_bytes):
    global claims
    cdef OrdinaryFetch request = OrdinaryFetch.__new__(OrdinaryFetch)
    claims -= 1
    request.open(frame, version, FIRST_FLEXIBLE, FIRST_BY_ID)
    request.files = []
    request.leaders = []
    if not request.read(index, may_read, max_bytes):
        return None
    try:
        answer = request.answer()
    except OSError:
        return None  # who reads again says what that means
    if answer is not None:
        request.count_read()
    return answer
