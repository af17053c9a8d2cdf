"""Progress shown in a consumer group: after every batch, the last one of a run too, and never in the query's way."""

from __future__ import annotations

import logging

import pytest

from barnabas import Admin, Consumer, TopicPartition
from barnabas.spark.core.positions import Positions
from barnabas.spark.mirror import PAUSE_AFTER_FAILURE_MS, Mirror
from barnabas.testing import EmbeddedBroker
from tests.spark.source.support import NewTopic, Readers, next_batch, planned, send


def test_a_group_shows_every_batch_and_the_last_one_of_a_run(
    readers: Readers, broker: EmbeddedBroker, admin: Admin, new_topic: NewTopic
) -> None:
    topic = new_topic()
    here = TopicPartition(topic, 0)
    send(broker, topic, 5)
    reader = readers(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=3, mirrorToGroup=f"shows-{topic}"
    )
    reader.prepareForTriggerAvailableNow()
    start, shown = reader.initialOffset(), []
    while (end := next_batch(reader, start)) is not None:
        shown.append(admin.list_group_offsets(f"shows-{topic}")[here].offset)
        planned(reader, start, end)
        start = end
    shown.append(admin.list_group_offsets(f"shows-{topic}")[here].offset)
    assert shown == [0, 3, 5]
    send(broker, topic, 1)
    reader.commit({topic: {"0": 6}})
    assert admin.list_group_offsets(f"shows-{topic}")[here].offset == 6


def test_a_group_in_use_is_warned_about_and_the_query_goes_on(
    readers: Readers, broker: EmbeddedBroker, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    send(broker, topic, 5)
    reader = readers(subscribe=topic, startingOffsets="earliest", mirrorToGroup=f"used-{topic}")
    start = reader.initialOffset()
    with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=f"used-{topic}") as consumer:
        while not consumer.assignment():
            consumer.poll(0.1)
        with caplog.at_level(logging.WARNING):
            end = next_batch(reader, start)
    assert end is not None
    assert f"group 'used-{topic}'" in caplog.text
    assert "UNKNOWN_MEMBER_ID" in caplog.text
    assert planned(reader, start, end) == [(topic, 0, 0, 5)]


def test_only_what_changed_is_committed_and_a_failure_gives_the_group_a_rest(caplog: pytest.LogCaptureFixture) -> None:
    committed: list[Positions] = []
    now_ms, is_broken = 0.0, False

    def commit(group_id: str, positions: Positions) -> None:
        committed.append(positions)
        if is_broken:
            raise OSError("no route")

    mirror = Mirror("g", commit, now_ms=lambda: now_ms)
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    mirror.show({a: 1, b: 1})
    mirror.show({a: 1, b: 1})
    mirror.show({a: 1, b: 2})
    assert committed == [{a: 1, b: 1}, {b: 2}]
    is_broken = True
    mirror.show({a: 5, b: 2})
    mirror.show({a: 6, b: 2})
    now_ms = PAUSE_AFTER_FAILURE_MS
    mirror.show({a: 7, b: 2})
    assert committed[2:] == [{a: 5}, {a: 7}]
    assert caplog.text.count("no route") == 1
    is_broken, now_ms = False, 2 * PAUSE_AFTER_FAILURE_MS
    mirror.show({a: 7, b: 2})
    mirror.show({a: 7, b: 2})
    assert committed[4:] == [{a: 7}]
