"""Records to Arrow columns and back."""

from __future__ import annotations

import contextlib
import datetime
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records import naive
from tests.records.naive import NaiveBatch, NaiveRecord
from tests.records.strategies import record_lists

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.records import BatchBuilder, BatchView, Codec, Record, TransactionMarker, build_marker, iter_records
from barnabas.records._kernel.columns import BytesColumn, ListColumn, LongColumn, RowColumns
from barnabas.records.arrow import ArrowCollector, fill_builders, record_schema, to_arrow

codecs = st.sampled_from(list(Codec))
HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])


def rows_of(columns: Any) -> list[Record]:
    columns.validate(full=True)
    timestamps = columns.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        Record(row["offset"], ms, row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"]])
        for row, ms in zip(columns.drop_columns(["timestamp"]).to_pylist(), timestamps, strict=True)
    ]


def encode(data: Any, limit_bytes: int = 1 << 20, **options: Any) -> list[bytearray]:
    filled = fill_builders(data, lambda: BatchBuilder(limit_bytes, **options), default_timestamp_ms=7)
    return [builder.build() for builder in filled]


def records_in(batches: list[bytearray]) -> list[Record]:
    return [record for batch in batches for record in iter_records(batch)]


def values_in(data: Any) -> list[bytes | None]:
    return [record.value for record in records_in(encode(data))]


@given(st.lists(st.tuples(record_lists(gaps=True), codecs), max_size=4))
def test_columns_hold_what_iteration_gives(parts: list[tuple[list[NaiveRecord], Codec]]) -> None:
    batches = [
        BatchView(naive.encode(NaiveBatch(records, base_offset=index << 32, attributes=codec)))
        for index, (records, codec) in enumerate(parts)
    ]
    columns = to_arrow(batches)
    assert columns.schema == record_schema()
    assert rows_of(columns) == [record for batch in batches for record in batch]


@given(st.lists(record_lists(), min_size=1, max_size=4), codecs, st.integers(62, 4000), st.booleans())
def test_there_and_back(parts: list[list[NaiveRecord]], codec: Codec, limit_bytes: int, as_table: bool) -> None:
    tables = [to_arrow([BatchView(naive.encode(NaiveBatch(records)))]) for records in parts]
    data = pa.Table.from_batches(tables) if as_table else tables[0].slice(1)
    expected = rows_of(data)
    batches = encode(data, limit_bytes, codec=codec, allow_oversized=True)
    found = []
    for batch in batches:
        view = BatchView(batch)
        view.check_crc()
        assert view.size_bytes <= limit_bytes or view.record_count == 1
        assert view.summarise().first_gap == -1
        found += list(view)
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in found] == [
        (r.timestamp_ms, r.key, r.value, r.headers) for r in expected
    ]


def test_encoding_gives_the_bytes_of_the_builder() -> None:
    records = [
        NaiveRecord(5, b"k", b"v", (("h", None), ("i", b""))),
        NaiveRecord(3, None, None, (), 1),
        NaiveRecord(9, b"", b"", (("ü", b"c"),), 2),
    ]
    data = naive.encode(NaiveBatch(records, attributes=0x10, producer_id=1, producer_epoch=2, base_sequence=3))
    options = {"producer_id": 1, "producer_epoch": 2, "base_sequence": 3, "transactional": True}
    assert encode(to_arrow([BatchView(data)]), **options) == [data]


def test_batches_are_filled_to_the_brim_across_chunks() -> None:
    values = [b"x" * 100] * 95
    table = pa.concat_tables([pa.table({"value": pa.array(values[i : i + 10], pa.binary())}) for i in range(0, 95, 10)])
    batches = encode(table, 61 + 30 * 110)
    assert [BatchView(batch).record_count for batch in batches] == [30, 30, 30, 5]


