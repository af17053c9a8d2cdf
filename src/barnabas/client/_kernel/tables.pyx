# cython: boundscheck=False, wraparound=False
"""Tables of records: which rows go to which partition, and the news of all of them at once."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from barnabas.client._kernel.deliveries cimport Delivery, Home, run_callback, wait_for, wake_up_of
from barnabas.records._kernel.columns cimport LongColumn, RowColumns, get_bytes, get_list, is_null
from barnabas.records._kernel.murmur2 cimport murmur2_of
from barnabas.records._kernel.varint cimport varint_size

from collections import namedtuple

from barnabas.base.errors import LocalProtocolError

OffsetRange = namedtuple("OffsetRange", ["partition", "base_offset", "row_count"])
OffsetRange.__doc__ = "Rows that lie side by side in a partition."

cdef enum:
    WRONG_OFFSETS = -1
    NULL_HEADER_KEY = -2


cdef int64_t bound_of_row(RowColumns rows, int64_t row) noexcept nogil:
    """What a row takes at most, alone in a batch; `WRONG_OFFSETS` or `NULL_HEADER_KEY` if it cannot be a record."""
    cdef const uint8_t* part = NULL
    cdef int32_t value_size = -1, key_size = -1, header_size = 0
    cdef int64_t first = 0, stop = 0, headers_size = 0, i
    if not get_bytes(&rows.values, row, &part, &value_size):
        return WRONG_OFFSETS
    if rows.has_keys and not get_bytes(&rows.keys, row, &part, &key_size):
        return WRONG_OFFSETS
    if rows.has_headers:
        if not get_list(&rows.headers, row, &first, &stop):
            return WRONG_OFFSETS
        for i in range(first, stop):
            if not get_bytes(&rows.header_keys, i, &part, &header_size):
                return WRONG_OFFSETS
            if header_size < 0:
                return NULL_HEADER_KEY
            headers_size += varint_size(header_size) + header_size
            if not get_bytes(&rows.header_values, i, &part, &header_size):
                return WRONG_OFFSETS
            headers_size += varint_size(header_size) + max(header_size, 0)
    return bound_of(key_size, value_size, stop - first, headers_size)


@cython.final
cdef class RowGroups:
    def __cinit__(self):
        self.starts = NULL
        self.size_bytes = NULL
        self.order = NULL

    def __dealloc__(self):
        PyMem_Free(self.starts)
        PyMem_Free(self.size_bytes)
        PyMem_Free(self.order)

    def __init__(
        self,
        RowColumns rows not None,
        int32_t partition_count,
        *,
        LongColumn partitions=None,
        bint by_key=True,
        int64_t first_row=0,
    ):
        cdef int32_t* targets
        cdef int64_t group, wrong_row
        cdef bint by_column = partitions is not None
        if partition_count < 1 or rows.row_count > INT32_MAX:
            raise ValueError(f"{rows.row_count} rows cannot be spread over {partition_count} partitions")
        if partitions is not None and partitions.row_count != rows.row_count:
            raise ValueError(f"columns differ in length: {partitions.row_count} and {rows.row_count}")
        self.rows = rows
        self.row_count = rows.row_count
        self.partition_count = partition_count
        self.starts = <int64_t*>PyMem_Malloc((partition_count + 2) * sizeof(int64_t))
        self.size_bytes = <int64_t*>PyMem_Malloc((partition_count + 1) * sizeof(int64_t))
        targets = <int32_t*>PyMem_Malloc(max(rows.row_count, 1) * sizeof(int32_t))
        try:
            if self.starts == NULL or self.size_bytes == NULL or targets == NULL:
                raise MemoryError
            with nogil:
                wrong_row = self.choose(rows, targets, partitions, by_column, by_key and rows.has_keys)
            if wrong_row >= 0:
                self.refuse(wrong_row, partitions, first_row)
            for group in range(partition_count + 1):
                if self.starts[group + 1] - self.starts[group] == rows.row_count:
                    return  # all in one group: they need no order
            self.order = <int32_t*>PyMem_Malloc(rows.row_count * sizeof(int32_t))
            if self.order == NULL:
                raise MemoryError
            with nogil:
                self.place(targets)
        finally:
            PyMem_Free(targets)

    cdef int64_t choose(
        self, RowColumns rows, int32_t* targets, LongColumn partitions, bint by_column, bint by_key
    ) noexcept nogil:
        """Find the group of each row, and how large groups are. Returns -1, or a row that is wrong."""
        cdef const uint8_t* key = NULL
        cdef int32_t key_size = -1
        cdef int64_t row, number, bound, group, start = 0, count, i
        for group in range(self.partition_count + 1):
            self.starts[group] = 0
            self.size_bytes[group] = 0
        for row in range(rows.row_count):
            number = -1
            if by_column:
                i = row + partitions.first_row
                if not is_null(partitions.validity, i):
                    number = partitions.numbers[i]
                    if not 0 <= number < self.partition_count:
                        return row
            if number < 0 and by_key:
                if not get_bytes(&rows.keys, row, &key, &key_size):
                    return row
                if key_size >= 0:
                    number = (murmur2_of(key, key_size) & INT32_MAX) % self.partition_count
            if number < 0:
                number = self.partition_count
            bound = bound_of_row(rows, row)
            if bound < 0:
                return row
            if bound > self.largest_row_bytes:
                self.largest_row_bytes = bound
                self.largest_row_at = row
            targets[row] = <int32_t>number
            self.starts[number] += 1
            self.size_bytes[number] += bound - BATCH_HEAD_BYTES
        for group in range(self.partition_count + 1):
            count = self.starts[group]
            self.starts[group] = start
            start += count
        self.starts[self.partition_count + 1] = start
        return -1

    cdef void place(self, int32_t* targets) noexcept nogil:
        cdef int64_t row, group
        for row in range(self.row_count):
            group = targets[row]
            self.order[self.starts[group]] = <int32_t>row
            self.starts[group] += 1
        # Each start has moved to the end of its group, which is where the next one begins.
        for group in range(self.partition_count, 0, -1):
            self.starts[group] = self.starts[group - 1]
        self.starts[0] = 0

    cdef int refuse(self, int64_t row, LongColumn partitions, int64_t first_row) except -1:
        cdef int64_t i
        if partitions is not None:
            i = row + partitions.first_row
            if not is_null(partitions.validity, i) and not 0 <= partitions.numbers[i] < self.partition_count:
                raise ValueError(
                    f"row {first_row + row} names partition {partitions.numbers[i]}, and the topic has partitions 0 to "
                    f"{self.partition_count - 1}"
                )
        if bound_of_row(self.rows, row) == NULL_HEADER_KEY:
            raise LocalProtocolError(f"row {first_row + row}: a key in column 'headers' is null, and a header needs one")
        raise LocalProtocolError(f"the offsets of a column are wrong at row {first_row + row}")

    cdef int check_group(self, int32_t group) except -1:
        if not 0 <= group <= self.partition_count:
            raise ValueError(f"there is no group {group} of rows for {self.partition_count} partitions")
        return 0

    def size(self, int32_t group):
        self.check_group(group)
        return self.starts[group + 1] - self.starts[group]

    def largest_row(self):
        return self.largest_row_at, self.largest_row_bytes

    def row_bytes(self, int32_t group, int64_t position):
        cdef int64_t row
        self.check_group(group)
        if not 0 <= position < self.starts[group + 1] - self.starts[group]:
            raise ValueError(f"group {group} has no row {position}")
        row = position if self.order == NULL else self.order[self.starts[group] + position]
        return bound_of_row(self.rows, row)

    def left_bytes(self, int32_t group, int64_t done):
        cdef int64_t size
        self.check_group(group)
        size = self.starts[group + 1] - self.starts[group]
        if not 0 <= done < size:
            return BATCH_HEAD_BYTES
        return BATCH_HEAD_BYTES + <int64_t>(<double>self.size_bytes[group] / size * (size - done)) + 1


@cython.final
cdef class ArrowDelivery:
    cdef list pieces   # triples of delivery, first index and count
    cdef Delivery whole  # done when all pieces are
    cdef int64_t unfinished
    cdef readonly int64_t row_count

    def __init__(self, str topic="", Home home=None):
        self.pieces = []
        self.whole = Delivery(topic, -1, home)
        self.unfinished = 1

    def add(self, Delivery delivery not None, int32_t first_index, int32_t count):
        self.pieces.append((delivery, first_index, count))
        self.row_count += count
        self.unfinished += 1
        delivery.when_done(self._one_done)

    def seal(self):
        self._one_done()

    def fail(self, error):
        """Rows that never got into a batch make the whole fail."""
        self.pieces.append((None, error, 0))

    def _one_done(self):
        self.unfinished -= 1
        if self.unfinished == 0:
            self.whole.succeed(-1)

    cdef tuple look(self):
        """Ranges that are written, and the first error."""
        cdef Delivery delivery, part
        cdef int32_t index, first, count
        cdef dict found = {}
        first_error = None
        for piece in self.pieces:
            if piece[0] is None:
                first_error = first_error or piece[1]
                continue
            delivery, first, count = piece
            for index in range(first, first + count) if delivery.parts is not None else (first,):
                part = delivery.part_of(index)
                if not part.is_done:
                    continue
                if part.error is not None:
                    first_error = first_error or part.error_at(delivery.index_in_part(index))
                    continue
                self.note(
                    found.setdefault(part.partition, []), part, delivery.index_in_part(index),
                    1 if delivery.parts is not None else count,
                )
        return tuple([each for partition in sorted(found) for each in found[partition]]), first_error

    cdef int note(self, list ranges, Delivery part, int32_t index, int32_t count) except -1:
        cdef int64_t offset = part.base_offset + index if part.base_offset >= 0 else -1
        cdef Py_ssize_t at = len(ranges) - 1
        if at >= 0:
            last = ranges[at]
            if (offset < 0 and last.base_offset < 0) or (offset >= 0 and last.base_offset + last.row_count == offset):
                ranges[at] = last._replace(row_count=last.row_count + count)
                return 0
        ranges.append(OffsetRange(part.partition, offset, count))
        return 0

    cdef object outcome(self):
        ranges, error = self.look()
        if error is not None:
            raise error.with_traceback(None)
        return ranges

    def ranges(self):
        return self.look()[0]

    def done(self):
        return self.whole.is_done

    def result(self, timeout=None):
        wait_for(self.whole, timeout)
        return self.outcome()

    def exception(self, timeout=None):
        wait_for(self.whole, timeout)
        return self.look()[1]

    def add_done_callback(self, callback):
        self.whole.when_done(lambda: run_callback(callback, (self,)))

    def __await__(self):
        if not self.whole.is_done:
            yield from wake_up_of(self.whole)
        return self.outcome()

    def __repr__(self):
        state = "done" if self.whole.is_done else "pending"
        return f"<ArrowDelivery of {self.row_count} rows to {self.whole.topic!r}, {state}>"
