"""Rows in exactly the form that Spark asks for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.base.ids import TopicPartition
from barnabas.records._kernel.collect import RecordColumns
from barnabas.records.batch import BatchView
from barnabas.records.builder import BatchBuilder
from barnabas.spark.columns import BatchMaker
from barnabas.spark.core.errors import SparkConnectorError
from barnabas.spark.schema import arrow_schema, source_schema

CLICKS = TopicPartition("clicks", 3)
FOR_EVER = 2**62


def columns(*records: tuple[int, bytes | None, int, Iterable[tuple[str, bytes | None]]]) -> RecordColumns:
    """Of offset, value, timestamp and headers."""
    builder = BatchBuilder(1 << 20)
    for offset, value, timestamp_ms, headers in records:
        builder.append(value, None, timestamp_ms, headers, offset)
    batch = BatchView(builder.build())
    filled = RecordColumns()
    filled.add(
        batch.payload(), batch.record_count, 0, batch.base_timestamp_ms, batch.max_timestamp_ms, append_time=False
    )
    return filled


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_schema_is_what_spark_makes_of_its_own(include_headers: bool) -> None:
    assert to_arrow_schema(source_schema(include_headers), timezone="UTC").equals(arrow_schema(include_headers))


def test_headers_are_null_where_a_record_has_none() -> None:
    filled = columns((0, b"a", 0, []), (1, b"b", 0, [("k", b"v"), ("k", None)]), (2, b"c", 0, []))
    batch = BatchMaker(CLICKS, include_headers=True).make(filled.take(), [(0, 3)], FOR_EVER)
    batch.validate(full=True)
    assert batch.schema == arrow_schema(True)
    assert batch.column("headers").to_pylist() == [
        None,
        [{"key": "k", "value": b"v"}, {"key": "k", "value": None}],
        None,
    ]


def test_headers_are_all_null_where_no_record_has_any() -> None:
    maker = BatchMaker(CLICKS, include_headers=True)
    for rows in (2, 1, 5):
        filled = columns(*((row, b"a", 0, []) for row in range(rows)))
        batch = maker.make(filled.take(), [(0, rows)], FOR_EVER)
        batch.validate(full=True)
        assert batch.column("headers").null_count == rows


def test_rows_from_the_end_on_are_left_out() -> None:
    filled = columns((0, b"a", 1, []), (4, b"b", 2, []), (9, b"c", 3, []))
    batch = BatchMaker(CLICKS, include_headers=False).make(filled.take(), [(0, 3)], 9)
    assert batch.column("offset").to_pylist() == [0, 4]
    assert batch.column("topic").to_pylist() == ["clicks", "clicks"]
    assert batch.column("partition").to_pylist() == [3, 3]


def test_types_of_timestamps_follow_the_runs() -> None:
    filled = columns(*((row, b"", row, []) for row in range(5)))
    batch = BatchMaker(CLICKS, include_headers=False).make(filled.take(), [(0, 1), (0, 1), (1, 2), (-1, 1)], FOR_EVER)
    assert batch.column("timestampType").to_pylist() == [0, 0, 1, 1, -1]


def test_milliseconds_become_microseconds_before_1970_too() -> None:
    filled = columns((0, b"", -1, []), (1, b"", 1_700_000_000_123, []))
    batch = BatchMaker(CLICKS, include_headers=False).make(filled.take(), [(0, 2)], FOR_EVER)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [-1000, 1_700_000_000_123_000]


@pytest.mark.parametrize("timestamp_ms", [1_700_000_000_000_000_000, -(2**62)])
def test_a_timestamp_that_has_no_microseconds_is_named(timestamp_ms: int) -> None:
    filled = columns((5, b"", 0, []), (7, b"", timestamp_ms, []))
    with pytest.raises(SparkConnectorError, match=rf"offset 7 of clicks-3 has the timestamp {timestamp_ms}") as caught:
        BatchMaker(CLICKS, include_headers=False).make(filled.take(), [(0, 2)], FOR_EVER)
    assert caught.value.error_class == "KAFKA_MALFORMED_RECORD_TIMESTAMP"


def test_a_worker_does_not_import_pandas_for_a_batch() -> None:
    """It takes as long as all other imports of a worker together."""
    script = (
        "import sys\n"
        "from tests.spark.reading.test_columns import *\n"
        "assert 'pandas' not in sys.modules, 'the test itself imports it'\n"
        "filled = columns((0, b'a', 0, []), (4, b'b', 0, [('k', b'v')]), (9, b'c', 0, []))\n"
        "batch = BatchMaker(CLICKS, include_headers=True).make(filled.take(), [(0, 2), (1, 1)], 9)\n"
        "assert batch.num_rows == 2 and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
