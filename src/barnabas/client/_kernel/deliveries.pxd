"""News of records that were sent, for those who make futures by the million."""

from libc.stdint cimport int32_t, int64_t


cdef class RecordMetadata:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size

    cdef tuple parts(self)


cdef class Home:
    cdef unsigned long thread_id  # 0 until it is settled, and after it was left
    cdef int born
    cdef object on_interrupt

    cdef bint is_usable(self) noexcept
    cdef int check_may_wait(self) except -1
    cdef int check_process(self) except -1


cdef class Delivery:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly Home home
    cdef bint is_settled         # there is an outcome, perhaps not told to all yet
    cdef readonly bint is_done   # on_delivery was called for all: waiting is over
    cdef int64_t base_offset
    cdef int64_t append_time_ms
    cdef object error
    cdef dict errors
    cdef list watchers  # futures with a callback, or pairs of future and callback; None if there are none
    cdef list enders    # what to call when all is told
    cdef list parts     # pairs of delivery and first index, once it is split
    cdef int unfinished_parts

    cdef int forget(self, object callback) except -1
    cdef int watch(self, SendFuture future, object callback) except -1
    cdef int unwatch(self, SendFuture future, object callback) except -1
    cdef int call(self, object callback, tuple arguments) except -1
    cdef Delivery part_of(self, int32_t index)
    cdef int32_t index_in_part(self, int32_t index) except? -1
    cdef object error_at(self, int32_t index)
    cdef int tell(self) except -1


cdef class SendFuture:
    cdef Delivery delivery
    cdef object on_delivery
    cdef int64_t timestamp_ms
    cdef int32_t index
    cdef int32_t key_size
    cdef int32_t value_size

    cdef RecordMetadata metadata(self)
    cdef object error(self)
    cdef RecordMetadata outcome(self)


cdef int run_callback(object callback, tuple arguments) except -1
cdef int wait_for(Delivery delivery, object timeout) except -1
cdef object wake_up_of(Delivery delivery)
