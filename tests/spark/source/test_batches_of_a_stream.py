"""How much a batch takes: limits in offsets and bytes, patience for small batches, and runs with a fixed end."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from barnabas.spark import streaming
from barnabas.spark.core.errors import SparkConnectorError
from barnabas.testing import EmbeddedBroker
from tests.spark.source.support import NewTopic, Readers, next_batch, planned, send


def test_the_largest_number_of_offsets_is_shared_by_backlog(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)
    for partition, count in enumerate((10, 30, 1)):
        send(broker, topic, count, partition=partition)
    reader = readers(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    start = reader.initialOffset()
    end = next_batch(reader, start)
    assert end is not None
    assert end[topic] == {"0": 1, "1": 5, "2": 1}
    assert reader.reportLatestOffset() == {topic: {"0": 10, "1": 30, "2": 1}}
    # Trigger.Once is not limited.
    assert reader.latestOffset(end, ReadAllAvailable())[topic] == {"0": 10, "1": 30, "2": 1}


def test_new_partitions_count_for_the_limit_from_their_beginning(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    send(broker, topic, 10, partition=1)
    reader = readers(subscribe=topic, maxOffsetsPerTrigger=4)
    end = next_batch(reader, {topic: {"0": 0}})
    assert end == {topic: {"0": 0, "1": 4}}
    assert planned(reader, {topic: {"0": 0}}, end) == [(topic, 1, 0, 4)]


def test_the_largest_number_of_bytes_is_kept_about(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(broker, topic, 200, value=bytes(1000))
    reader = readers(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="20k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(20 * 1024)
    start, ends = reader.initialOffset(), []
    while (end := next_batch(reader, start)) is not None:
        ends.append(end[topic]["0"])
        start = end
    assert ends[-1] == 200
    sizes = [after - before for before, after in zip([0, *ends], ends, strict=False)]
    assert all(10 <= size <= 30 for size in sizes[:-1]), sizes


def test_small_batches_wait_for_more_or_for_the_delay(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 1_000_000_000.0
    monkeypatch.setattr(streaming, "_now_ms", lambda: now_ms)
    topic = new_topic()
    reader = readers(subscribe=topic, minOffsetsPerTrigger=10, maxTriggerDelay="1m")
    assert reader.getDefaultReadLimit() == ReadMinRows(10)
    start = reader.initialOffset()
    send(broker, topic, 2)
    first = next_batch(reader, start)  # The first one does not wait.
    assert first is not None
    send(broker, topic, 9)
    assert next_batch(reader, first) is None
    send(broker, topic, 1)
    second = next_batch(reader, first)
    assert second == {topic: {"0": 12}}
    send(broker, topic, 1)
    assert next_batch(reader, second) is None
    now_ms += 60_000
    assert next_batch(reader, second) == {topic: {"0": 13}}


def test_available_now_reads_what_was_there_and_no_more(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    send(broker, topic, 10)
    reader = readers(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=3)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    ranges = []
    while (end := next_batch(reader, start)) is not None:
        send(broker, topic, 5)
        ranges += planned(reader, start, end)
        start = end
    # The last one is smaller than the minimum: nothing else would come to read it.
    assert ranges == [(topic, 0, 0, 4), (topic, 0, 4, 8), (topic, 0, 8, 10)]


@pytest.mark.parametrize(
    ("end", "error_class"),
    [
        ({"0": 5}, "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED"),
        ({"0": 7, "1": 0}, "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED"),
    ],
)
def test_available_now_refuses_a_batch_that_does_not_fit_its_target(
    end: dict[str, int], error_class: str, readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    send(broker, topic, 5)
    reader = readers(subscribe=topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert next_batch(reader, start) is not None
    with pytest.raises(SparkConnectorError, match=rf"^\[{error_class}\] "):
        reader.partitions(start, {topic: end})


def test_a_batch_left_over_from_before_is_not_held_against_a_target(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(broker, topic, 5)
    reader = readers(subscribe=topic)
    reader.prepareForTriggerAvailableNow()
    assert planned(reader, {topic: {"0": 1}}, {topic: {"0": 3}}) == [(topic, 0, 1, 3)]
    assert next_batch(reader, {topic: {"0": 3}}) == {topic: {"0": 5}}


def test_batches_are_split_into_tasks(readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic) -> None:
    topic = new_topic()
    send(broker, topic, 10)
    for option in ({"maxRecordsPerPartition": 4}, {"minPartitions": 3}):
        reader = readers(subscribe=topic, **option)
        ranges = planned(reader, {topic: {"0": 0}}, {topic: {"0": 10}})
        assert [(begin, end) for _, _, begin, end in ranges] == [(0, 3), (3, 6), (6, 10)]
    reader = readers(subscribe=topic, maxBytesPerPartition="1k")
    assert len(reader.partitions({topic: {"0": 0}}, {topic: {"0": 10}})) == 1


def test_tasks_get_a_reader_without_its_connections(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    reader = readers(subscribe=new_topic(), mirrorToGroup="g")
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._run_or_none is None
    assert len(pickle.dumps(reader)) < 4000
