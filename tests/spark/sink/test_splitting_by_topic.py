"""Rows with a topic of their own: every topic gets its rows, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.core.errors import SparkConnectorError
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.writing import WritePlan, by_topic

_BY_COLUMN = WritePlan(SinkColumns(value=0, topic=1), {})


def _batch(topics: Sequence[str | None]) -> pa.RecordBatch:
    values = pa.array([str(number) for number in range(len(topics))], pa.string())
    return pa.record_batch([values, pa.array(topics, pa.string())], names=["value", "topic"])


@given(st.lists(st.sampled_from(["a", "b", "c", "ä", "long-topic-name"]), min_size=1, max_size=60), st.data())
def test_each_topic_gets_its_rows_in_their_order(topics: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(topics) - 1))
    expected: dict[str, list[str]] = {}
    for number, topic in enumerate(topics):
        if number >= start:
            expected.setdefault(topic, []).append(str(number))
    split = {
        topic: rows.column("value").to_pylist() for topic, rows in by_topic(_BY_COLUMN, _batch(topics).slice(start))
    }
    assert split == expected


def test_with_the_option_all_rows_stay_together() -> None:
    plan = WritePlan(SinkColumns(value=0), {}, "t")
    [(topic, rows)] = by_topic(plan, _batch(["a", None, "b"]))
    assert (topic, rows.num_rows) == ("t", 3)


def test_a_row_without_a_topic_is_an_error_before_anything_of_its_batch_is_sent() -> None:
    with pytest.raises(SparkConnectorError, match=r"^\[KAFKA_NULL_TOPIC_IN_DATA\]"):
        next(by_topic(_BY_COLUMN, _batch(["a", None])))
