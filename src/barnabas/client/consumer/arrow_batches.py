"""Records of several partitions as one Arrow record batch. Needs pyarrow, which comes with `barnabas[arrow]`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from barnabas.client._kernel.receiving import Chunk
from barnabas.records._kernel.collect import RecordColumns
from barnabas.records.arrow import MAX_COLUMN_BYTES, record_arrays, record_schema

if TYPE_CHECKING:
    import pyarrow as pa

#: How many columns of one value are kept, and how long they are at least: batches come in many sizes.
_MAX_CONSTANTS: Final = 64
_MIN_CONSTANT_ROWS: Final = 4096


@cache
def consumer_schema() -> pa.Schema:
    """The columns of `poll_arrow`. Topics are plain text, since that is what programs compare them with; repeated text
    costs next to nothing, as the column is made once and shared.
    """
    import pyarrow as pa

    records = record_schema()
    return pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            records.field("offset"),
            records.field("timestamp"),
            records.field("key"),
            records.field("value"),
            records.field("headers"),
        ]
    )


class ArrowBatches:
    """Collects chunk by chunk; `take` hands over."""

    def __init__(self) -> None:
        self._schema = consumer_schema()
        self._columns = RecordColumns()
        #: Whose the rows are, in their order: topic, partition, how many.
        self._runs: list[tuple[str, int, int]] = []
        self._constants: dict[str | int, Any] = {}
        self._has_no_room = False

    @property
    def row_count(self) -> int:
        return self._columns.row_count

    def is_full(self, max_rows: int) -> bool:
        return self._has_no_room or self._columns.row_count >= max_rows

    def add(self, chunk: Chunk, max_rows: int) -> None:
        """All of a chunk, or as much as there is room for."""
        columns = self._columns
        before = columns.row_count
        try:
            while columns.row_count < max_rows and chunk.has_more():
                if columns.row_count and columns.taken_bytes + chunk.batch_bytes > MAX_COLUMN_BYTES:
                    self._has_no_room = True
                    break
                chunk.add_to(columns, max_rows - columns.row_count, MAX_COLUMN_BYTES)
        finally:
            added = columns.row_count - before
            if added:
                self._runs.append((chunk.topic, chunk.partition, added))

    def take(self) -> pa.RecordBatch:
        """Everything added so far, in the order added; the collector is empty again."""
        import pyarrow as pa

        runs, self._runs = self._runs, []
        self._has_no_room = False
        key, value, headers, offset, timestamp = record_arrays(self._columns.take())
        topic = self._constant_runs([(name, rows) for name, _, rows in runs], self._schema.field("topic").type)
        partition = self._constant_runs([(number, rows) for _, number, rows in runs], pa.int32())
        arrays = [topic, partition, offset, timestamp, key, value, headers]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant_runs(self, runs: list[tuple[Any, int]], kind: Any) -> Any:
        import pyarrow as pa

        merged: list[tuple[Any, int]] = []
        for value, rows in runs:
            if merged and merged[-1][0] == value:
                merged[-1] = (value, merged[-1][1] + rows)
            else:
                merged.append((value, rows))
        parts = [self._constant(value, rows, kind) for value, rows in merged]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _constant(self, value: str | int, rows: int, kind: Any) -> Any:
        """The same value in each row: a slice of a column that is kept."""
        import pyarrow as pa

        kept = self._constants.get(value)
        if kept is None or len(kept) < rows:
            if len(self._constants) >= _MAX_CONSTANTS:
                self._constants.clear()
            kept = self._constants[value] = pa.repeat(pa.scalar(value, kind), max(2 * rows, _MIN_CONSTANT_ROWS))
        return kept.slice(0, rows)


def empty_batch() -> pa.RecordBatch:
    """No rows, in the usual columns."""
    import pyarrow as pa

    schema = consumer_schema()
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
