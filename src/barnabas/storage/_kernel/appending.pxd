"""What changes with every batch that is appended, for those who append many at once."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t


cdef struct OrdinaryBatch:
    Py_ssize_t start  # in the frame that it came in
    Py_ssize_t size_bytes
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t last_offset_delta
    int64_t max_timestamp_ms


cdef class AppendRules:
    cdef readonly int64_t max_batch_bytes
    cdef readonly bint keeps_form
    cdef readonly bint needs_keys
    cdef readonly int64_t timestamp_before_max_ms
    cdef readonly int64_t timestamp_after_max_ms
    cdef readonly int64_t segment_limit_bytes
    cdef readonly int64_t segment_ms
    cdef readonly int64_t flush_messages

    cpdef bint admits(
        self, int64_t size_bytes, int32_t first_null_key, int64_t min_timestamp_ms, int64_t max_timestamp_ms, int64_t now_ms
    ) noexcept


cdef class DescriptorFile:
    cdef public int descriptor
    cdef public bint used


cdef class ProducerStateEntry:
    cdef public int16_t epoch
    cdef public int32_t coordinator_epoch
    cdef public int64_t timestamp_ms
    cdef public int64_t transaction_offset
    cdef public int32_t next_sequence
    cdef public list batches

    cpdef remember(
        self,
        int32_t first_sequence,
        int32_t last_sequence,
        int64_t first_offset,
        int64_t last_offset,
        int64_t timestamp_ms,
    )


cdef class ProducerTable:
    cdef readonly dict _producers
    cdef readonly dict _unreplicated


cdef class LogTail


cdef class SegmentTail:
    cdef public object file
    cdef public object offset_index
    cdef public object time_index
    cdef readonly dict recent
    cdef public int64_t base_offset
    cdef public int64_t size_bytes
    cdef public bint is_index_full
    cdef public int64_t _bytes_since_entry
    cdef public int64_t _index_interval_bytes
    cdef public tuple _max_timestamp
    cdef public tuple _indexed_timestamp
    cdef public object _first_timestamp_ms

    cpdef note_batch(self, int64_t position, int64_t size_bytes, int64_t last_offset, int64_t max_timestamp_ms)
    cpdef remember(self, int64_t first_offset, int64_t position, int64_t size_bytes, int64_t last_offset)
    cdef bint has_room(self, AppendRules rules, const OrdinaryBatch* batch, LogTail log, int64_t now_ms) except -1
    cdef int write(self, memoryview frame, const OrdinaryBatch* batch) except -1


cdef class LogTail:
    cdef public object settings
    cdef public ProducerTable producers
    cdef public object epochs
    cdef public object trouble
    cdef public list _segments
    cdef public int64_t log_start_offset
    cdef public int64_t log_end_offset
    cdef public int64_t high_watermark
    cdef public int64_t recovery_point
    cdef public int64_t _active_since_ms
    cdef public int64_t _jitter_ms
    cdef long claimed_by

    cdef bint takes(
        self, memoryview frame, Py_ssize_t start, Py_ssize_t size_bytes, int32_t leader_epoch, int64_t now_ms,
        long claim, OrdinaryBatch* batch
    ) except -1
    cdef bint has_place_for(
        self, const OrdinaryBatch* batch, AppendRules rules, int32_t leader_epoch, int64_t now_ms
    ) except -1
    cdef bint admits_records(self, memoryview frame, const OrdinaryBatch* batch, int64_t now_ms) except -1
    cdef int64_t append_ordinary(self, memoryview frame, const OrdinaryBatch* batch, int32_t leader_epoch) except -1
