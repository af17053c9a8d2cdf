# cython: boundscheck=False, wraparound=False
"""The state that every appended batch changes, and the way of an ordinary batch into it.

The classes here are bases: who has the rules (`Segment`, `PartitionLog` …) inherits the fields, so that there is one
copy of each, whoever changes it. `LogTail.takes` says whether a batch is ordinary, and changes nothing;
`append_ordinary` appends one that is. For everything else there are the rules, in Python.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from posix.types cimport off_t

from barnabas.records._kernel.bytes cimport (
    data_of, load_i16, load_i32, load_i64, load_u32, size_of, store_i32, store_i64
)
from barnabas.records._kernel.walk cimport WalkedRecords, crc_of, has_usual_records, is_usual_header

cdef extern from "unistd.h" nogil:
    Py_ssize_t pwrite(int descriptor, const void* data, size_t size, off_t position)

cdef enum:
    TRANSACTIONAL_BIT = 0x10
    # The codec and the type of the timestamps.
    FORM_BITS = 0x0F
    BATCH_HEADER_BYTES = 61
    MAX_SEQUENCE = 0x7FFFFFFF
    MAX_RELATIVE_OFFSET = 0x7FFFFFFF
    UNCERTAIN_SEQUENCE = -2
    WINDOW_BATCHES = 5
    RECENT_BATCHES = 16
    # Longer writes let other threads run meanwhile.
    SHORT_WRITE_BYTES = 65536


cdef class AppendRules:
    """What a topic asks of batches, put together once: it is looked at for every batch.

    `keeps_form`: whether batches stay as they were sent, with their producer's codec and timestamps.
    """

    def __init__(
        self,
        *,
        max_batch_bytes,
        keeps_form,
        needs_keys,
        timestamp_before_max_ms,
        timestamp_after_max_ms,
        segment_limit_bytes,
        segment_ms,
        flush_messages,
    ):
        self.max_batch_bytes = max_batch_bytes
        self.keeps_form = keeps_form
        self.needs_keys = needs_keys
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.segment_limit_bytes = segment_limit_bytes
        self.segment_ms = segment_ms
        self.flush_messages = flush_messages

    cpdef bint admits(
        self, int64_t size_bytes, int32_t first_null_key, int64_t min_timestamp_ms, int64_t max_timestamp_ms, int64_t now_ms
    ) noexcept:
        """Whether a batch without peculiarities may stay as it is. `now_ms` is not negative."""
        return (
            self.keeps_form
            and size_bytes <= self.max_batch_bytes
            and (not self.needs_keys or first_null_key < 0)
            and now_ms - self.timestamp_before_max_ms <= min_timestamp_ms
            and (now_ms > INT64_MAX - self.timestamp_after_max_ms or max_timestamp_ms <= now_ms + self.timestamp_after_max_ms)
        )


cdef class DescriptorFile:
    """A file that has a descriptor at times; else it is -1. Both change under the interpreter's lock alone.

    `used`: since the last look for a descriptor to close.
    """

    def __cinit__(self):
        self.descriptor = -1


cdef class ProducerStateEntry:
    """What a partition knows of one producer."""

    def __init__(self, int epoch):
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.timestamp_ms = -1
        #: The first offset of the open transaction, or -1.
        self.transaction_offset = -1
        #: What a batch may have that is certainly in order and no duplicate; others are looked at closely.
        self.next_sequence = 0
        #: (first sequence, last sequence, first offset, last offset, timestamp) of each, the newest last
        self.batches = []

    def start_epoch(self, int epoch):
        self.epoch = epoch
        self.next_sequence = 0
        self.batches.clear()

    cpdef remember(
        self,
        int32_t first_sequence,
        int32_t last_sequence,
        int64_t first_offset,
        int64_t last_offset,
        int64_t timestamp_ms,
    ):
        """Take note of a batch that is in the log, in the order of the log."""
        cdef list batches = self.batches
        if batches and first_sequence != self.next_sequence:
            self.next_sequence = UNCERTAIN_SEQUENCE  # as after offset commits: the next may be in the window already
        else:
            self.next_sequence = <int32_t>((<int64_t>last_sequence + 1) & MAX_SEQUENCE)
        if len(batches) == WINDOW_BATCHES:
            del batches[0]
        batches.append((first_sequence, last_sequence, first_offset, last_offset, timestamp_ms))
        self.timestamp_ms = timestamp_ms


cdef class ProducerTable:
    """Producers by their ids, and transactions whose markers are not replicated: first offset to marker's offset."""

    def __cinit__(self):
        self._producers = {}
        self._unreplicated = {}