def test_below_from_offset_nothing_is_taken() -> None:
    records = [NaiveRecord(index, None, b"%d" % index, (("h", b"%d" % index),), index) for index in range(10)]
    batch = BatchView(naive.encode(NaiveBatch(records, base_offset=100)))
    assert rows_of(to_arrow([batch], 107)) == list(batch.records(107))
    assert to_arrow([batch], 107).column("offset").to_pylist() == [107, 108, 109]
    assert to_arrow([batch], 110).num_rows == 0


def test_control_records_are_left_out() -> None:
    marker = BatchView(build_marker(TransactionMarker(1, 1, 1, True), 5))
    assert to_arrow([marker]).num_rows == 0
    assert to_arrow([]).schema == record_schema()


def test_append_time_is_every_rows_timestamp() -> None:
    records = [NaiveRecord(1, None, b"a"), NaiveRecord(2, None, b"b", (), 1)]
    batch = BatchView(naive.encode(NaiveBatch(records, attributes=0x08, max_timestamp_ms=99)))
    moment = datetime.datetime(1970, 1, 1, 0, 0, 0, 99_000, tzinfo=datetime.UTC)
    assert to_arrow([batch]).column("timestamp").to_pylist() == [moment, moment]


def test_a_full_collector_says_so_and_takes_nothing() -> None:
    batch = BatchView(naive.encode(NaiveBatch([NaiveRecord(0, b"k", b"v" * 100)])))
    collector = ArrowCollector(limit_bytes=250)
    assert collector.add(batch)
    assert collector.add(batch)
    size_bytes = collector.size_bytes
    assert not collector.add(batch)
    assert (collector.row_count, collector.size_bytes) == (2, size_bytes)
    assert collector.take().num_rows == 2
    assert (collector.row_count, collector.size_bytes) == (0, 0)
    assert collector.add(batch)
    assert collector.take().column("value").to_pylist() == [b"v" * 100]
    assert ArrowCollector(limit_bytes=1).add(batch), "a batch larger than the limit goes in alone"


def test_a_malformed_batch_leaves_no_trace() -> None:
    good = BatchView(naive.encode(NaiveBatch([NaiveRecord(0, None, b"v", (("h", None),)), NaiveRecord(1, b"k", None)])))
    records = [NaiveRecord(0, None, None, (("x", None),), index) for index in range(20)]
    bad = BatchView(naive.encode(NaiveBatch(records, trailing=b"\0")))
    collector = ArrowCollector()
    for _ in range(3):
        assert collector.add(good)
        with pytest.raises(RemoteProtocolError):
            collector.add(bad)
    assert rows_of(collector.take()) == [*good, *good, *good]


