"""Where a batch read begins and ends, and what its filters take off."""

from __future__ import annotations

import time

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, InputPartition, LessThan

from barnabas import Admin, Producer
from barnabas.spark import reading
from barnabas.spark.core.admission_limits import EARLIEST, LATEST
from barnabas.spark.core.errors import DataLossError, SparkConnectorError
from barnabas.spark.reading import RangePartition, ReadPlan
from barnabas.spark.source import BatchReader, NarrowingReader
from barnabas.spark.tasks import Tasks
from barnabas.testing import EmbeddedBroker
from tests.spark.source.support import NewTopic, send, source_options


def ranges(reader: BatchReader) -> list[tuple[int, int, int]]:
    """Partition, from, until."""
    return [
        (part.partition, part.from_offset, part.until_offset)
        for part in reader.partitions()
        if isinstance(part, RangePartition)
    ]


def rows(reader: BatchReader, parts: list[InputPartition]) -> int:
    """How many rows tasks find that were planned before."""
    return sum(batch.num_rows for part in parts for batch in reader.read(part))


def batch_reader(broker: EmbeddedBroker, **options: object) -> BatchReader:
    parsed = source_options(broker, is_batch=True, **options)
    return BatchReader(parsed, Tasks(ReadPlan(client=parsed.client)), parsed.client)


def narrowing_reader(broker: EmbeddedBroker, topic: str, *filters: Filter) -> NarrowingReader:
    parsed = source_options(broker, is_batch=True, subscribe=topic)
    reader = NarrowingReader(parsed, Tasks(ReadPlan(client=parsed.client)), parsed.client)
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return reader


def test_a_batch_reads_from_the_given_start_to_the_given_end(broker: EmbeddedBroker, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        send(broker, topic, 10, partition=partition)
    assert ranges(batch_reader(broker, subscribe=topic)) == [(0, EARLIEST, LATEST), (1, EARLIEST, LATEST)]
    some = batch_reader(
        broker, subscribe=topic, startingOffsets={topic: {"0": -2, "1": 4}}, endingOffsets={topic: {"0": 3, "1": -1}}
    )
    assert ranges(some) == [(0, EARLIEST, 3), (1, 4, LATEST)]
    fixed = batch_reader(
        broker, subscribe=topic, startingOffsets={topic: {"0": 0, "1": 4}}, endingOffsets={topic: {"0": 0, "1": 10}}
    )
    assert ranges(fixed) == [(1, 4, 10)]
    split = batch_reader(broker, subscribe=topic, maxRecordsPerPartition=4)
    assert ranges(split) == [
        *[(0, EARLIEST, 3), (0, 3, 6), (0, 6, LATEST)],
        *[(1, EARLIEST, 3), (1, 3, 6), (1, 6, LATEST)],
    ]


def test_a_partition_that_is_empty_when_it_is_planned_need_not_stay_so(
    broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    reader = batch_reader(broker, subscribe=topic)
    assert rows(reader, parts := reader.partitions()) == 0
    send(broker, topic, 3)
    assert rows(reader, parts) == 3


def test_what_is_planned_as_a_whole_is_a_name_and_a_part_is_of_one_topic(
    broker: EmbeddedBroker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SQL has it with tables: who drops one and creates it again finds the new one in the view."""
    monkeypatch.setattr(reading, "_LOOK_AFTER_S", 0.1)
    monkeypatch.setattr(reading, "_GONE_AFTER_S", 0.3)
    topic = new_topic()
    send(broker, topic, 6)
    whole = batch_reader(broker, subscribe=topic)
    # At 6 there is nothing yet.
    some = [batch_reader(broker, subscribe=topic, startingOffsets={topic: {"0": start}}) for start in (2, 6)]
    parts, parts_of_some = whole.partitions(), [each.partitions() for each in some]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics([topic])
    broker.create_topic(topic)
    send(broker, topic, 8)
    assert rows(whole, parts) == 8
    for reader, planned in zip(some, parts_of_some, strict=True):
        with pytest.raises(DataLossError, match="deleted and created again"):
            rows(reader, planned)


def test_a_start_beyond_the_end_is_told(broker: EmbeddedBroker, new_topic: NewTopic) -> None:
    topic = new_topic()
    send(broker, topic, 3)
    reader = batch_reader(broker, subscribe=topic, startingOffsets={topic: {"0": 8}})
    with pytest.raises(SparkConnectorError, match=r"^\[RESOLVED_START_OFFSET_GREATER.*-0 .* from offset 8 to 3"):
        reader.partitions()


def test_filters_take_off_what_they_exclude_and_nothing_else(broker: EmbeddedBroker, new_topic: NewTopic) -> None:
    """Timestamps of a partition need not be in order: what is late enough must stay wherever it lies."""
    from datetime import UTC, datetime

    topic, now_s = new_topic(partitions=3), int(time.time())
    seconds = [10, 30, 20, 5, 40, 15]
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for second in seconds:
            producer.send(topic, b"", partition=0, timestamp_ms=(now_s + second) * 1000)
        producer.send(topic, b"", partition=1, timestamp_ms=now_s * 1000)

    def at(second: int) -> datetime:
        return datetime.fromtimestamp(now_s + second, UTC)

    def after(*filters: Filter) -> list[tuple[int, int, int]]:
        return ranges(narrowing_reader(broker, topic, *filters))

    timestamp, partition, offset = ("timestamp",), ("partition",), ("offset",)
    assert after() == [(0, 0, 6), (1, 0, 1)]
    assert after(GreaterThanOrEqual(timestamp, at(20))) == [(0, 1, 6)]
    assert after(GreaterThan(timestamp, at(30))) == [(0, 4, 6)]
    assert after(GreaterThan(timestamp, at(40))) == []
    assert after(LessThan(timestamp, at(6))) == [(0, 0, 6), (1, 0, 1)]
    assert after(EqualTo(partition, 0), GreaterThan(offset, 2), GreaterThanOrEqual(timestamp, at(20))) == [(0, 3, 6)]
    assert after(EqualTo(("topic",), "another")) == []
