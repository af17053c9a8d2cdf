# cython: boundscheck=False, wraparound=False, cdivision=True
"""The newest offset of every key, in a table of bounded size.

Keys are held whole, not as digests: two keys that were taken for one would lose data. Nothing here is safe for two
threads at once on one `KeyMap`.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from barnabas.records._kernel.bytes cimport data_of, plain_view, size_of
from barnabas.records._kernel.cursor cimport (
    MIN_RECORD_BYTES, Cursor, RawRecord, cursor_over, end_record, fail, read_record, refuse, refuse_at, skip_headers,
)

from barnabas.base.errors import RemoteProtocolError


cdef extern from *:
    # SipHash-1-3, as Python hashes bytes with: keys come from strangers, who must not be able to choose collisions.
    """
    #define SIP_ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define SIP_ROUND \
        v0 += v1; v1 = SIP_ROTATE(v1, 13); v1 ^= v0; v0 = SIP_ROTATE(v0, 32); \
        v2 += v3; v3 = SIP_ROTATE(v3, 16); v3 ^= v2; \
        v0 += v3; v3 = SIP_ROTATE(v3, 21); v3 ^= v0; \
        v2 += v1; v1 = SIP_ROTATE(v1, 17); v1 ^= v2; v2 = SIP_ROTATE(v2, 32);

    static unsigned long long siphash13(
        unsigned long long k0, unsigned long long k1, const unsigned char *at, unsigned long long size
    ) {
        unsigned long long v0 = k0 ^ 0x736f6d6570736575ULL, v1 = k1 ^ 0x646f72616e646f6dULL;
        unsigned long long v2 = k0 ^ 0x6c7967656e657261ULL, v3 = k1 ^ 0x7465646279746573ULL;
        unsigned long long word, last = size << 56;
        const unsigned char *words_end = at + (size & ~7ULL);
        for (; at < words_end; at += 8) {
            memcpy(&word, at, 8);
            v3 ^= word; SIP_ROUND v0 ^= word;
        }
        word = 0;
        memcpy(&word, at, size & 7);
        last ^= word;
        v3 ^= last; SIP_ROUND v0 ^= last;
        v2 ^= 0xff; SIP_ROUND SIP_ROUND SIP_ROUND
        return v0 ^ v1 ^ v2 ^ v3;
    }
    """
    uint64_t siphash13(uint64_t k0, uint64_t k1, const uint8_t* at, uint64_t size_bytes) noexcept nogil


cdef enum:
    FIRST_SLOTS = 64
    FIRST_STORE_BYTES = 1024
    # Where a slot's key lies takes 40 bits; the 24 above hold a part of its hash, so that other keys are seldom read.
    TAG_SHIFT = 40

cdef extern from *:
    void __builtin_prefetch(const void* at) noexcept nogil

cdef uint64_t POSITION_MASK = (<uint64_t>1 << TAG_SHIFT) - 1


@cython.final
cdef class KeyMap:
    """The highest offset of every key, as far as `limit_bytes` of memory reach.

    While the table doubles, its old half is there too, beyond the limit. The first key always gets in, however large,
    so that whoever empties a log piece by piece gets on.
    """

    def __cinit__(self, int64_t limit_bytes):
        # The process's own secret; what the map answers does not depend on it.
        self.seed_0 = <uint64_t><Py_ssize_t>hash(b"the first half of a seed")
        self.seed_1 = <uint64_t><Py_ssize_t>hash(b"the second half of a seed")
        self.limit_bytes = limit_bytes
        self.store_used_bytes = 1
        self.slot_count = FIRST_SLOTS
        self.slots = <Slot*>PyMem_RawCalloc(FIRST_SLOTS, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_RawFree(self.slots)
        PyMem_RawFree(self.store)

    @property
    def size_bytes(self) -> int:
        """The memory that the map has taken."""
        return self.slot_count * sizeof(Slot) + self.store_capacity_bytes

    def __len__(self):
        return self.key_count

    def get(self, key):
        """The offset of a key, or None."""
        cdef memoryview view = plain_view(key)
        cdef uint64_t hashed = siphash13(self.seed_0, self.seed_1, data_of(view), size_of(view))
        cdef Slot* slot = self.find(data_of(view), <uint32_t>size_of(view), hashed)
        return slot.offset if slot.ref else None

    def add(self, payload, int32_t record_count, int64_t base_offset, int32_t last_offset_delta, int64_t from_offset):
        """Take the keys of the records from `from_offset` on. Null keys do not count.

        Returns None, or the offset of the first record whose key found no room; nothing from there on was taken.
        """
        cdef memoryview view = plain_view(payload)
        cdef Cursor cursor = cursor_over(data_of(view), size_of(view))
        cdef int64_t refused_offset = -1
        cdef bint good
        if record_count > size_of(view) // MIN_RECORD_BYTES:
            raise RemoteProtocolError(f"{record_count} records cannot fit in {size_of(view)} bytes")
        if size_of(view) < UNLOCKED_BYTES:
            good = self.add_each(&cursor, record_count, base_offset, last_offset_delta, from_offset, &refused_offset)
        else:
            with nogil:
                good = self.add_each(
                    &cursor, record_count, base_offset, last_offset_delta, from_offset, &refused_offset
                )
        if not good:
            fail(&cursor)
        return None if refused_offset < 0 else refused_offset

    cdef bint add_each(
        self,
        Cursor* cursor,
        int32_t record_count,
        int64_t base_offset,
        int32_t last_offset_delta,
        int64_t from_offset,
        int64_t* refused_offset,
    ) noexcept nogil:
        cdef const uint8_t* payload_end = cursor.end
        cdef Placed window[WINDOW]
        cdef int32_t i, count, read = 0, last_delta = -1
        while read < record_count:
            count = self.look_ahead(
                cursor, window, min(WINDOW, record_count - read), base_offset, &last_delta, last_offset_delta
            )
            if count < 0:
                return False
            read += count
            for i in range(count):
                if window[i].key_size < 0 or window[i].offset < from_offset:
                    continue
                if not self.put(window[i].key, <uint32_t>window[i].key_size, window[i].hashed, window[i].offset):
                    refused_offset[0] = window[i].offset
                    return True
        if cursor.at != payload_end:
            return refuse(cursor, b"bytes are left after the last record")
        return True

    cdef int32_t look_ahead(
        self,
        Cursor* cursor,
        Placed* window,
        int32_t count,
        int64_t base_offset,
        int32_t* last_delta,
        int32_t last_offset_delta,
    ) noexcept nogil:
        """Read the next records, whose offsets must rise and stay within their batch. -1 for a failure."""
        cdef const uint8_t* payload_end = cursor.end
        cdef uint64_t mask = self.slot_count - 1
        cdef RawRecord record
        cdef uint64_t ref
        cdef int32_t i
        for i in range(count):
            window[i].start = cursor.at
            if not read_record(cursor, &record):
                return -1
            if record.header_count and not skip_headers(cursor, record.header_count):
                return -1
            if not end_record(cursor, payload_end):
                return -1
            if record.offset_delta <= last_delta[0]:
                refuse_at(cursor, window[i].start, b"a record's offset is not above the one before it")
                return -1
            if record.offset_delta > last_offset_delta:
                refuse_at(cursor, window[i].start, b"a record's offset is above the last one of its batch")
                return -1
            last_delta[0] = record.offset_delta
            window[i].offset = base_offset + record.offset_delta
            window[i].timestamp_delta = record.timestamp_delta
            window[i].key = record.key
            window[i].key_size = record.key_size
            window[i].value_size = record.value_size
            if record.key_size >= 0:
                window[i].hashed = siphash13(self.seed_0, self.seed_1, record.key, record.key_size)
                __builtin_prefetch(&self.slots[window[i].hashed & mask])
        for i in range(count):
            if window[i].key_size >= 0:
                ref = self.slots[window[i].hashed & mask].ref
                if ref:
                    __builtin_prefetch(self.store + (ref & POSITION_MASK))
        return count

    cdef Slot* find(self, const uint8_t* key, uint32_t size_bytes, uint64_t hashed) noexcept nogil:
        """The slot that holds the key, or the free one where it belongs."""
        cdef uint64_t mask = self.slot_count - 1
        cdef uint64_t i = hashed & mask
        cdef uint64_t tag = hashed >> TAG_SHIFT
        cdef const uint8_t* stored
        cdef uint32_t stored_bytes = 0
        while self.slots[i].ref:
            if self.slots[i].ref >> TAG_SHIFT == tag:
                stored = self.store + (self.slots[i].ref & POSITION_MASK)
                memcpy(&stored_bytes, stored, sizeof(uint32_t))
                if stored_bytes == size_bytes and memcmp(stored + sizeof(uint32_t), key, size_bytes) == 0:
                    break
            i = (i + 1) & mask
        return &self.slots[i]

    cdef bint put(self, const uint8_t* key, uint32_t size_bytes, uint64_t hashed, int64_t offset) noexcept nogil:
        """False if there is no room for a new key."""
        cdef Slot* slot = self.find(key, size_bytes, hashed)
        if slot.ref:
            if offset > slot.offset:
                slot.offset = offset
            return True
        if not self.has_slot_for_one() or not self.reserve(size_bytes + sizeof(uint32_t)):
            return False
        slot = self.find(key, size_bytes, hashed)  # the table may be another one by now
        slot.offset = offset
        slot.ref = hashed >> TAG_SHIFT << TAG_SHIFT | <uint64_t>self.store_used_bytes
        memcpy(self.store + self.store_used_bytes, &size_bytes, sizeof(uint32_t))
        memcpy(self.store + self.store_used_bytes + sizeof(uint32_t), key, size_bytes)
        self.store_used_bytes += size_bytes + sizeof(uint32_t)
        self.key_count += 1
        return True

    cdef bint has_slot_for_one(self) noexcept nogil:
        """Grow at three quarters; where the limit forbids it, go on to seven eighths, after which searches get long."""
        cdef uint64_t wanted = <uint64_t>self.key_count + 1
        if wanted * 4 <= self.slot_count * 3:
            return True
        return self.double_slots() or wanted * 8 <= self.slot_count * 7

    cdef bint double_slots(self) noexcept nogil:
        cdef Slot* old = self.slots
        cdef Slot* slots
        cdef uint64_t i, place, count = self.slot_count * 2, mask = count - 1
        cdef const uint8_t* stored
        cdef uint32_t stored_bytes = 0
        if <int64_t>(count * sizeof(Slot)) + self.store_capacity_bytes > self.limit_bytes:
            return False
        slots = <Slot*>PyMem_RawCalloc(count, sizeof(Slot))
        if slots == NULL:
            return False
        for i in range(self.slot_count):
            if old[i].ref:
                stored = self.store + (old[i].ref & POSITION_MASK)
                memcpy(&stored_bytes, stored, sizeof(uint32_t))
                place = siphash13(self.seed_0, self.seed_1, stored + sizeof(uint32_t), stored_bytes) & mask
                while slots[place].ref:
                    place = (place + 1) & mask
                slots[place] = old[i]
        self.slots = slots
        self.slot_count = count
        PyMem_RawFree(old)
        return True

    cdef bint reserve(self, int64_t more_bytes) noexcept nogil:
        cdef int64_t needed_bytes = self.store_used_bytes + more_bytes
        cdef int64_t allowed_bytes = self.limit_bytes - <int64_t>(self.slot_count * sizeof(Slot))
        cdef int64_t capacity_bytes
        cdef uint8_t* store
        if needed_bytes <= self.store_capacity_bytes:
            return True
        if needed_bytes > <int64_t>POSITION_MASK or (needed_bytes > allowed_bytes and self.key_count):
            return False
        # Small steps: a large block grows without being copied.
        capacity_bytes = max(self.store_capacity_bytes + self.store_capacity_bytes // 4, FIRST_STORE_BYTES)
        capacity_bytes = max(min(capacity_bytes, allowed_bytes), needed_bytes)
        store = <uint8_t*>PyMem_RawRealloc(self.store, capacity_bytes)
        if store == NULL:
            return False
        self.store = store
        self.store_capacity_bytes = capacity_bytes
        return True
