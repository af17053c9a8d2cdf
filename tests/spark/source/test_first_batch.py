"""Where a query begins is on record with its first batch: asked again after a crash, it would be another place."""

from __future__ import annotations

import pytest

from barnabas.spark.core.errors import SparkConnectorError
from barnabas.spark.core.positions import SparkOffset
from barnabas.testing import EmbeddedBroker
from tests.spark.source.support import NewTopic, Readers, next_batch, planned, send, stored


@pytest.mark.parametrize("starting", ["latest", "earliest", "time"])
def test_a_driver_that_dies_in_its_first_batch_reads_it_again_from_the_same_place(
    starting: str, readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(broker, topic, 5)
    how: dict[str, object] = {"startingOffsets": starting}
    if starting == "time":
        how = {"startingTimestamp": 4_000_000_000_000, "startingOffsetsByTimestampStrategy": "latest"}
    first = readers(subscribe=topic, **how)
    initial = first.initialOffset()
    send(broker, topic, 3)
    end = next_batch(first, initial)
    assert end is not None
    expected = planned(first, initial, end)
    assert expected == [(topic, 0, 0 if starting == "earliest" else 5, 8)]

    send(broker, topic, 4)
    after = readers(subscribe=topic, **how)
    assert planned(after, stored(after.initialOffset()), end) == expected
    # The next batch goes on behind it, and says nothing of the start any more.
    following = next_batch(after, end)
    assert following == {topic: {"0": 12}}
    assert planned(after, end, following) == [(topic, 0, 8, 12)]


def test_an_empty_first_batch_is_on_record_too(readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic) -> None:
    topic = new_topic()
    send(broker, topic, 5)
    first = readers(subscribe=topic)
    initial = first.initialOffset()
    assert next_batch(first, initial) is None  # Spark runs a first batch all the same: from here to here.

    send(broker, topic, 3)
    after = readers(subscribe=topic)
    assert planned(after, after.initialOffset(), stored(initial)) == []
    end = next_batch(after, stored(initial))
    assert end is not None
    assert planned(after, stored(initial), end) == [(topic, 0, 5, 8)]


def test_options_that_were_changed_meanwhile_do_not_change_the_first_batch(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(broker, topic, 9)
    first = readers(subscribe=topic, startingOffsets={topic: {"0": 2}})
    initial = first.initialOffset()
    end = next_batch(first, initial)
    assert end is not None
    assert planned(first, initial, end) == [(topic, 0, 2, 9)]
    for start in ({topic: {"0": 5}}, "latest"):
        after = readers(subscribe=topic, startingOffsets=start)
        assert planned(after, stored(after.initialOffset()), end) == [(topic, 0, 2, 9)]


def test_a_query_that_begins_without_a_topic_reads_what_appears_from_its_beginning(
    readers: Readers, broker: EmbeddedBroker
) -> None:
    first = readers(subscribePattern="^appears-.*")
    initial = first.initialOffset()
    # The topic comes between the two questions: not a part of the start, so all of it is new.
    broker.create_topic("appears-1")
    send(broker, "appears-1", 2)
    end = next_batch(first, initial)
    assert end is not None
    after = readers(subscribePattern="^appears-.*")
    assert planned(after, after.initialOffset(), end) == [("appears-1", 0, 0, 2)]


@pytest.mark.parametrize(
    ("starting", "is_refused"),
    [("latest", True), ("earliest", False), ('{"%s": {"0": 2}}', False), ('{"%s": {"0": -1}}', True)],
)
def test_a_first_batch_of_the_jvm_connector_is_finished_only_where_its_start_is_certain(
    starting: str, is_refused: bool, readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(broker, topic, 6)
    reader = readers(subscribe=topic, startingOffsets=starting.replace("%s", topic))
    end: SparkOffset = {topic: {"0": 6}}
    start = reader.initialOffset()
    if is_refused:
        with pytest.raises(SparkConnectorError, match="sources/0/0"):
            reader.partitions(start, end)
    else:
        assert planned(reader, start, end) == [(topic, 0, 0 if starting == "earliest" else 2, 6)]


def test_a_checkpoint_of_the_jvm_connector_goes_on(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    send(broker, topic, 6)
    start: SparkOffset = {topic: {"1": 0, "0": 4}}
    reader = readers(subscribe=topic)
    end = next_batch(reader, start)
    assert end == {topic: {"0": 6, "1": 0}}
    assert planned(reader, start, end) == [(topic, 0, 4, 6)]
    assert reader.reportLatestOffset() == {topic: {"0": 6, "1": 0}}
