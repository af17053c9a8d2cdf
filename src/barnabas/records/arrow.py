"""Records as Arrow columns, out of batches and into them. Needs pyarrow, which comes with `barnabas[arrow]`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from barnabas.base.errors import LocalProtocolError
from barnabas.base.extras import how_to_install
from barnabas.records._kernel.collect import BytesBuffers, RecordColumns, TakenColumns
from barnabas.records._kernel.columns import BytesColumn, ListColumn, LongColumn, RowColumns
from barnabas.records.batch import APPEND_TIME_BIT, FIRST_OFFSET, BatchView
from barnabas.records.compression import DEFAULT_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from barnabas.records.builder import BatchBuilder

# Offsets within a column of type binary have 32 bits.
MAX_COLUMN_BYTES: Final = 2**31 - 1
MIN_RECORD_BYTES: Final = 7


def require_pyarrow() -> Any:
    """The module pyarrow. Where there is none, say how to get it; the earlier somebody asks, the better."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise ImportError(f"Arrow needs pyarrow ({error}): {how_to_install('arrow')}") from error
    return pyarrow


class _Types:
    """The types of the columns, made once: looking them up in a schema costs more than filling a small column."""

    def __init__(self, pa: Any) -> None:
        self.bytes = pa.binary()
        self.text = pa.string()
        self.header = pa.struct([pa.field("key", self.text, nullable=False), pa.field("value", self.bytes)])
        self.headers = pa.list_(self.header)
        self.no_headers = pa.array([], self.header)
        self.offset = pa.int64()
        self.timestamp = pa.timestamp("ms", tz="UTC")
        self.schema = pa.schema(
            [
                pa.field("key", self.bytes),
                pa.field("value", self.bytes),
                pa.field("headers", self.headers, nullable=False),
                pa.field("offset", self.offset, nullable=False),
                pa.field("timestamp", self.timestamp, nullable=False),
            ]
        )


@cache
def _types() -> _Types:
    return _Types(require_pyarrow())


def record_schema() -> pa.Schema:
    """The columns that records are decoded to."""
    return _types().schema


