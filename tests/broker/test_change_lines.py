"""What a node logs of a change of the metadata: enough to know what happened, and never a flood."""

from __future__ import annotations

import logging

import pytest

from barnabas.base.settings import Password
from barnabas.broker.change_lines import tell_changes
from barnabas.broker.told_names import MOST_LINES
from barnabas.metadata.image import ClusterImage, ConfigResourceType
from barnabas.metadata.replay import ImageBuilder
from barnabas.wire.stored import cluster_metadata as log
from tests.metadata.clusters import uuid

LONG = "x" * 20_000


def topic(name: str, number: int, partitions: int = 1) -> list[log.MetadataRecord]:
    return [log.TopicRecord(name=name, topic_id=uuid(number)), *partitions_of(number, 0, partitions)]


def partitions_of(number: int, first: int, end: int) -> list[log.MetadataRecord]:
    return [
        log.PartitionRecord(
            partition_id=each,
            topic_id=uuid(number),
            replicas=[1, 2],
            isr=[1, 2],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        for each in range(first, end)
    ]


def setting(kind: ConfigResourceType, of: str, name: str, value: str | None) -> log.MetadataRecord:
    return log.ConfigRecord(resource_type=kind, resource_name=of, name=name, value=value)


class Telling:
    """A node that applies records and logs what it makes of them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "barnabas.broker")
        self._caplog = caplog
        self.image = ClusterImage()

    def apply(self, *records: log.MetadataRecord) -> list[str]:
        before, builder = self.image, ImageBuilder(self.image)
        for record in records:
            builder.replay(record)
        self.image = builder.build(before.offset + len(records) or 0, 1)
        self._caplog.clear()
        tell_changes(before, self.image, builder.delta)
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def node(caplog: pytest.LogCaptureFixture) -> Telling:
    """One that knows a topic `old` with two partitions."""
    telling = Telling(caplog)
    assert telling.apply(*topic("old", 1, 2)) == [
        "Loaded the cluster metadata up to offset 2: 1 topic with 2 partitions"
    ]
    return telling


def test_a_topic_is_created_with_its_settings(node: Telling) -> None:
    compact = setting(ConfigResourceType.TOPIC, "new", "cleanup.policy", "compact")
    assert node.apply(*topic("new", 2, 3), compact) == [
        f"Created topic new with topic ID {uuid(2)}: 3 partitions, replication factor 2, "
        "configuration cleanup.policy=compact"
    ]


def test_a_topic_grows(node: Telling) -> None:
    assert node.apply(*partitions_of(1, 2, 5)) == ["Added 3 partitions to topic old, which has 5 now"]


def test_a_topic_is_deleted_and_its_settings_go_unsaid(node: Telling) -> None:
    node.apply(setting(ConfigResourceType.TOPIC, "old", "retention.ms", "5"))
    assert node.apply(log.RemoveTopicRecord(topic_id=uuid(1))) == [
        f"Deleted topic old with topic ID {uuid(1)}: 2 partitions"
    ]


def test_a_topic_that_is_deleted_and_made_again_is_told_in_that_order(node: Telling) -> None:
    lines = node.apply(log.RemoveTopicRecord(topic_id=uuid(1)), *topic("old", 2, 5))
    assert [line.split(" with ")[0] for line in lines] == ["Deleted topic old", "Created topic old"]


def test_settings_are_told_with_what_they_were(node: Telling) -> None:
    told = [
        node.apply(setting(ConfigResourceType.TOPIC, "old", "retention.ms", "5")),
        node.apply(setting(ConfigResourceType.TOPIC, "old", "retention.ms", "6")),
        node.apply(setting(ConfigResourceType.TOPIC, "old", "retention.ms", None)),
        node.apply(setting(ConfigResourceType.TOPIC, "old", "retention.ms", None)),
    ]
    assert told == [
        ["Updated topic old with new configuration: retention.ms -> 5 (was (default))"],
        ["Updated topic old with new configuration: retention.ms -> 6 (was 5)"],
        ["Updated topic old with new configuration: retention.ms -> (default) (was 6)"],
        [],
    ]


@pytest.mark.parametrize(
    ("kind", "of", "who"),
    [
        (ConfigResourceType.BROKER, "1", "broker 1"),
        (ConfigResourceType.BROKER, "", "the default of all brokers"),
        (ConfigResourceType.GROUP, "readers", "group readers"),
        (ConfigResourceType.CLIENT_METRICS, "every", "client metrics subscription every"),
    ],
)
def test_settings_of_others_than_topics(node: Telling, kind: ConfigResourceType, of: str, who: str) -> None:
    lines = node.apply(setting(kind, of, "log.retention.ms", "5"))
    assert lines == [f"Updated {who} with new configuration: log.retention.ms -> 5 (was (default))"]


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.a.ssl.keystore.password", "of.some.plugin"])
def test_secrets_are_not_logged(node: Telling, name: str) -> None:
    node.apply(setting(ConfigResourceType.BROKER, "1", name, "first"))
    lines = node.apply(setting(ConfigResourceType.BROKER, "1", name, "second"))
    assert lines == [f"Updated broker 1 with new configuration: {name} -> {Password.HIDDEN} (was {Password.HIDDEN})"]


def test_five_thousand_topics_are_one_line(node: Telling) -> None:
    many = [record for number in range(5000) for record in topic(f"t{number}", 10 + number, 2)]
    (created,) = node.apply(*many)
    assert created.startswith("Created 5,000 topics with 10,000 partitions: t0, t1, ")
    assert created.endswith("t9 and 4,990 more")
    growing = [record for number in range(5000) for record in partitions_of(10 + number, 2, 3)]
    (grown,) = node.apply(*growing)
    assert grown.startswith("Added 5,000 partitions to 5,000 topics: t0, ")
    (updated,) = node.apply(
        *(setting(ConfigResourceType.TOPIC, f"t{number}", "retention.ms", "5") for number in range(5000))
    )
    assert updated.startswith("Updated 5,000 resources with new configuration: topic t0, ")
    (deleted,) = node.apply(*(log.RemoveTopicRecord(topic_id=uuid(10 + number)) for number in range(5000)))
    assert deleted.startswith("Deleted 5,000 topics with 15,000 partitions: t0, ")


def test_a_few_topics_have_a_line_each(node: Telling) -> None:
    few = [record for number in range(MOST_LINES) for record in topic(f"t{number}", 10 + number)]
    assert len(node.apply(*few)) == MOST_LINES


def test_long_and_strange_text_stays_short_and_on_its_line(node: Telling) -> None:
    changes = [
        setting(ConfigResourceType.GROUP, f"g\n{LONG}", f"n{number}\x1b[2J{LONG}", LONG) for number in range(100)
    ]
    (line,) = node.apply(*changes)
    assert line.isprintable()
    assert len(line) < 20_000
    assert line.endswith("and 80 more")


def test_a_change_of_leaders_is_not_told_here(node: Telling) -> None:
    moved = log.PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=2)
    assert node.apply(moved) == []


def test_the_log_is_read_with_nothing_in_it(caplog: pytest.LogCaptureFixture) -> None:
    assert Telling(caplog).apply(log.NoOpRecord()) == [
        "Loaded the cluster metadata up to offset 0: 0 topics with 0 partitions"
    ]
