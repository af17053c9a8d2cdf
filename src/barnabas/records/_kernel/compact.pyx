# cython: boundscheck=False, wraparound=False, cdivision=True
"""What compaction does with the records of a batch: keep those that no newer ones supersede, move their timestamps."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from barnabas.records._kernel.bytes cimport data_of, plain_view, size_of
from barnabas.records._kernel.cursor cimport (
    MIN_RECORD_BYTES, Cursor, cursor_over, fail, get_varint, get_varlong, refuse,
)
from barnabas.records._kernel.keymap cimport UNLOCKED_BYTES, WINDOW, KeyMap, Placed, Slot
from barnabas.records._kernel.varint cimport put_varint, varint_size

from barnabas.base.errors import RemoteProtocolError


@cython.final
cdef class Retained:
    """What is left of a batch's records."""

    cdef readonly int32_t record_count
    cdef readonly int32_t tombstone_count
    cdef readonly int32_t keyless_count
    cdef readonly int64_t max_timestamp_ms
    cdef readonly bytearray records


cdef struct Rules:
    int64_t base_offset
    int64_t base_timestamp_ms
    int64_t end_offset
    int32_t last_offset_delta
    bint keep_tombstones


def retain(
    KeyMap keys not None,
    payload,
    int32_t record_count,
    int64_t base_offset,
    int32_t last_offset_delta,
    int64_t base_timestamp_ms,
    *,
    int64_t end_offset,
    bint keep_tombstones,
    Py_ssize_t head_bytes,
):
    """Leave out the records below `end_offset` that have no key, that `keys` knows a higher offset for, or that are
    tombstones unless those are kept.

    The records that are left come as they were, behind `head_bytes` of room; only if some went and some stayed.
    """
    cdef memoryview view = plain_view(payload)
    cdef Cursor cursor = cursor_over(data_of(view), size_of(view))
    cdef Retained retained = Retained.__new__(Retained)
    cdef Rules rules
    cdef bytearray room
    cdef Py_ssize_t copied_bytes = 0
    cdef uint8_t* to
    cdef bint good
    if record_count > size_of(view) // MIN_RECORD_BYTES:
        raise RemoteProtocolError(f"{record_count} records cannot fit in {size_of(view)} bytes")
    room = PyByteArray_FromStringAndSize(NULL, head_bytes + size_of(view))
    to = <uint8_t*>PyByteArray_AS_STRING(room) + head_bytes
    rules.base_offset = base_offset
    rules.base_timestamp_ms = base_timestamp_ms
    rules.end_offset = end_offset
    rules.last_offset_delta = last_offset_delta
    rules.keep_tombstones = keep_tombstones
    if size_of(view) < UNLOCKED_BYTES:
        good = retain_each(keys, &cursor, record_count, &rules, retained, to, &copied_bytes)
    else:
        with nogil:
            good = retain_each(keys, &cursor, record_count, &rules, retained, to, &copied_bytes)
    if not good:
        fail(&cursor)
    if 0 < retained.record_count < record_count:
        PyByteArray_Resize(room, head_bytes + copied_bytes)
        retained.records = room
    return retained