class ArrowCollector:
    """Gathers the records of many batches into one Arrow record batch.

    `add` returns False, and takes nothing, when the columns have no room left: `take` what is there and add the batch
    again. A smaller `limit_bytes` makes that happen earlier; a batch that is larger than it still goes in alone.
    """

    def __init__(self, limit_bytes: int = MAX_COLUMN_BYTES) -> None:
        if not 0 < limit_bytes <= MAX_COLUMN_BYTES:
            raise ValueError(f"the limit must be from 1 to {MAX_COLUMN_BYTES} bytes, not {limit_bytes}")
        require_pyarrow()
        self._limit_bytes = limit_bytes
        self._columns = RecordColumns()

    @property
    def row_count(self) -> int:
        return self._columns.row_count

    @property
    def size_bytes(self) -> int:
        """Decompressed bytes of the batches in here."""
        return self._columns.taken_bytes

    def expect(self, batches: Sequence[BatchView]) -> None:
        """Make room for what is about to be added. Not needed, but faster than growing bit by bit."""
        size_bytes = min(sum(batch.size_bytes for batch in batches), MAX_COLUMN_BYTES)
        # A header may claim any count, so the bytes have the last word.
        row_count = min(sum(batch.record_count for batch in batches), size_bytes // MIN_RECORD_BYTES)
        self._columns.make_room(size_bytes, row_count)

    def add(self, batch: BatchView, from_offset: int = FIRST_OFFSET, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bool:
        """Add the batch's records from `from_offset` on. Control records are not for applications: left out.

        `limit_bytes` bounds decompression. A malformed batch raises and leaves the columns as they were.
        """
        if batch.is_control or batch.last_offset < from_offset:
            return True
        payload = batch.payload(limit_bytes)
        if self._columns.taken_bytes and self._columns.taken_bytes + len(payload) > self._limit_bytes:
            return False
        self._columns.add(
            payload,
            batch.record_count,
            batch.base_offset,
            batch.base_timestamp_ms,
            batch.max_timestamp_ms,
            bool(batch.attributes & APPEND_TIME_BIT),
            from_offset,
        )
        return True

    def take(self) -> pa.RecordBatch:
        """Everything added so far, in the order added; the collector is empty again."""
        return require_pyarrow().RecordBatch.from_arrays(record_arrays(self._columns.take()), schema=_types().schema)


def record_arrays(taken: TakenColumns) -> list[Any]:
    """The columns of `record_schema`, in its order, over the buffers that were filled: nothing is copied."""
    pa, types = require_pyarrow(), _types()
    wrap, from_buffers = pa.py_buffer, pa.Array.from_buffers
    rows = taken.row_count

    def bytes_array(kind: Any, column: BytesBuffers) -> Any:
        validity = None if column.validity is None else wrap(column.validity)
        buffers = [validity, wrap(column.offsets), wrap(column.data)]
        return from_buffers(kind, column.row_count, buffers, column.null_count)

    headers = types.no_headers
    if taken.header_key.row_count:
        parts = [bytes_array(types.text, taken.header_key), bytes_array(types.bytes, taken.header_value)]
        headers = from_buffers(types.header, taken.header_key.row_count, [None], 0, children=parts)
    return [
        bytes_array(types.bytes, taken.key),
        bytes_array(types.bytes, taken.value),
        from_buffers(types.headers, rows, [None, wrap(taken.header_offsets)], 0, children=[headers]),
        from_buffers(types.offset, rows, [None, wrap(taken.offset)], 0),
        from_buffers(types.timestamp, rows, [None, wrap(taken.timestamp_ms)], 0),
    ]


def to_arrow(batches: Iterable[BatchView], from_offset: int = FIRST_OFFSET) -> pa.RecordBatch:
    """The records of all `batches` from `from_offset` on, as one Arrow record batch."""
    collector = ArrowCollector()
    batches = list(batches)
    collector.expect(batches)
    for batch in batches:
        if not collector.add(batch, from_offset):
            raise LocalProtocolError(f"more than {MAX_COLUMN_BYTES} bytes of records: use an ArrowCollector")
    return collector.take()


def fill_builders(
    data: Any, new_builder: Callable[[], BatchBuilder], *, default_timestamp_ms: int
) -> Iterator[BatchBuilder]:
    """Pack the rows of `data` into batches, and give each builder when it is full, the last one when the rows end.

    `data` is an Arrow table, record batch or reader, or anything that exports an Arrow stream (a frame of Polars, a
    result of DuckDB). `value` must be there; `key`, `headers` and `timestamp` may be; other columns are not looked at.
    Keys and values are bytes or text. Headers are lists of structs with `key` and `value`, or maps. A timestamp that is
    missing or null becomes `default_timestamp_ms`; one given as a plain integer is in milliseconds.
    """
    builder = new_builder()
    for chunk in _chunks(data):
        rows = _row_columns(chunk, default_timestamp_ms)
        row = 0
        while row < rows.row_count:
            try:
                row = builder.append_rows(rows, row, rows.row_count)
            except LocalProtocolError as error:
                raise LocalProtocolError(f"row {row} or later: {error}") from error
            if row < rows.row_count:
                yield builder
                builder = new_builder()
    if builder.record_count:
        yield builder


def iter_rows(data: Any, default_timestamp_ms: int) -> Iterator[tuple[RowColumns, LongColumn | None]]:
    """The rows of `data`, chunk by chunk, with the numbers in its column `partition` if it has one.

    What `data` may be, and what its other columns mean, is as for `fill_builders`.
    """
    for chunk in _chunks(data):
        has_partitions = "partition" in chunk.schema.names
        yield (
            _row_columns(chunk, default_timestamp_ms),
            _number_column(chunk.column("partition"), "partition") if has_partitions else None,
        )


def fingerprint(data: Any) -> int:
    """A number of 64 bits that follows from the keys and values of the rows of `data`, in whatever order they come.

    That of rows in several pieces is the sum of those of the pieces, without what overflows.
    """
    return sum(_row_columns(chunk, 0).fingerprint() for chunk in _chunks(data)) % (1 << 64)


def _number_column(array: Any, name: str) -> LongColumn:
    pa = require_pyarrow()
    array = array if pa.types.is_int64(array.type) else _cast(array, pa.int64(), name, "integers")
    validity, data = array.buffers()
    return LongColumn(validity if array.null_count else None, data, array.offset, len(array))


def _chunks(data: Any) -> Iterable[Any]:
    pa = require_pyarrow()
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        batches: list[Any] = data.to_batches()
        return batches
    if isinstance(data, pa.RecordBatchReader):
        reader: Iterable[Any] = data
        return reader
    if hasattr(data, "__arrow_c_stream__"):
        stream: Iterable[Any] = pa.RecordBatchReader.from_stream(data)
        return stream
    raise TypeError(f"{type(data).__name__} is no Arrow table, record batch, reader or stream")


def _row_columns(chunk: Any, default_timestamp_ms: int) -> RowColumns:
    names = set(chunk.schema.names)
    if "value" not in names:
        raise LocalProtocolError(f"there is no column 'value' among {sorted(names)}")
    headers, header_keys, header_values = None, None, None
    if "headers" in names:
        headers, header_keys, header_values = _header_columns(chunk.column("headers"))
    return RowColumns(
        _bytes_column(chunk.column("value"), "value"),
        _bytes_column(chunk.column("key"), "key") if "key" in names else None,
        headers,
        header_keys,
        header_values,
        _timestamp_column(chunk.column("timestamp")) if "timestamp" in names else None,
        default_timestamp_ms,
    )


def _bytes_column(array: Any, name: str) -> BytesColumn:
    pa = require_pyarrow()
    types = pa.types
    is_narrow = types.is_binary(array.type) or types.is_string(array.type)
    if not is_narrow and not types.is_large_binary(array.type) and not types.is_large_string(array.type):
        # Dictionaries, views and fixed sizes are rare enough to be unfolded first.
        array = _cast(array, pa.large_binary(), name, "bytes or text")
    validity, offsets, data = array.buffers()
    return BytesColumn(validity if array.null_count else None, offsets, data, array.offset, len(array), not is_narrow)


def _header_columns(array: Any) -> tuple[ListColumn, BytesColumn, BytesColumn]:
    pa = require_pyarrow()
    types = pa.types
    if types.is_map(array.type):
        keys, values = array.keys, array.items
    elif (types.is_list(array.type) or types.is_large_list(array.type)) and types.is_struct(array.type.value_type):
        items = array.values
        if items.null_count:
            raise LocalProtocolError("column 'headers' lists a null where a header should be")
        fields = {field.name: index for index, field in enumerate(items.type)}
        if not {"key", "value"} <= fields.keys():
            raise LocalProtocolError(f"the structs in column 'headers' need 'key' and 'value', not {sorted(fields)}")
        keys, values = items.field(fields["key"]), items.field(fields["value"])
    else:
        raise LocalProtocolError(f"column 'headers' is {array.type}; it must be a list of structs, or a map")
    validity, offsets = array.buffers()[:2]
    lists = ListColumn(
        validity if array.null_count else None,
        offsets,
        len(keys),
        array.offset,
        len(array),
        types.is_large_list(array.type),
    )
    if types.is_binary(keys.type) or types.is_large_binary(keys.type):
        # Arrow checks that it is UTF-8, which a header's key must be.
        keys = _cast(keys, pa.large_string(), "headers.key", "text in UTF-8")
    return lists, _bytes_column(keys, "headers.key"), _bytes_column(values, "headers.value")


def _timestamp_column(array: Any) -> LongColumn:
    pa = require_pyarrow()
    types = pa.types
    if types.is_timestamp(array.type):
        array = _cast(array, pa.timestamp("ms", tz=array.type.tz), "timestamp", "within what milliseconds can tell")
    elif not types.is_int64(array.type):
        array = _cast(array, pa.timestamp("ms"), "timestamp", "a timestamp, or an integer of milliseconds")
    validity, data = array.buffers()
    return LongColumn(validity if array.null_count else None, data, array.offset, len(array))


def _cast(array: Any, kind: Any, name: str, wanted: str) -> Any:
    pa = require_pyarrow()
    try:
        # Finer units than milliseconds lose their rest; all else that would not fit is an error.
        return array.cast(options=pa.compute.CastOptions(kind, allow_time_truncate=True))
    except pa.ArrowException as error:
        raise LocalProtocolError(f"column '{name}' is {array.type}; it must be {wanted}") from error