@pytest.mark.parametrize(
    "name", [b"\xc3\x28", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\xe2\x82", b"\x80"]
)
def test_header_keys_that_are_not_utf8_are_mended_on_reading_and_refused_on_writing(name: bytes) -> None:
    body = b"\0\0\0\1\1" + naive.varint(1) + naive.nullable(name) + naive.varint(-1)
    batch = BatchView(naive.encode(NaiveBatch([], record_count=1, trailing=naive.varint(len(body)) + body)))
    mended = name.decode(errors="replace")
    assert [record.headers for record in batch] == [((mended, None),)]
    assert to_arrow([batch]).column("headers").to_pylist() == [[{"key": mended, "value": None}]]
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    table = pa.table({"value": [b"v"], "headers": pa.array([[{"key": name, "value": b""}]], kind)})
    with pytest.raises(LocalProtocolError, match=r"column 'headers\.key' is binary; it must be text in UTF-8"):
        list(fill_builders(table, lambda: BatchBuilder(1000), default_timestamp_ms=0))


@given(st.binary(max_size=6))
def test_utf8_is_what_python_takes_for_it(name: bytes) -> None:
    body = b"\0\0\0\1\1" + naive.varint(1) + naive.nullable(name) + naive.varint(-1)
    batch = BatchView(naive.encode(NaiveBatch([], record_count=1, trailing=naive.varint(len(body)) + body)))
    expected = name.decode(errors="replace")
    assert to_arrow([batch]).column("headers").to_pylist() == [[{"key": expected, "value": None}]]


def test_timestamps_beyond_milliseconds_are_refused() -> None:
    table = pa.table({"value": [b"v"], "timestamp": pa.array([2**62], pa.timestamp("s"))})
    with pytest.raises(LocalProtocolError, match=r"column 'timestamp' is timestamp\[s\]; it must be within what"):
        list(fill_builders(table, lambda: BatchBuilder(1000), default_timestamp_ms=0))


VALUES = [None, b"", b"one", b"two", b"three" * 10, None]
KINDS = [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view()]
KINDS += [pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bytes_and_text_of_every_kind(kind: Any) -> None:
    texts = pa.array([None if value is None else value.decode() for value in VALUES])
    array = texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts.cast(pa.binary()).cast(kind)
    for data in (array, array.slice(1), array.slice(2, 3), array.slice(0, 0), array.slice(5)):
        expected = [None if value is None else value.as_py() for value in data]
        encoded = values_in(pa.table({"value": data}))
        assert encoded == [value.encode() if isinstance(value, str) else value for value in expected]
        keys = records_in(encode(pa.table({"key": data, "value": pa.nulls(len(data))})))
        assert [(record.key, record.value) for record in keys] == [(value, None) for value in encoded]


def test_fixed_sizes_are_unfolded() -> None:
    assert values_in(pa.table({"value": pa.array([b"abc", None], pa.binary(3))})) == [b"abc", None]


HEADERS = [[("a", b"1"), ("b", None)], None, [], [("c", b"")]]


@pytest.mark.parametrize("kind", [pa.list_(HEADER), pa.large_list(HEADER), pa.map_(pa.string(), pa.binary())], ids=str)
def test_headers_of_every_kind(kind: Any) -> None:
    if pa.types.is_map(kind):
        array = pa.array(HEADERS, kind)
    else:
        array = pa.array([h and [{"key": k, "value": v} for k, v in h] for h in HEADERS], kind)
    for data, expected in ((array, HEADERS), (array.slice(1), HEADERS[1:]), (array.slice(3), HEADERS[3:])):
        records = records_in(encode(pa.table({"value": pa.nulls(len(data)), "headers": data})))
        assert [record.headers for record in records] == [tuple(headers or ()) for headers in expected]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([5, None, -1]), [5, 7, -1]),
        (pa.array([5, None, -1], pa.timestamp("ms", "UTC")), [5, 7, -1]),
        (pa.array([5_999, None, 1_000], pa.timestamp("us")), [5, 7, 1]),
        (pa.array([5, None, 0], pa.timestamp("s", "Europe/Prague")), [5000, 7, 0]),
        (pa.array([datetime.date(1970, 1, 2), None, None]), [86_400_000, 7, 7]),
        (pa.array([1, 5, None, 9])[1:], [5, 7, 9]),
    ],
)
def test_timestamps_of_every_kind(array: Any, expected: list[int]) -> None:
    table = pa.table({"value": pa.array([b"a", b"b", b"c"]), "timestamp": array})
    assert [record.timestamp_ms for record in records_in(encode(table))] == expected
    assert {record.timestamp_ms for record in records_in(encode(table.select(["value"])))} == {7}


def test_streams_and_readers_are_taken() -> None:
    table = pa.table({"value": ["a", "b"], "partition": [1, 2]})

    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return table.__arrow_c_stream__(requested_schema)

    for data in (table, table.to_reader(), table.to_batches()[0], Stream()):
        assert values_in(data) == [b"a", b"b"]
    with pytest.raises(TypeError, match="list is no Arrow table"):
        encode([b"a"])


