# cython: boundscheck=False, wraparound=False
"""Records into columns: Arrow's plain buffers, filled in one pass and handed over without a copy."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from barnabas.records._kernel.bytes cimport data_of, plain_view, size_of
from barnabas.records._kernel.cursor cimport (
    MIN_RECORD_BYTES, Cursor, RawHeader, RawRecord, cursor_over, end_record, fail, read_header, read_record, refuse,
    skip_headers,
)

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError


cdef enum:
    # Below this the work is shorter than handing the interpreter to another thread and back.
    UNLOCKED_BYTES = 65536


cdef inline bint reserve(Growing* space, int64_t more_bytes) noexcept nogil:
    if space.used_bytes + more_bytes <= space.capacity_bytes:
        return True
    return enlarge(space, more_bytes)


cdef bint enlarge(Growing* space, int64_t more_bytes) noexcept nogil:
    cdef int64_t capacity_bytes = max(space.used_bytes + more_bytes, 2 * space.capacity_bytes, 64)
    cdef void* data = PyMem_RawRealloc(space.data, capacity_bytes)
    if data == NULL:
        return False
    space.data = <uint8_t*>data
    space.capacity_bytes = capacity_bytes
    return True


@cython.final
cdef class Block:
    """Bytes that a column consists of. It owns them and gives them out through the buffer protocol."""

    cdef uint8_t* data
    cdef int64_t size_bytes

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        # Arrow wants an address even of nothing.
        cdef void* data = self.data if self.data != NULL else <void*>&self.size_bytes
        PyBuffer_FillInfo(buffer, self, data, self.size_bytes, True, flags)

    def __len__(self):
        return self.size_bytes


cdef Block hand_over(Growing* space):
    """Give away what was filled; the space starts anew."""
    cdef Block block = Block.__new__(Block)
    cdef void* data
    # A tail that was never written takes no memory, and cutting it off costs page faults in the next round: only a
    # block that is mostly tail is cut.
    if space.used_bytes < space.capacity_bytes // 2:
        data = PyMem_RawRealloc(space.data, max(space.used_bytes, 1))
        if data != NULL:
            space.data = <uint8_t*>data
    block.data = space.data
    block.size_bytes = space.used_bytes
    space.data = NULL
    space.used_bytes = space.capacity_bytes = 0
    return block


cdef struct Mark:
    int64_t rows
    int64_t nulls
    int64_t data_bytes


cdef bint reserve_rows(BytesOut* out, int64_t more_rows) noexcept nogil:
    cdef int64_t validity_bytes = (out.rows + more_rows + 7) // 8
    cdef int64_t rows = out.rows
    # The space of the ends is measured by the rows while it fills: one number less to keep for each of them.
    out.ends.used_bytes = (rows + 1) * sizeof(int32_t) if out.ends.data != NULL else 0
    if not reserve(&out.ends, (more_rows + 1) * sizeof(int32_t)):
        return False
    if rows == 0:
        (<int32_t*>out.ends.data)[0] = 0
    if validity_bytes > out.validity.used_bytes:
        if not reserve(&out.validity, validity_bytes - out.validity.used_bytes):
            return False
        memset(out.validity.data + out.validity.used_bytes, 0xFF, validity_bytes - out.validity.used_bytes)
        out.validity.used_bytes = validity_bytes
    return True


cdef inline void set_null(BytesOut* out, int64_t row) noexcept nogil:
    out.validity.data[row >> 3] &= <uint8_t>~(1 << (row & 7))


cdef inline bint put_bytes(BytesOut* out, const uint8_t* data, int32_t size_bytes) noexcept nogil:
    """Add a row, for which `reserve_rows` made room."""
    cdef int64_t row = out.rows
    if size_bytes > 0:
        if not reserve(&out.data, size_bytes):
            return False
        memcpy(out.data.data + out.data.used_bytes, data, size_bytes)
        out.data.used_bytes += size_bytes
    elif size_bytes < 0:
        set_null(out, row)
        out.nulls += 1
    (<int32_t*>out.ends.data)[row + 1] = <int32_t>out.data.used_bytes
    out.rows = row + 1
    return True


cdef inline Mark mark_of(BytesOut* out) noexcept nogil:
    cdef Mark mark
    mark.rows = out.rows
    mark.nulls = out.nulls
    mark.data_bytes = out.data.used_bytes
    return mark


cdef void roll_back(BytesOut* out, Mark mark) noexcept nogil:
    cdef int64_t row
    out.rows = mark.rows
    out.nulls = mark.nulls
    out.data.used_bytes = mark.data_bytes
    for row in range(mark.rows, out.validity.used_bytes * 8):
        out.validity.data[row >> 3] |= <uint8_t>(1 << (row & 7))


cdef void release(BytesOut* out) noexcept nogil:
    PyMem_RawFree(out.validity.data)
    PyMem_RawFree(out.ends.data)
    PyMem_RawFree(out.data.data)


@cython.final
cdef class BytesBuffers:
    """The buffers of one column of bytes. Without nulls there is no validity."""

    cdef readonly Block validity
    cdef readonly Block offsets
    cdef readonly Block data
    cdef readonly int64_t row_count
    cdef readonly int64_t null_count


cdef BytesBuffers hand_over_column(BytesOut* out):
    cdef BytesBuffers taken = BytesBuffers.__new__(BytesBuffers)
    if not reserve_rows(out, 0):
        raise MemoryError
    taken.row_count = out.rows
    taken.null_count = out.nulls
    taken.validity = hand_over(&out.validity) if out.nulls else None
    out.validity.used_bytes = 0
    out.ends.used_bytes = (out.rows + 1) * sizeof(int32_t)
    taken.offsets = hand_over(&out.ends)
    taken.data = hand_over(&out.data)
    out.rows = out.nulls = 0
    return taken


cdef bint is_utf8(const uint8_t* at, int64_t size_bytes) noexcept nogil:
    """Well-formed UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF."""
    cdef const uint8_t* end = at + size_bytes
    cdef uint8_t lead, low, high
    cdef int more
    while at < end:
        lead = at[0]
        at += 1
        if lead < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if end - at < more or at[0] < low or at[0] > high:
            return False
        if more > 1 and at[1] & 0xC0 != 0x80:
            return False
        if more > 2 and at[2] & 0xC0 != 0x80:
            return False
        at += more
    return True


cdef const char* OUT_OF_MEMORY = b"out of memory"


@cython.final
cdef class RecordColumns:
    """Columns that grow by whole batches. A batch that turns out malformed leaves no trace in them."""

    def __dealloc__(self):
        release(&self.keys)
        release(&self.values)
        release(&self.header_keys)
        release(&self.header_values)
        PyMem_RawFree(self.header_ends.data)
        PyMem_RawFree(self.offsets.data)
        PyMem_RawFree(self.timestamps.data)

    @property
    def row_count(self) -> int:
        return self.values.rows

    @property
    def last_offset(self) -> int:
        """The offset of the last row; -1 if there are none."""
        return (<int64_t*>self.offsets.data)[self.values.rows - 1] if self.values.rows else -1

    def make_room(self, int64_t size_bytes, int64_t row_count) -> None:
        """Prepare for so much at once: growing step by step would copy what is there already."""
        self.check_idle()
        if not 0 <= size_bytes <= INT32_MAX or not 0 <= row_count <= size_bytes:
            raise ValueError(f"there cannot be room for {size_bytes} bytes in {row_count} rows")
        if not self.reserve_all(row_count) or not reserve(&self.values.data, size_bytes):
            raise MemoryError

    def add(
        self,
        payload,
        int32_t record_count,
        int64_t base_offset,
        int64_t base_timestamp_ms,
        int64_t max_timestamp_ms,
        bint append_time,
        int64_t from_offset=INT64_MIN,
        int64_t row_limit=INT32_MAX,
        int64_t from_byte=0,
    ) -> bool:
        """Add the records in `payload` (decompressed) whose offset is not below `from_offset`, at most `row_limit`.

        Returns whether that were all of them. If not, `last_offset` tells where to go on; so that those before need not
        be read again, `read_bytes` and `read_count` tell how far it came: `record_count` records are read from
        `from_byte` on. The caller sees to it that `taken_bytes` and the payload together stay below 2 GiB: offsets have
        32 bits.
        """
        cdef memoryview view = plain_view(payload)
        cdef UnreadBatch batch = UnreadBatch(
            cursor_over(data_of(view), size_of(view)),
            record_count, base_offset, base_timestamp_ms, max_timestamp_ms, append_time,
        )
        if not 0 <= from_byte <= size_of(view):
            raise ValueError(f"byte {from_byte} is not among {size_of(view)}")
        batch.cursor.at += from_byte
        return self.add_from(batch, from_offset, row_limit)

    cdef bint add_from(self, UnreadBatch batch, int64_t from_offset, int64_t row_limit) except -1:
        """`add` for those who have a cursor."""
        cdef Cursor* cursor = &batch.cursor
        cdef Mark keys = mark_of(&self.keys)
        cdef Mark values = mark_of(&self.values)
        cdef Mark header_keys = mark_of(&self.header_keys)
        cdef Mark header_values = mark_of(&self.header_values)
        cdef const uint8_t* first = cursor.at
        cdef int64_t left_bytes = cursor.end - first
        cdef bint good
        self.check_idle()
        if batch.record_count > left_bytes // MIN_RECORD_BYTES:
            raise RemoteProtocolError(f"{batch.record_count} records cannot fit in {left_bytes} bytes")
        if self.taken_bytes + left_bytes > INT32_MAX:
            raise ValueError(f"{self.taken_bytes} and {left_bytes} bytes are more than one column can hold")
        self.busy = True
        if left_bytes < UNLOCKED_BYTES:
            good = self.add_each(&batch, from_offset, row_limit)
        else:
            with nogil:
                good = self.add_each(&batch, from_offset, row_limit)
        if not good:
            roll_back(&self.keys, keys)
            roll_back(&self.values, values)
            roll_back(&self.header_keys, header_keys)
            roll_back(&self.header_values, header_values)
        self.busy = False
        if not good:
            if cursor.failure == OUT_OF_MEMORY:
                raise MemoryError
            fail(cursor)
        self.read_bytes = cursor.at - first
        self.taken_bytes += self.read_bytes
        return cursor.at == cursor.end

    cdef int check_idle(self) except -1:
        if self.busy:
            raise LocalProtocolError("another thread is adding to these columns")
        return 0

    cdef bint add_each(self, UnreadBatch* batch, int64_t from_offset, int64_t row_limit) noexcept nogil:
        """The loop that everything here is for. It works on its own copies of where columns end, and only a batch that
        was good to its last byte moves the ends of the columns themselves."""
        cdef Cursor* cursor = &batch.cursor
        cdef const uint8_t* payload_end = cursor.end
        cdef RawRecord record
        cdef int64_t i = 0, offset, row = self.values.rows, row_end = row + row_limit
        cdef int64_t value_bytes = self.values.data.used_bytes, value_nulls = 0
        cdef int64_t key_bytes = self.keys.data.used_bytes, key_nulls = 0
        cdef int64_t* offsets
        cdef int64_t* timestamps
        cdef int32_t* header_ends
        cdef int32_t* value_ends
        cdef int32_t* key_ends
        cdef uint8_t* values
        if not (
            self.reserve_all(min(batch.record_count, row_limit))
            and reserve(&self.values.data, cursor.end - cursor.at)
        ):
            return refuse(cursor, OUT_OF_MEMORY)
        offsets = <int64_t*>self.offsets.data
        timestamps = <int64_t*>self.timestamps.data
        header_ends = <int32_t*>self.header_ends.data + 1
        value_ends = <int32_t*>self.values.ends.data + 1
        key_ends = <int32_t*>self.keys.ends.data + 1
        values = self.values.data.data
        while i < batch.record_count:
            if row == row_end:
                break
            i += 1
            if not read_record(cursor, &record):
                return False
            offset = <int64_t>(<uint64_t>batch.base_offset + record.offset_delta)
            if offset < from_offset:
                if not skip_headers(cursor, record.header_count) or not end_record(cursor, payload_end):
                    return False
                continue
            if record.header_count and not self.add_headers(cursor, record.header_count):
                return False
            if not end_record(cursor, payload_end):
                return False
            if record.value_size >= 0:
                memcpy(values + value_bytes, record.value, record.value_size)
                value_bytes += record.value_size
            else:
                set_null(&self.values, row)
                value_nulls += 1
            if record.key_size > 0:
                self.keys.data.used_bytes = key_bytes
                if not reserve(&self.keys.data, record.key_size):
                    return refuse(cursor, OUT_OF_MEMORY)
                memcpy(self.keys.data.data + key_bytes, record.key, record.key_size)
                key_bytes += record.key_size
            elif record.key_size < 0:
                set_null(&self.keys, row)
                key_nulls += 1
            value_ends[row] = <int32_t>value_bytes
            key_ends[row] = <int32_t>key_bytes
            header_ends[row] = <int32_t>self.header_keys.rows
            offsets[row] = offset
            timestamps[row] = (
                batch.max_timestamp_ms if batch.append_time
                else <int64_t>(<uint64_t>batch.base_timestamp_ms + <uint64_t>record.timestamp_delta)
            )
            row += 1
        else:
            if cursor.at != payload_end:
                return refuse(cursor, b"bytes are left after the last record")
        self.read_count = <int32_t>i
        self.values.data.used_bytes = value_bytes
        self.keys.data.used_bytes = key_bytes
        self.values.nulls += value_nulls
        self.keys.nulls += key_nulls
        self.values.rows = self.keys.rows = row
        self.offsets.used_bytes = self.timestamps.used_bytes = row * sizeof(int64_t)
        self.header_ends.used_bytes = (row + 1) * sizeof(int32_t)
        return True

    cdef bint add_headers(self, Cursor* cursor, int32_t count) noexcept nogil:
        cdef RawHeader header
        cdef int32_t i
        if not reserve_rows(&self.header_keys, count) or not reserve_rows(&self.header_values, count):
            return refuse(cursor, OUT_OF_MEMORY)
        for i in range(count):
            if not read_header(cursor, &header):
                return False
            if is_utf8(header.key, header.key_size):
                if not put_bytes(&self.header_keys, header.key, header.key_size):
                    return refuse(cursor, OUT_OF_MEMORY)
            elif not self.put_mended_key(&header):
                return refuse(cursor, OUT_OF_MEMORY)
            if not put_bytes(&self.header_values, header.value, header.value_size):
                return refuse(cursor, OUT_OF_MEMORY)
        return True

    cdef bint put_mended_key(self, RawHeader* header) noexcept with gil:
        """A column of text must be UTF-8; what is not is replaced, as when records are read one by one."""
        cdef bytes mended = (<char*>header.key)[:header.key_size].decode("utf-8", "replace").encode()
        return put_bytes(&self.header_keys, <const uint8_t*><char*>mended, <int32_t>len(mended))

    cdef bint reserve_all(self, int64_t rows) noexcept nogil:
        if not reserve_rows(&self.keys, rows) or not reserve_rows(&self.values, rows):
            return False
        if not reserve(&self.offsets, rows * sizeof(int64_t)):
            return False
        if not reserve(&self.timestamps, rows * sizeof(int64_t)):
            return False
        if not reserve(&self.header_ends, (rows + 1) * sizeof(int32_t)):
            return False
        if self.header_ends.used_bytes == 0:
            (<int32_t*>self.header_ends.data)[0] = 0
            self.header_ends.used_bytes = sizeof(int32_t)
        return True

    def take(self) -> TakenColumns:
        """Hand over what was collected and start anew."""
        cdef TakenColumns taken = TakenColumns.__new__(TakenColumns)
        self.check_idle()
        if not self.reserve_all(0):
            raise MemoryError
        taken.row_count = self.values.rows
        taken.key = hand_over_column(&self.keys)
        taken.value = hand_over_column(&self.values)
        taken.header_key = hand_over_column(&self.header_keys)
        taken.header_value = hand_over_column(&self.header_values)
        taken.header_offsets = hand_over(&self.header_ends)
        taken.offset = hand_over(&self.offsets)
        taken.timestamp_ms = hand_over(&self.timestamps)
        self.taken_bytes = 0
        return taken


@cython.final
cdef class TakenColumns:
    """Everything that `RecordColumns` collected, as buffers in Arrow's layout."""

    cdef readonly int64_t row_count
    cdef readonly BytesBuffers key
    cdef readonly BytesBuffers value
    cdef readonly Block header_offsets
    cdef readonly BytesBuffers header_key
    cdef readonly BytesBuffers header_value
    cdef readonly Block offset
    cdef readonly Block timestamp_ms