cdef bint retain_each(
    KeyMap keys,
    Cursor* cursor,
    int32_t record_count,
    const Rules* rules,
    Retained retained,
    uint8_t* to,
    Py_ssize_t* copied_bytes,
) noexcept nogil:
    cdef const uint8_t* payload_end = cursor.end
    cdef const uint8_t* run = NULL  # where the records began that stay and are not yet copied
    cdef Placed window[WINDOW]
    cdef Placed* record
    cdef Slot* slot
    cdef int64_t timestamp_ms, max_timestamp_ms = INT64_MIN
    cdef int32_t i, count, read = 0, last_delta = -1, kept = 0, tombstones = 0, keyless = 0
    cdef bint stays
    while read < record_count:
        count = keys.look_ahead(
            cursor, window, min(WINDOW, record_count - read), rules.base_offset, &last_delta, rules.last_offset_delta
        )
        if count < 0:
            return False
        read += count
        for i in range(count):
            record = &window[i]
            if record.offset >= rules.end_offset:
                stays = True
            elif record.key_size < 0:
                stays = False
                keyless += 1
            elif record.value_size < 0 and not rules.keep_tombstones:
                stays = False
            else:
                slot = keys.find(record.key, <uint32_t>record.key_size, record.hashed)
                stays = slot.ref == 0 or record.offset >= slot.offset
            if not stays:
                if run != NULL:
                    memcpy(to + copied_bytes[0], run, record.start - run)
                    copied_bytes[0] += record.start - run
                    run = NULL
                continue
            if run == NULL:
                run = record.start
            kept += 1
            tombstones += record.value_size < 0
            timestamp_ms = <int64_t>(<uint64_t>rules.base_timestamp_ms + <uint64_t>record.timestamp_delta)
            if timestamp_ms > max_timestamp_ms:
                max_timestamp_ms = timestamp_ms
    if cursor.at != payload_end:
        return refuse(cursor, b"bytes are left after the last record")
    if run != NULL and kept < record_count:
        memcpy(to + copied_bytes[0], run, payload_end - run)
        copied_bytes[0] += payload_end - run
    retained.record_count = kept
    retained.tombstone_count = tombstones
    retained.keyless_count = keyless
    retained.max_timestamp_ms = max_timestamp_ms if kept else -1
    return True


cdef enum:
    # A longer timestamp delta, and the longer length of the record that it may bring.
    REBASED_MORE_BYTES = 9 + 4


def rebase_timestamps(
    payload, int32_t record_count, int64_t base_timestamp_ms, int64_t new_base_timestamp_ms, *, Py_ssize_t head_bytes
):
    """The same records with their timestamps counted from another base, behind `head_bytes` of room."""
    cdef memoryview view = plain_view(payload)
    cdef Cursor cursor = cursor_over(data_of(view), size_of(view))
    cdef Py_ssize_t size_bytes
    cdef uint8_t* to
    cdef bytearray room
    if record_count > size_of(view) // MIN_RECORD_BYTES:
        raise RemoteProtocolError(f"{record_count} records cannot fit in {size_of(view)} bytes")
    room = PyByteArray_FromStringAndSize(
        NULL, head_bytes + size_of(view) + <Py_ssize_t>record_count * REBASED_MORE_BYTES
    )
    to = <uint8_t*>PyByteArray_AS_STRING(room) + head_bytes
    size_bytes = rebase_each(
        &cursor, record_count, <int64_t>(<uint64_t>base_timestamp_ms - <uint64_t>new_base_timestamp_ms), to
    )
    if size_bytes < 0:
        fail(&cursor)
    PyByteArray_Resize(room, head_bytes + size_bytes)
    return room


cdef Py_ssize_t rebase_each(Cursor* cursor, int32_t record_count, int64_t shift_ms, uint8_t* to) noexcept nogil:
    """How many bytes were written, or -1 for a failure, which the cursor then tells."""
    cdef uint8_t* out = to
    cdef const uint8_t* body
    cdef const uint8_t* rest
    cdef int64_t timestamp_delta = 0, body_bytes
    cdef int32_t record_bytes = 0, i
    for i in range(record_count):
        body = get_varint(cursor.at, cursor.end, &record_bytes)
        if body == NULL or record_bytes < MIN_RECORD_BYTES - 1 or record_bytes > cursor.end - body:
            refuse(cursor, b"a record's length does not fit")
            return -1
        rest = get_varlong(body + 1, body + record_bytes, &timestamp_delta)
        if rest == NULL:
            refuse(cursor, b"a timestamp delta is no varint")
            return -1
        timestamp_delta = <int64_t>(<uint64_t>timestamp_delta + <uint64_t>shift_ms)
        body_bytes = 1 + varint_size(timestamp_delta) + (body + record_bytes - rest)
        if body_bytes > INT32_MAX:
            refuse(cursor, b"a record would grow too large")
            return -1
        out = put_varint(out, body_bytes)
        out[0] = body[0]
        out = put_varint(out + 1, timestamp_delta)
        memcpy(out, rest, body + record_bytes - rest)
        out += body + record_bytes - rest
        cursor.at = body + record_bytes
    if cursor.at != cursor.end:
        refuse(cursor, b"bytes are left after the last record")
        return -1
    return out - to
