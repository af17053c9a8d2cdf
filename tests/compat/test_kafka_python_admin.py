"""kafka-python's admin client: topics, partitions, configs, groups, offsets, and the errors it is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.brokers import unique
from tests.compat.kafka_python_client import KafkaPython, kp, kp_admin, kp_errors, polled, values
from tests.compat.samples import TIME_MS, Sample, until

Resource, Kind, Op, Spec = (
    kp_admin.ConfigResource,
    kp_admin.ConfigResourceType,
    kp_admin.AlterConfigOp,
    kp_admin.OffsetSpec,
)


@pytest.fixture(scope="module")
def client(node: str) -> Iterator[KafkaPython]:
    client = KafkaPython(node)
    yield client
    client.close()


def numbered(count: int) -> list[Sample]:
    return [Sample(str(number).encode()) for number in range(count)]


def test_topics_are_created_listed_described_and_deleted(client: KafkaPython) -> None:
    topic = client.topic(3)
    assert topic in client.admin.list_topics()
    (described,) = client.admin.describe_topics([topic])
    assert (described["name"], described["error_code"], described["is_internal"]) == (topic, 0, False)
    assert described["topic_id"]
    partitions = sorted(described["partitions"], key=lambda each: each["partition_index"])
    assert [(each["partition_index"], each["replica_nodes"], each["isr_nodes"]) for each in partitions] == [
        (number, [each["leader_id"]], [each["leader_id"]]) for number, each in enumerate(partitions)
    ]
    client.admin.delete_topics([topic])
    assert until(lambda: topic not in client.admin.list_topics())


def test_topics_are_described_page_by_page(client: KafkaPython) -> None:
    topics = sorted(client.topic(3) for _ in range(2))
    seen: list[tuple[str, int]] = []
    cursor: Any = None
    while True:
        page = client.admin.describe_topic_partitions(topics, response_partition_limit=2, cursor=cursor)
        seen += [(each["name"], part["partition_index"]) for each in page["topics"] for part in each["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [(topic, number) for topic in topics for number in range(3)]


def test_partitions_are_added(client: KafkaPython) -> None:
    topic = client.topic(1)
    client.admin.create_partitions({topic: kp_admin.NewPartitions(3)})
    until(lambda: len(client.admin.describe_topics([topic])[0]["partitions"]) == 3)
    with pytest.raises(kp_errors.InvalidPartitionsError):
        client.admin.create_partitions({topic: kp_admin.NewPartitions(3)})


@pytest.mark.parametrize("incremental", [True, False])
def test_configs_are_changed_and_reset(client: KafkaPython, incremental: bool) -> None:
    topic = client.topic(config={"retention.ms": "1000000"})
    resource = Resource(Kind.TOPIC, topic, configs={"segment.ms": "3600000"})
    assert client.admin.alter_configs([resource], incremental=incremental) == {"topic": {topic: "OK"}}
    until(lambda: client.config_of(topic)["segment.ms"]["value"] == "3600000")
    config = client.config_of(topic)
    assert (config["retention.ms"]["value"], config["retention.ms"]["config_source"]) == (
        "1000000",
        "DYNAMIC_TOPIC_CONFIG",
    )
    resource = Resource(Kind.TOPIC, topic, configs={"retention.ms": None})
    client.admin.reset_configs([resource], incremental=incremental)
    until(lambda: client.config_of(topic)["retention.ms"]["value"] == "604800000")
    assert client.config_of(topic)["segment.ms"]["value"] == "3600000"


def test_lists_in_configs_are_appended_to(client: KafkaPython) -> None:
    topic = client.topic()
    client.admin.alter_configs([Resource(Kind.TOPIC, topic, configs={"cleanup.policy": (Op.APPEND, "compact")})])
    until(lambda: client.config_of(topic)["cleanup.policy"]["value"] == "delete,compact")
    client.admin.alter_configs([Resource(Kind.TOPIC, topic, configs={"cleanup.policy": (Op.SUBTRACT, "delete")})])
    until(lambda: client.config_of(topic)["cleanup.policy"]["value"] == "compact")


def test_configs_are_described_with_synonyms(client: KafkaPython) -> None:
    topic = client.topic(config={"retention.ms": "1000000"})
    found = client.admin.describe_configs([Resource(Kind.TOPIC, topic)], include_synonyms=True, config_filter="all")[
        "topic"
    ][topic]
    synonyms = [(each["name"], each["value"]) for each in found["retention.ms"]["synonyms"]]
    assert synonyms == [("retention.ms", "1000000")]
    assert [each["name"] for each in found["segment.bytes"]["synonyms"]] == ["log.segment.bytes"]


def test_the_cluster_its_quorum_and_its_directories(client: KafkaPython) -> None:
    cluster = client.admin.describe_cluster()
    (broker,) = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == client.bootstrap
    assert (cluster["controller_id"], len(cluster["cluster_id"])) == (broker["broker_id"], 22)
    (quorum,) = client.admin.describe_metadata_quorum()["topics"][0]["partitions"]
    assert quorum["leader_id"] == broker["broker_id"]
    assert [each["replica_id"] for each in quorum["current_voters"]] == [broker["broker_id"]]
    topic = client.topic(2)
    client.produce(topic, [Sample(b"x" * 1000)], partition=1)
    (directory,) = client.admin.describe_log_dirs()[0]["log_dirs"]
    assert directory["error_code"] == 0
    sizes = {
        each["partition_index"]: each["partition_size"]
        for found in directory["topics"]
        if found["name"] == topic
        for each in found["partitions"]
    }
    assert sizes[0] == 0
    assert sizes[1] > 1000


def test_groups_are_listed_described_and_deleted(client: KafkaPython) -> None:
    topic, group = client.topic(2), unique("group")
    client.produce(topic, numbered(1), partition=0)
    with client.consumer(topic, group=group, client_id="somebody") as consumer:
        polled(consumer, 1)
        consumer.commit()
        (listed,) = [each for each in client.admin.list_groups() if each["group_id"] == group]
        assert (listed["protocol_type"], listed["group_state"]) == ("consumer", "Stable")
        described = client.admin.describe_groups([group])[group]
        assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
        (member,) = described["members"]
        assert (member["client_id"], member["client_host"]) == ("somebody", "/127.0.0.1")
        (assigned,) = member["member_assignment"]["assigned_partitions"]
        assert (assigned["topic"], assigned["partitions"]) == (topic, [0, 1])
        assert client.admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
        deleted = client.admin.delete_group_offsets(group, [kp.TopicPartition(topic, 0)])
        assert deleted == {kp.TopicPartition(topic, 0): kp_errors.GroupSubscribedToTopicError}
    assert client.admin.describe_groups([group])[group]["group_state"] == "Empty"
    assert client.admin.delete_groups([group]) == {group: "OK"}
    assert client.admin.delete_groups([group]) == {group: "GroupIdNotFoundError"}
    assert group not in [each["group_id"] for each in client.admin.list_groups()]


def test_a_group_that_never_was(client: KafkaPython) -> None:
    group = unique("nobody")
    described = client.admin.describe_groups([group])[group]
    assert described["group_state"] == "Dead"
    assert client.admin.list_group_offsets(group) == {group: {}}


def test_offsets_of_a_group_are_listed_altered_reset_and_deleted(client: KafkaPython) -> None:
    topic, group = client.topic(2), unique("group")
    client.produce(topic, numbered(5), partition=1)
    first, second = kp.TopicPartition(topic, 0), kp.TopicPartition(topic, 1)
    with client.consumer(group=group) as consumer:
        consumer.assign([second])
        consumer.commit({second: kp.OffsetAndMetadata(4, "a note", -1)})
    assert client.admin.list_group_offsets(group) == {group: {second: kp.OffsetAndMetadata(4, "a note", -1)}}
    assert client.admin.list_group_offsets({group: [first]}) == {group: {first: kp.OffsetAndMetadata(-1, "", -1)}}
    altered = client.admin.alter_group_offsets(group, {first: kp.OffsetAndMetadata(0, "", -1)})
    assert altered == {first: kp_errors.NoError}
    client.admin.reset_group_offsets(group, {second: Spec.EARLIEST})
    found = client.admin.list_group_offsets(group)[group]
    assert {each: found[each].offset for each in (first, second)} == {first: 0, second: 0}
    assert client.admin.delete_group_offsets(group, [first]) == {first: kp_errors.NoError}
    assert list(client.admin.list_group_offsets(group)[group]) == [second]


def test_a_member_is_removed_by_its_name(client: KafkaPython) -> None:
    topic, group = client.topic(), unique("group")
    client.produce(topic, numbered(1))
    with client.consumer(topic, group=group, group_instance_id="static", session_timeout_ms=30_000) as consumer:
        polled(consumer, 1)
    assert len(client.admin.describe_groups([group])[group]["members"]) == 1
    gone = kp_admin.MemberToRemove(group_instance_id="static")
    assert set(client.admin.remove_group_members(group, [gone]).values()) == {kp_errors.NoError}
    until(lambda: client.admin.describe_groups([group])[group]["group_state"] == "Empty")
    assert set(client.admin.remove_group_members(group, [gone]).values()) == {kp_errors.UnknownMemberIdError}


def test_records_are_deleted_from_the_front(client: KafkaPython) -> None:
    topic = client.topic()
    client.produce(topic, numbered(5))
    partition = kp.TopicPartition(topic, 0)
    assert client.admin.delete_records({partition: 3})[partition]["low_watermark"] == 3
    assert values(client.consume(topic, 2)) == [b"3", b"4"]
    with pytest.raises(kp_errors.OffsetOutOfRangeError):
        client.admin.delete_records({partition: 6})


def test_offsets_are_listed_by_time(client: KafkaPython) -> None:
    topic = client.topic()
    partition = kp.TopicPartition(topic, 0)
    client.produce(topic, [Sample(b"x", timestamp_ms=TIME_MS + offset) for offset in (0, 10, 5)])

    def asked(spec: Any) -> tuple[int, int]:
        found = client.admin.list_partition_offsets({partition: spec})[partition]
        return found.offset, found.timestamp

    assert asked(Spec.EARLIEST) == (0, -1)
    assert asked(Spec.LATEST) == (3, -1)
    assert asked(Spec.MAX_TIMESTAMP) == (1, TIME_MS + 10)
    assert asked(kp_admin.OffsetTimestamp(TIME_MS + 1)) == (1, TIME_MS + 10)


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "error"),
    [
        ("sp ace", 1, 1, {}, "InvalidTopicError"),
        ("too-many-replicas", 1, 2, {}, "InvalidReplicationFactorError"),
        ("no-partitions", 0, 1, {}, "InvalidPartitionsError"),
        ("unknown-config", 1, 1, {"no.such.setting": "1"}, "InvalidConfigurationError"),
        ("odd-config", 1, 1, {"segment.bytes": "-5"}, "InvalidConfigurationError"),
    ],
)
def test_a_topic_that_cannot_be(
    client: KafkaPython, name: str, partitions: int, replicas: int, config: dict[str, str], error: str
) -> None:
    with pytest.raises(getattr(kp_errors, error)):
        client.admin.create_topics([kp_admin.NewTopic(name, partitions, replicas, topic_configs=config)])


def test_what_is_there_already_or_not_at_all(client: KafkaPython) -> None:
    topic, missing = client.topic(), unique("nothing")
    with pytest.raises(kp_errors.TopicAlreadyExistsError):
        client.admin.create_topics([kp_admin.NewTopic(topic, 1, 1)])
    with pytest.raises(kp_errors.UnknownTopicOrPartitionError):
        client.admin.delete_topics([missing])
    with pytest.raises(kp_errors.UnknownTopicOrPartitionError):
        client.admin.create_partitions({missing: kp_admin.NewPartitions(2)})
    answer = client.admin.alter_configs(
        [Resource(Kind.TOPIC, topic, configs={"retention.ms": "soon"})], raise_on_unknown=False
    )
    assert answer["topic"][topic].startswith("[Error 40] InvalidConfigurationError")


def test_what_is_finalised(client: KafkaPython) -> None:
    features = client.admin.describe_features()
    assert {name: each["finalized"] for name, each in features.items() if "finalized" in each} == {
        "eligible.leader.replicas.version": (1, 1),
        "metadata.version": (25, 25),
        "transaction.version": (2, 2),
    }
