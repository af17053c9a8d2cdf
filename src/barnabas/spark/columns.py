"""Columns of records in Spark's form: Arrow arrays over the buffers that the kernel has filled, copied as little as can
be.

Values of Python never go to pyarrow as they are: to see what they could be it imports pandas, which takes a worker
longer to start than all else."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.base.ids import TopicPartition
from barnabas.spark.core import errors
from barnabas.spark.schema import arrow_schema

if TYPE_CHECKING:
    from barnabas.records._kernel.collect import BytesBuffers, TakenColumns

#: Timestamps beyond this have no microseconds in 64 bits.
_MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
_MIN_TIMESTAMP_MS: Final = -(2**63 // 1000)


class BatchMaker:
    """Makes the record batches of one partition. What is the same in all rows is made once and shared by batches."""

    def __init__(self, partition: TopicPartition, include_headers: bool) -> None:
        self._of = partition
        self._schema = arrow_schema(include_headers)
        self._headers_type = self._schema.field("headers").type if include_headers else None
        self._timestamp_type = self._schema.field("timestamp").type
        self._constants: dict[object, Any] = {}

    def make(self, taken: TakenColumns, runs: Iterable[tuple[int, int]], until_offset: int) -> pa.RecordBatch:
        """The rows before `until_offset`. `runs` tell what type of timestamp how many rows have, in their order."""
        rows = taken.row_count
        offset = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(taken.offset)], 0)
        arrays = [
            _bytes_array(pa.binary(), taken.key),
            _bytes_array(pa.binary(), taken.value),
            self._constant("topic", self._of.topic, rows),
            self._constant("partition", self._of.partition, rows),
            offset,
            self._timestamps(taken, offset),
            self._timestamp_types(list(runs)),
        ]
        if self._headers_type is not None:
            arrays.append(self._headers(taken, self._headers_type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if rows and offset[rows - 1].as_py() >= until_offset:
            batch = batch.slice(0, pc.less(offset, _long(until_offset)).true_count)
        return batch

    def _timestamps(self, taken: TakenColumns, offset: Any) -> Any:
        millis = pa.Array.from_buffers(pa.int64(), taken.row_count, [None, pa.py_buffer(taken.timestamp_ms)], 0)
        try:
            return pc.multiply_checked(millis, _THOUSAND).view(self._timestamp_type)
        except pa.ArrowInvalid:
            bad = pc.or_(pc.greater(millis, _long(_MAX_TIMESTAMP_MS)), pc.less(millis, _long(_MIN_TIMESTAMP_MS)))
            row = pc.indices_nonzero(bad)[0].as_py()
            raise errors.malformed_record_timestamp(self._of, offset[row].as_py(), millis[row].as_py()) from None

    def _timestamp_types(self, runs: list[tuple[int, int]]) -> Any:
        merged: list[tuple[int, int]] = []
        for value, rows in runs:
            if merged and merged[-1][0] == value:
                merged[-1] = (value, merged[-1][1] + rows)
            else:
                merged.append((value, rows))
        parts = [self._constant("timestampType", value, rows) for value, rows in merged]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _headers(self, taken: TakenColumns, kind: Any) -> Any:
        """Null where a record has none, as Spark's users know it."""
        rows = taken.row_count
        count = taken.header_key.row_count
        if not count:
            return self._constant("headers", None, rows)
        ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(taken.header_offsets)], 0)
        has_some = pc.not_equal(ends.slice(1), ends.slice(0, rows))
        header = kind.value_type
        parts = [_bytes_array(pa.string(), taken.header_key), _bytes_array(pa.binary(), taken.header_value)]
        headers = pa.Array.from_buffers(header, count, [None], 0, children=parts)
        # The bits of a column of booleans are just what tells which rows of another are not null.
        validity = has_some.buffers()[1]
        null_count = rows - has_some.true_count
        return pa.Array.from_buffers(kind, rows, [validity, ends.buffers()[1]], null_count, children=[headers])

    def _constant(self, column: str, value: str | int | None, rows: int) -> Any:
        """The same value in each row: a slice of a column that is kept."""
        kept = self._constants.get((column, value))
        if kept is None or len(kept) < rows:
            kept = self._constants[column, value] = self._repeated(value, rows)
        return kept.slice(0, rows)

    def _repeated(self, value: str | int | None, rows: int) -> Any:
        if value is None:
            return pa.nulls(rows, self._headers_type)
        if isinstance(value, int):
            one = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(struct.pack("=i", value))], 0)
        else:
            text = value.encode()
            ends = pa.py_buffer(struct.pack("=2i", 0, len(text)))
            one = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(text)], 0)
        return pa.repeat(one[0], rows)


def _long(value: int) -> Any:
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("=q", value))], 0)[0]


_THOUSAND: Final = _long(1000)


def _bytes_array(kind: Any, column: BytesBuffers) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, column.row_count, buffers, column.null_count)
