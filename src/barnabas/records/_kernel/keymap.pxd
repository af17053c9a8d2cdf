"""The table of keys, for the loops that look keys up."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from barnabas.records._kernel.cursor cimport Cursor

cdef enum:
    # Below this the work is shorter than handing the interpreter to another thread and back.
    UNLOCKED_BYTES = 65536
    # So many records are read, and the places of their keys fetched into the cache, before the first is looked up:
    # waiting for memory is most of the work, and this way it is waited for once.
    WINDOW = 16


cdef struct Slot:
    int64_t offset
    uint64_t ref  # tag and position in the store; 0 in a free slot


cdef struct Placed:
    const uint8_t* start
    const uint8_t* key
    uint64_t hashed
    int64_t offset
    int64_t timestamp_delta
    int32_t key_size    # -1 is null
    int32_t value_size  # -1 is null


cdef class KeyMap:
    cdef Slot* slots
    cdef uint64_t slot_count  # a power of two
    cdef uint8_t* store       # length (4 bytes) and key, back to back, from position 1 on
    cdef int64_t store_capacity_bytes
    cdef int64_t store_used_bytes
    cdef uint64_t seed_0
    cdef uint64_t seed_1
    cdef readonly int64_t limit_bytes
    cdef readonly int64_t key_count

    cdef bint add_each(
        self,
        Cursor* cursor,
        int32_t record_count,
        int64_t base_offset,
        int32_t last_offset_delta,
        int64_t from_offset,
        int64_t* refused_offset,
    ) noexcept nogil
    cdef int32_t look_ahead(
        self,
        Cursor* cursor,
        Placed* window,
        int32_t count,
        int64_t base_offset,
        int32_t* last_delta,
        int32_t last_offset_delta,
    ) noexcept nogil
    cdef Slot* find(self, const uint8_t* key, uint32_t size_bytes, uint64_t hashed) noexcept nogil
    cdef bint put(self, const uint8_t* key, uint32_t size_bytes, uint64_t hashed, int64_t offset) noexcept nogil
    cdef bint has_slot_for_one(self) noexcept nogil
    cdef bint double_slots(self) noexcept nogil
    cdef bint reserve(self, int64_t more_bytes) noexcept nogil