NULL_HEADER = pa.array([[None]], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
NULL_KEY = pa.array([[{"key": None, "value": b""}]], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
REFUSED = {
    "no column 'value'": pa.table({"key": ["a"]}),
    "column 'value' is int64": pa.table({"value": [1]}),
    "column 'key' is double": pa.table({"value": ["a"], "key": [1.5]}),
    "column 'timestamp' is string": pa.table({"value": ["a"], "timestamp": ["noon"]}),
    "column 'headers' is int64": pa.table({"value": ["a"], "headers": [1]}),
    "need 'key' and 'value', not \\['name'\\]": pa.table({"value": ["a"], "headers": [[{"name": "h"}]]}),
    "a null where a header should be": pa.table({"value": ["a"], "headers": NULL_HEADER}),
    "header's key is null": pa.table({"value": ["a"], "headers": NULL_KEY}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_encoded_is_named(message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        encode(REFUSED[message])


def test_a_row_larger_than_the_limit_is_named() -> None:
    with pytest.raises(LocalProtocolError, match=r"row 1 or later: a record of .* does not fit"):
        encode(pa.table({"value": [b"a" * 30, b"b" * 300]}), 100)
    assert len(encode(pa.table({"value": [b"a", b"b" * 300, b"c"]}), 100, allow_oversized=True)) == 3


def narrow(*offsets: int) -> bytes:
    return b"".join(offset.to_bytes(4, sys.byteorder, signed=True) for offset in offsets)


@pytest.mark.parametrize("offsets", [narrow(0, 5, 2), narrow(0, -1, 2), narrow(0, 1, 2**30), narrow(3, 2, 1)])
def test_offsets_of_others_are_not_believed(offsets: bytes) -> None:
    text = BytesColumn(None, narrow(0, 1, 2, 3), b"abc", 0, 3, wide=False)
    broken = BytesColumn(None, offsets, b"abc", 0, 2, wide=False)
    lists = ListColumn(None, offsets, 3, 0, 2, wide=False)
    two = BytesColumn(None, narrow(0, 1, 2), b"ab", 0, 2, wide=False)
    for rows, name in (
        (RowColumns(broken), "value"),
        (RowColumns(two, broken), "key"),
        (RowColumns(two, None, lists, text, text), "headers"),
    ):
        with pytest.raises(LocalProtocolError, match=f"offsets of column '{name}' are wrong"):
            BatchBuilder(1000).append_rows(rows, 0, 2)


def test_buffers_must_hold_their_rows() -> None:
    with pytest.raises(LocalProtocolError, match="8 bytes of offsets, but needs 12"):
        BytesColumn(None, bytes(8), b"", 0, 2, wide=False)
    with pytest.raises(LocalProtocolError, match="8 bytes of offsets, but needs 32"):
        ListColumn(None, bytes(8), 0, 1, 2, wide=True)
    with pytest.raises(LocalProtocolError, match="1 bytes of validity, but needs 2"):
        BytesColumn(bytes(1), bytes(100), b"", 0, 9, wide=False)
    with pytest.raises(LocalProtocolError, match="8 bytes of numbers, but needs 16"):
        LongColumn(None, bytes(8), 0, 2)
    rows = RowColumns(BytesColumn(None, bytes(12), b"", 0, 2, wide=False))
    with pytest.raises(ValueError, match="not within the 2 given"):
        BatchBuilder(1000).append_rows(rows, 0, 3)
    with pytest.raises(ValueError, match="differ in length"):
        RowColumns(BytesColumn(None, bytes(12), b"", 0, 2, wide=False), timestamps=LongColumn(None, bytes(8), 0, 1))


def test_a_missing_pyarrow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'pyarrow>=17' \(the extra 'arrow'"):
        ArrowCollector()


def test_threads_that_share_a_collector_are_told_so_or_served() -> None:
    """The kernel works without the interpreter's lock, so two threads may meet in it: that must not end in a crash."""
    batch = BatchView(naive.encode(NaiveBatch([NaiveRecord(0, b"k", b"v" * 50, (), index) for index in range(5000)])))
    collector = ArrowCollector()

    def add() -> int:
        taken = 0
        for _ in range(20):
            with contextlib.suppress(LocalProtocolError):
                taken += collector.add(batch)
        return taken

    with ThreadPoolExecutor(4) as pool:
        added = sum(job.result() for job in [pool.submit(add) for _ in range(4)])
    columns = collector.take()
    columns.validate(full=True)
    assert columns.num_rows == added * 5000
