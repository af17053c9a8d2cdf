"""Records and partitions that are not where they were: an error that names them, or a warning where that will do."""

from __future__ import annotations

import logging

import pytest

from barnabas import Admin, NewPartitions, TopicPartition
from barnabas.spark.core.errors import DataLossError
from barnabas.spark.core.positions import SparkOffset
from barnabas.spark.reading import RangePartition
from barnabas.spark.streaming import StreamReader
from barnabas.testing import EmbeddedBroker
from tests.spark.source.support import Readers, next_batch, planned, send, stored


def recreate(admin: Admin, broker: EmbeddedBroker, topic: str) -> None:
    admin.delete_topics([topic])
    broker.create_topic(topic)


def first_batch_with_a_fixed_end(reader: StreamReader) -> tuple[SparkOffset, SparkOffset]:
    reader.prepareForTriggerAvailableNow()
    start = stored(reader.initialOffset())
    end = next_batch(reader, start)
    assert end is not None
    return start, end


def test_a_partition_that_is_added_is_read_from_its_beginning(
    readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    broker.create_topic("grows")
    reader = readers(subscribe="grows")
    start = stored(reader.initialOffset())
    admin.create_partitions({"grows": NewPartitions(2)})
    send(broker, "grows", 3, partition=1)
    end = next_batch(reader, start)
    assert end is not None
    assert planned(reader, start, end) == [("grows", 1, 0, 3)]


def test_an_added_partition_that_has_lost_records_already_is_told(
    readers: Readers, broker: EmbeddedBroker, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("late", 2)
    send(broker, "late", 5, partition=1)
    admin.delete_records({TopicPartition("late", 1): 2})
    start, end = {"late": {"0": 0}}, {"late": {"0": 0, "1": 5}}
    strict = readers(subscribe="late")
    with pytest.raises(DataLossError, match=r"^\[KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START.*late-1 .* 0 to 1 "):
        strict.partitions(start, end)
    lenient = readers(subscribe="late", failOnDataLoss=False)
    with caplog.at_level(logging.WARNING):
        assert planned(lenient, start, end) == [("late", 1, 2, 5)]
    assert "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO" in caplog.text


def test_a_topic_deleted_while_the_query_runs_fails_it_with_what_was_not_read(
    readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    broker.create_topic("leaves")
    send(broker, "leaves", 5)
    reader = readers(subscribe="leaves", startingOffsets="earliest")
    start = reader.initialOffset()
    end = next_batch(reader, start)
    assert end is not None
    admin.delete_topics(["leaves"])
    with pytest.raises(DataLossError, match=r"^\[KAFKA_DATA_LOSS.PARTITIONS_DELETED\] .*leaves-0: 5.* failOnDataLoss"):
        next_batch(reader, end)


def test_one_of_several_topics_goes_and_the_others_go_on(
    readers: Readers, broker: EmbeddedBroker, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("stays", "goes"):
        broker.create_topic(topic)
    reader = readers(subscribe="stays,goes", failOnDataLoss=False)
    start = stored(reader.initialOffset())
    admin.delete_topics(["goes"])
    send(broker, "stays", 2)
    end = next_batch(reader, start)
    assert end is not None
    assert {topic for topic in end if not topic.startswith("@")} == {"stays"}
    with caplog.at_level(logging.WARNING):
        assert planned(reader, start, end) == [("stays", 0, 0, 2)]
        assert planned(reader, start, end) == [("stays", 0, 0, 2)]
    assert caplog.text.count("PARTITIONS_DELETED") == 1
    send(broker, "stays", 1)
    following = next_batch(reader, end)
    assert following is not None
    assert planned(reader, end, following) == [("stays", 0, 2, 3)]
    # A driver that has never met the topic knows of it from where the query was.
    resumed = readers(subscribe="stays,goes", failOnDataLoss=False)
    assert next_batch(resumed, start) is not None
    assert next_batch(resumed, end) == following
    broker.create_topic("goes")
    send(broker, "goes", 4)
    last = next_batch(reader, following)
    assert last is not None
    assert planned(reader, following, last) == [("goes", 0, 0, 4)]


def test_a_query_whose_only_topic_went_may_wait_for_it(readers: Readers, broker: EmbeddedBroker, admin: Admin) -> None:
    broker.create_topic("returns")
    send(broker, "returns", 5)
    reader = readers(subscribe="returns", failOnDataLoss=False)
    start = stored(reader.initialOffset())
    admin.delete_topics(["returns"])
    assert next_batch(reader, start) is None
    broker.create_topic("returns")
    send(broker, "returns", 2)
    end = next_batch(reader, start)
    assert end is not None
    assert planned(reader, start, end) == [("returns", 0, 0, 2)]


@pytest.mark.parametrize("count", [3, 5, 9])
def test_a_topic_that_was_created_again_is_another_one_even_if_it_has_grown_to_or_beyond_the_old(
    count: int, readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    topic = f"again-{count}"
    broker.create_topic(topic)
    send(broker, topic, 5)
    strict, lenient = [readers(subscribe=topic, failOnDataLoss=fails) for fails in (True, False)]
    start = stored(strict.initialOffset())
    assert stored(lenient.initialOffset()) == start
    recreate(admin, broker, topic)
    send(broker, topic, count)
    end = next_batch(strict, start)
    assert end is not None
    with pytest.raises(DataLossError, match="was deleted and created again while the query was running"):
        strict.partitions(start, end)
    end = next_batch(lenient, start)
    assert end is not None
    assert planned(lenient, start, end) == [(topic, 0, 0, count)]
    assert planned(lenient, start, end) == [(topic, 0, 0, count)]
    assert next_batch(lenient, end) is None
    assert planned(lenient, end, end) == []
    send(broker, topic, 1)
    following = next_batch(lenient, end)
    assert following is not None
    assert planned(lenient, end, following) == [(topic, 0, count, count + 1)]


def test_a_driver_that_dies_in_the_batch_that_begins_anew_knows_of_it_afterwards(
    readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    broker.create_topic("anew")
    send(broker, "anew", 5)
    start: SparkOffset = {"anew": {"0": 5}}
    first = readers(subscribe="anew")
    assert next_batch(first, start) is None
    recreate(admin, broker, "anew")
    send(broker, "anew", 9)
    end = next_batch(first, start)
    assert end is not None
    # What meets the new topic only must neither skip its beginning nor, if nothing may be lost, go on in silence.
    with pytest.raises(DataLossError, match="'anew' was deleted and created again"):
        readers(subscribe="anew").partitions(start, end)
    assert planned(readers(subscribe="anew", failOnDataLoss=False), start, end) == [("anew", 0, 0, 9)]


def test_limits_count_from_the_beginning_of_a_topic_that_was_created_again(
    readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    broker.create_topic("slowly")
    send(broker, "slowly", 5)
    reader = readers(subscribe="slowly", failOnDataLoss=False, maxOffsetsPerTrigger=5)
    start = stored(reader.initialOffset())
    recreate(admin, broker, "slowly")
    send(broker, "slowly", 12)
    ranges = []
    while (end := next_batch(reader, start)) is not None:
        ranges += planned(reader, start, end)
        start = end
    assert ranges == [("slowly", 0, 0, 5), ("slowly", 0, 5, 10), ("slowly", 0, 10, 12)]


def test_a_topic_that_is_created_again_and_again_does_not_look_like_nothing_new(
    readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    broker.create_topic("often")
    reader = readers(subscribe="often", failOnDataLoss=False, maxOffsetsPerTrigger=5)
    start: SparkOffset = {"often": {"0": 0}}
    assert next_batch(reader, start) is None
    for _ in range(2):
        recreate(admin, broker, "often")
        send(broker, "often", 9)
        end = next_batch(reader, start)
        assert end is not None
        ranges = planned(reader, start, end)
        start = end
    while (end := next_batch(reader, start)) is not None:
        ranges += planned(reader, start, end)
        start = end
    assert [each[2:] for each in ranges] == [(0, 5), (5, 9)]


def test_places_in_an_old_topic_mean_nothing_in_a_new_one_that_grows_to_them(
    readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    broker.create_topic("shrinks", 2)
    send(broker, "shrinks", 5, partition=1)
    reader = readers(subscribe="shrinks", failOnDataLoss=False, startingOffsets="earliest", minOffsetsPerTrigger=4)
    start = stored(reader.initialOffset())
    first = next_batch(reader, start)
    assert first is not None
    planned(reader, start, first)
    recreate(admin, broker, "shrinks")
    second = next_batch(reader, first)
    assert second is not None
    assert planned(reader, first, second) == []
    admin.create_partitions({"shrinks": NewPartitions(2)})
    send(broker, "shrinks", 7, partition=1)
    third = next_batch(reader, second)
    assert third is not None
    assert planned(reader, second, third) == [("shrinks", 1, 0, 7)]


def test_tasks_of_a_batch_read_nothing_of_a_topic_that_came_after_its_end_was_found(
    readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    broker.create_topic("between")
    send(broker, "between", 8)
    reader = readers(subscribe="between", startingOffsets="earliest", failOnDataLoss=False, maxOffsetsPerTrigger=4)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    before = admin.describe_topics(["between"])["between"].topic_id
    end = next_batch(reader, start)
    assert end is not None
    recreate(admin, broker, "between")
    send(broker, "between", 9)
    (part,) = reader.partitions(start, end)
    assert isinstance(part, RangePartition)
    assert part.topic_id == str(before)
    # The rest of the run takes what there is of the new topic.
    following = next_batch(reader, end)
    assert following is not None
    assert planned(reader, end, following) == [("between", 0, 0, 4)]


@pytest.mark.parametrize("count", [3, 12, 30])
def test_a_topic_created_again_between_two_batches_of_a_run_with_a_fixed_end_is_begun_anew(
    count: int, readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    topic = f"renewed-{count}"
    broker.create_topic(topic)
    send(broker, topic, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 8}
    strict, lenient = [readers(**options, failOnDataLoss=fails) for fails in (True, False)]
    for reader in (strict, lenient):
        start, first = first_batch_with_a_fixed_end(reader)
        assert planned(reader, start, first) == [(topic, 0, 0, 8)]
    recreate(admin, broker, topic)
    send(broker, topic, count)
    second = next_batch(strict, first)
    assert second is not None
    # Also to those who start it again, however much the new topic has grown.
    for reader in (strict, strict, readers(**options)):
        with pytest.raises(DataLossError, match="was deleted and created again while the query was running"):
            reader.partitions(first, second)
    assert planned(readers(**options, failOnDataLoss=False), first, second) == [(topic, 0, 0, min(count, 8))]
    ranges, start = [], first
    while (end := next_batch(lenient, start)) is not None:
        ranges += planned(lenient, start, end)
        start = end
    assert [until - begin for _, _, begin, until in ranges] == [8] * (count // 8) + [count % 8]
    assert (ranges[0][2], ranges[-1][3]) == (0, count)


def test_a_topic_created_again_since_the_end_of_a_batch_was_fixed_is_for_its_tasks_to_tell(
    readers: Readers, broker: EmbeddedBroker, admin: Admin
) -> None:
    broker.create_topic("shorter", 2)
    send(broker, "shorter", 8)
    before = admin.describe_topics(["shorter"])["shorter"].topic_id
    # However long the list of partitions is kept.
    kept = {"partition__metadata__cache__ttl__ms": 3_600_000}
    reader = readers(subscribe="shorter", startingOffsets="earliest", failOnDataLoss=False, **kept)
    start, end = first_batch_with_a_fixed_end(reader)
    recreate(admin, broker, "shorter")
    send(broker, "shorter", 3)
    assert reader.partitions(start, end) == [RangePartition("shorter", 0, 0, 8, str(before))]
    following = next_batch(reader, end)
    assert following is not None
    assert planned(reader, end, following) == [("shorter", 0, 0, 3)]


def test_an_end_before_the_start_is_told(
    readers: Readers, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("backwards")
    send(broker, "backwards", 3)
    start, end = {"backwards": {"0": 8}}, {"backwards": {"0": 3}}
    strict = readers(subscribe="backwards")
    assert next_batch(strict, start) == end
    with pytest.raises(DataLossError, match=r"^\[KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED\] .* 8, but ends at 3"):
        strict.partitions(start, end)
    lenient = readers(subscribe="backwards", failOnDataLoss=False)
    assert planned(lenient, start, end) == []


def test_a_topic_lost_in_a_run_with_a_fixed_end_is_told(
    readers: Readers, broker: EmbeddedBroker, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("fixed-a", "fixed-b"):
        broker.create_topic(topic)
        send(broker, topic, 2)
    strict, lenient = [
        readers(subscribe="fixed-a,fixed-b", startingOffsets="earliest", failOnDataLoss=fails)
        for fails in (True, False)
    ]
    for reader in (strict, lenient):
        start, end = first_batch_with_a_fixed_end(reader)
    admin.delete_topics(["fixed-b"])
    with pytest.raises(
        DataLossError, match=r"^\[KAFKA_DATA_LOSS.PARTITIONS_DELETED\] .* fixed-b-0\. .*: fixed-b-0: 0\."
    ):
        strict.partitions(start, end)
    with caplog.at_level(logging.WARNING):
        # Whoever reads the range of the lost one finds out whether it stays away.
        assert planned(lenient, start, end) == [("fixed-a", 0, 0, 2), ("fixed-b", 0, 0, 2)]
    assert "KAFKA_DATA_LOSS.PARTITIONS_DELETED" in caplog.text