cdef class SegmentTail:
    """Where a segment ends, and what its indexes do not say yet."""

    def __cinit__(self):
        #: Where the last few batches lie, by their first offsets: readers that keep up need not look for them.
        self.recent = {}

    cpdef note_batch(self, int64_t position, int64_t size_bytes, int64_t last_offset, int64_t max_timestamp_ms):
        """Keep the indexes and the highest timestamp up to date with a batch that lies at `position`."""
        cdef tuple highest
        if self._first_timestamp_ms is None and not position:
            self._first_timestamp_ms = max_timestamp_ms
        highest = self._max_timestamp
        if highest is None:
            highest = self.learn_max_timestamp(position)
        if max_timestamp_ms > <int64_t>highest[0]:
            highest = self._max_timestamp = (max_timestamp_ms, last_offset)
        if self._bytes_since_entry > self._index_interval_bytes:
            is_full = self.offset_index.append(last_offset, position)
            if highest is not self._indexed_timestamp:
                self._indexed_timestamp = highest
                is_full = self.time_index.append(highest[0], highest[1]) or is_full
            self.is_index_full = self.is_index_full or is_full
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    cpdef remember(self, int64_t first_offset, int64_t position, int64_t size_bytes, int64_t last_offset):
        """Note where a batch lies that was just written, and forget the oldest of those that were."""
        cdef dict recent = self.recent
        recent[first_offset] = (position, size_bytes, last_offset)
        if len(recent) > RECENT_BATCHES:
            del recent[next(iter(recent))]

    cdef bint has_room(self, AppendRules rules, const OrdinaryBatch* batch, LogTail log, int64_t now_ms) except -1:
        """Whether a batch goes into this segment, and all that its indexes need is in memory."""
        cdef int64_t age_ms, first_ms
        if self.size_bytes > rules.segment_limit_bytes - batch.size_bytes or self.is_index_full:
            return False
        if log.log_end_offset + batch.last_offset_delta - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        if self._max_timestamp is None:
            return False
        if self._bytes_since_entry > self._index_interval_bytes:
            if not (self.offset_index.is_loaded and self.time_index.is_loaded):
                return False
        if not self.size_bytes:
            return True
        if self._first_timestamp_ms is None:
            return False
        first_ms = self._first_timestamp_ms
        if first_ms >= 0 and batch.max_timestamp_ms >= 0:
            age_ms = batch.max_timestamp_ms - first_ms
        else:
            age_ms = now_ms - log._active_since_ms
        return age_ms <= rules.segment_ms - log._jitter_ms

    cdef int write(self, memoryview frame, const OrdinaryBatch* batch) except -1:
        cdef DescriptorFile file
        cdef size_t size_bytes = batch.size_bytes
        if size_bytes <= SHORT_WRITE_BYTES and isinstance(self.file, DescriptorFile):
            # Nobody can take the descriptor away meanwhile: that needs the lock which is held here.
            file = <DescriptorFile>self.file
            if file.descriptor >= 0:
                file.used = True
                if pwrite(file.descriptor, data_of(frame) + batch.start, size_bytes, self.size_bytes) == batch.size_bytes:
                    return 0
        self.file.write_at(self.size_bytes, frame[batch.start : batch.start + batch.size_bytes])
        return 0


cdef void read_batch(const uint8_t* at, Py_ssize_t start, Py_ssize_t size_bytes, OrdinaryBatch* batch) noexcept nogil:
    batch.start = start
    batch.size_bytes = size_bytes
    batch.producer_id = load_i64(at + 43)
    batch.producer_epoch = load_i16(at + 51)
    batch.base_sequence = load_i32(at + 53)
    batch.last_offset_delta = load_i32(at + 23)
    batch.max_timestamp_ms = load_i64(at + 35)


cdef bint is_usual_from_leader(
    const uint8_t* at, Py_ssize_t size_bytes, int64_t offset, int32_t leader_epoch
) noexcept nogil:
    """Whether it is one batch, with the next offset and of this epoch, and not of a transaction; compressed or not."""
    return (
        size_bytes >= BATCH_HEADER_BYTES
        and at[16] == 2
        and <int64_t>load_i32(at + 8) + 12 == size_bytes
        and load_i64(at) == offset
        and load_i32(at + 12) == leader_epoch
        and not load_i16(at + 21) & ~FORM_BITS
        and load_i32(at + 23) >= 0
        and (load_i64(at + 43) < 0 or load_i32(at + 53) >= 0)
    )


