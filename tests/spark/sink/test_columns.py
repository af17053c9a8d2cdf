"""Which columns the sink takes, and what it says of those that it does not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from barnabas.spark.sink.columns import ColumnError, SinkColumns, sink_columns
from tests.spark.sink.shapes import RIGHT, WRONG, Columns, schema

_HEADERS = "array<struct<key:string,value:binary>>"


def _found(*columns: tuple[str, str], topic: str | None = "t", include_timestamp: bool = False) -> SinkColumns:
    return sink_columns(schema(*columns), topic=topic, include_timestamp=include_timestamp)


def test_all_parts_of_a_record_are_found_wherever_they_stand() -> None:
    found = _found(
        ("extra", "int"),
        ("partition", "int"),
        ("headers", _HEADERS),
        ("topic", "string"),
        ("key", "binary"),
        ("value", "string"),
        ("timestamp", "timestamp"),
        topic=None,
        include_timestamp=True,
    )
    assert found == SinkColumns(value=5, key=4, headers=2, partition=1, timestamp=6, topic=3)


def test_a_timestamp_is_another_column_unless_asked_for() -> None:
    assert _found(("value", "string"), ("timestamp", "date")) == SinkColumns(value=0)


def test_the_option_topic_makes_the_column_a_stranger() -> None:
    assert _found(("value", "string"), ("topic", "int")) == SinkColumns(value=0)


def test_names_are_compared_as_they_are_and_the_first_of_a_name_counts() -> None:
    assert _found(("VALUE", "int"), ("value", "string"), ("value", "int"), ("Key", "int")) == SinkColumns(value=1)


@pytest.mark.parametrize(("columns", "has_topic", "said"), WRONG)
def test_what_cannot_be_a_record_is_refused_with_column_type_and_what_is_allowed(
    columns: Columns, has_topic: bool, said: str
) -> None:
    with pytest.raises(ColumnError) as refused:
        _found(*columns, topic="t" if has_topic else None)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(("columns", "has_topic"), RIGHT)
def test_what_only_looks_odd_is_taken(columns: Columns, has_topic: bool) -> None:
    found = _found(*columns, topic="t" if has_topic else None)
    assert columns[found.value] == ("value", "string")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ((), "includeTimestamp is true, and column 'timestamp' is missing"),
        ((("timestamp", "string"),), "column 'timestamp' is string, and the sink takes timestamp or bigint"),
        ((("timestamp", "date"),), "column 'timestamp' is date"),
    ],
)
def test_a_timestamp_that_is_asked_for_must_be_one(columns: Columns, said: str) -> None:
    with pytest.raises(ColumnError) as refused:
        _found(("value", "string"), *columns, include_timestamp=True)
    assert str(refused.value).startswith(said)


def test_header_fields_may_be_written_in_capitals_as_spark_lets_them_be() -> None:
    found = _found(("value", "string"), ("headers", "array<struct<KEY:string,Value:binary>>"))
    item = pa.struct([("KEY", pa.string()), ("Value", pa.binary())])
    headers = pa.array([None, [("a", b"1"), ("b", None)], []], pa.list_(item))
    picked = found.pick(pa.record_batch([pa.array(["x", "y", "z"]), headers], names=["value", "headers"]).slice(1))
    assert picked.column("headers").to_pylist() == [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]


def test_picked_columns_are_not_copied() -> None:
    value = pa.array([b"x" * 1000] * 10)
    found = _found(("a", "int"), ("value", "binary"))
    picked = found.pick(pa.record_batch([pa.array(range(10)), value], names=["a", "value"]))
    assert picked.schema.names == ["value"]
    assert picked.column(0).buffers()[2].address == value.buffers()[2].address