cdef class LogTail:
    """Where a log ends, and what is known there."""

    cdef bint takes(
        self, memoryview frame, Py_ssize_t start, Py_ssize_t size_bytes, int32_t leader_epoch, int64_t now_ms,
        long claim, OrdinaryBatch* batch
    ) except -1:
        """Whether a producer's batch is ordinary: nothing about it, nor about the log, asks for a decision.

        All that is cheap is looked at; `has_usual_records` is left to be asked. `claim` is a number of the request: a
        second batch in it for the same log is not ordinary.
        """
        cdef const uint8_t* at = data_of(frame) + start
        cdef AppendRules rules = self.settings.append_rules
        if self.claimed_by == claim or not is_usual_header(at, size_bytes) or load_i16(at + 21) & TRANSACTIONAL_BIT:
            return False
        self.claimed_by = claim
        read_batch(at, start, size_bytes, batch)
        return (
            rules.keeps_form
            and size_bytes <= rules.max_batch_bytes
            and self.has_place_for(batch, rules, leader_epoch, now_ms)
        )

    cdef bint has_place_for(
        self, const OrdinaryBatch* batch, AppendRules rules, int32_t leader_epoch, int64_t now_ms
    ) except -1:
        """Whether a batch follows upon what its producer sent, and nothing about the log asks for a decision."""
        cdef ProducerStateEntry producer
        if batch.producer_id >= 0:
            producer = self.producers._producers.get(batch.producer_id)
            if (
                producer is None
                or producer.epoch != batch.producer_epoch
                or producer.next_sequence != batch.base_sequence
                or producer.transaction_offset >= 0
            ):
                return False
        return (
            self.log_end_offset + batch.last_offset_delta + 1 - self.recovery_point < rules.flush_messages
            and not self.producers._unreplicated
            and (self.trouble is None or not self.trouble.is_there)
            and self.epochs.latest_epoch == leader_epoch
            and (<SegmentTail>self._segments[len(self._segments) - 1]).has_room(rules, batch, self, now_ms)
        )

    def append_from_leader(self, memoryview records not None, int32_t leader_epoch, int64_t now_ms):
        cdef OrdinaryBatch batch
        cdef Py_ssize_t size_bytes = size_of(records)
        if records.readonly or not is_usual_from_leader(data_of(records), size_bytes, self.log_end_offset, leader_epoch):
            return False
        read_batch(data_of(records), 0, size_bytes, &batch)
        if not self.has_place_for(&batch, self.settings.append_rules, leader_epoch, now_ms):
            return False
        if crc_of(records, 0, size_bytes) != load_u32(data_of(records) + 17):
            return False
        self.append_ordinary(records, &batch, leader_epoch)
        return True

    cdef bint admits_records(self, memoryview frame, const OrdinaryBatch* batch, int64_t now_ms) except -1:
        """The rest of what makes a batch ordinary, which is to look at all of it."""
        cdef WalkedRecords walked
        cdef unsigned int crc = crc_of(frame, batch.start, batch.size_bytes)
        if not has_usual_records(data_of(frame) + batch.start, batch.size_bytes, crc, &walked):
            return False
        return (<AppendRules>self.settings.append_rules).admits(
            batch.size_bytes, walked.first_null_key, walked.min_timestamp_ms, walked.max_timestamp_ms, now_ms
        )

    cdef int64_t append_ordinary(self, memoryview frame, const OrdinaryBatch* batch, int32_t leader_epoch) except -1:
        """Append a batch that is taken; its first offset. If it cannot be written, it is as it was, and so is the log."""
        cdef uint8_t* at = <uint8_t*>data_of(frame) + batch.start
        cdef int32_t sent_epoch = load_i32(at + 12)
        cdef int64_t sent_offset = load_i64(at)
        cdef int64_t first_offset = self.log_end_offset, last_offset = first_offset + batch.last_offset_delta
        cdef SegmentTail segment = <SegmentTail>self._segments[len(self._segments) - 1]
        cdef int64_t position = segment.size_bytes
        store_i64(at, first_offset)
        store_i32(at + 12, leader_epoch)
        try:
            segment.write(frame, batch)
        except OSError:
            store_i64(at, sent_offset)
            store_i32(at + 12, sent_epoch)
            segment.file.truncate(position)  # as `Segment.append` does, and for the same reason
            raise
        segment.size_bytes = position + batch.size_bytes
        segment.note_batch(position, batch.size_bytes, last_offset, batch.max_timestamp_ms)
        segment.remember(first_offset, position, batch.size_bytes, last_offset)
        if batch.producer_id >= 0:
            (<ProducerStateEntry>self.producers._producers[batch.producer_id]).remember(
                batch.base_sequence,
                <int32_t>((<int64_t>batch.base_sequence + batch.last_offset_delta) & MAX_SEQUENCE),
                first_offset,
                last_offset,
                batch.max_timestamp_ms,
            )
        self.log_end_offset = last_offset + 1
        return first_offset
