"""confluent-kafka's admin client: topics, partitions, configs, groups, offsets, and the errors it is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.brokers import unique
from tests.compat.confluent_client import Confluent, ck, ck_admin, code_of, polled, result_of, values
from tests.compat.samples import TIME_MS, TIMEOUT_S, Sample, until

Resource, Entry, Op = ck_admin.ConfigResource, ck_admin.ConfigEntry, ck_admin.AlterConfigOpType


@pytest.fixture(scope="module")
def client(node: str) -> Confluent:
    return Confluent(node)


def test_topics_are_created_listed_described_and_deleted(client: Confluent) -> None:
    topic = client.topic(3)
    listed = client.admin.list_topics(timeout=TIMEOUT_S).topics[topic]
    assert listed.error is None
    assert sorted(listed.partitions) == [0, 1, 2]
    described = result_of(client.admin.describe_topics(ck.TopicCollection([topic])))
    assert (described.name, described.is_internal) == (topic, False)
    leaders = {each.leader.id for each in described.partitions}
    assert [(each.id, [n.id for n in each.replicas], [n.id for n in each.isr]) for each in described.partitions] == [
        (number, [*leaders], [*leaders]) for number in range(3)
    ]
    result_of(client.admin.delete_topics([topic], operation_timeout=TIMEOUT_S))
    assert until(lambda: topic not in client.admin.list_topics(timeout=TIMEOUT_S).topics)


def test_a_topic_is_only_validated(client: Confluent) -> None:
    topic = unique("confluent")
    result_of(client.admin.create_topics([ck_admin.NewTopic(topic, 1, 1)], validate_only=True))
    assert topic not in client.admin.list_topics(timeout=TIMEOUT_S).topics


def test_partitions_and_replication_default_to_the_brokers(client: Confluent) -> None:
    topic = unique("confluent")
    result_of(client.admin.create_topics([ck_admin.NewTopic(topic)]))
    assert list(client.partitions_of(topic, 1)) == [0]


def test_partitions_are_placed_by_hand(client: Confluent) -> None:
    topic = unique("confluent")
    (broker,) = client.admin.list_topics(timeout=TIMEOUT_S).brokers
    result_of(client.admin.create_topics([ck_admin.NewTopic(topic, 2, replica_assignment=[[broker], [broker]])]))
    partitions = client.partitions_of(topic, 2)
    assert {number: each.replicas for number, each in partitions.items()} == {0: [broker], 1: [broker]}


def test_partitions_are_added_but_not_taken_away(client: Confluent) -> None:
    topic = client.topic(1)
    result_of(client.admin.create_partitions([ck_admin.NewPartitions(topic, 4)]))
    assert sorted(client.partitions_of(topic, 4)) == [0, 1, 2, 3]
    with pytest.raises(ck.KafkaException) as failure:
        result_of(client.admin.create_partitions([ck_admin.NewPartitions(topic, 2)]))
    assert code_of(failure) == "INVALID_PARTITIONS"
    client.produce(topic, [Sample(b"in the new one")], partition=3)
    assert values(client.consume(topic, 1, partition=3)) == [b"in the new one"]


def _alter(client: Confluent, topic: str, *entries: Any) -> None:
    result_of(
        client.admin.incremental_alter_configs([Resource(Resource.Type.TOPIC, topic, incremental_configs=[*entries])])
    )


def test_configs_are_changed_one_by_one(client: Confluent) -> None:
    topic = client.topic(config={"retention.ms": "1000000"})
    _alter(
        client,
        topic,
        Entry("cleanup.policy", "compact", incremental_operation=Op.APPEND),
        Entry("max.message.bytes", "2000000", incremental_operation=Op.SET),
    )
    until(lambda: client.config_of(topic)["max.message.bytes"].value == "2000000")
    config = client.config_of(topic)
    assert config["cleanup.policy"].value == "delete,compact"
    assert config["retention.ms"].value == "1000000"
    assert config["retention.ms"].source == ck_admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert config["segment.bytes"].source == ck_admin.ConfigSource.DEFAULT_CONFIG.value
    _alter(
        client,
        topic,
        Entry("cleanup.policy", "delete", incremental_operation=Op.SUBTRACT),
        Entry("retention.ms", None, incremental_operation=Op.DELETE),
    )
    until(lambda: client.config_of(topic)["cleanup.policy"].value == "compact")
    assert client.config_of(topic)["retention.ms"].value == "604800000"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_configs_are_replaced_whole(client: Confluent) -> None:
    topic = client.topic(config={"retention.ms": "1000000"})
    result_of(client.admin.alter_configs([Resource(Resource.Type.TOPIC, topic, set_config={"segment.ms": "3600000"})]))
    until(lambda: client.config_of(topic)["segment.ms"].value == "3600000")
    assert client.config_of(topic)["retention.ms"].value == "604800000"


def test_a_brokers_config_names_its_sources_and_synonyms(client: Confluent) -> None:
    (broker,) = client.admin.list_topics(timeout=TIMEOUT_S).brokers
    config = result_of(client.admin.describe_configs([Resource(Resource.Type.BROKER, str(broker))]))
    node_id = config["node.id"]
    assert (node_id.value, node_id.is_read_only) == (str(broker), True)
    assert node_id.source == ck_admin.ConfigSource.STATIC_BROKER_CONFIG.value
    assert config["log.retention.ms"].value is None
    threads = config["num.io.threads"]
    assert (threads.value, threads.is_read_only, threads.is_default) == ("8", False, True)


def test_the_cluster_is_described(client: Confluent) -> None:
    described = client.admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    (only,) = described.nodes
    assert f"{only.host}:{only.port}" == client.bootstrap
    assert described.controller.id == only.id
    assert len(described.cluster_id) == 22
    assert described.cluster_id == client.admin.list_topics(timeout=TIMEOUT_S).cluster_id
    assert ck_admin.AclOperation.CREATE in described.authorized_operations


def test_groups_are_listed_described_and_deleted(client: Confluent) -> None:
    topic, group = client.topic(2), unique("group")
    client.produce(topic, [Sample(b"1")], partition=0)
    with client.consumer(group, {"client.id": "somebody"}) as consumer:
        consumer.subscribe([topic])
        polled(consumer, 1)
        consumer.commit(asynchronous=False)
        listed = client.admin.list_consumer_groups().result(TIMEOUT_S)
        assert not listed.errors
        (found,) = [each for each in listed.valid if each.group_id == group]
        assert found.state is ck.ConsumerGroupState.STABLE
        described = result_of(client.admin.describe_consumer_groups([group]))
        assert described.state is ck.ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        (member,) = described.members
        assert member.client_id == "somebody"
        assert sorted(each.partition for each in member.assignment.topic_partitions) == [0, 1]
        with pytest.raises(ck.KafkaException) as failure:
            result_of(client.admin.delete_consumer_groups([group]))
        assert code_of(failure) == "NON_EMPTY_GROUP"
    described = result_of(client.admin.describe_consumer_groups([group]))
    assert (described.state, described.members) == (ck.ConsumerGroupState.EMPTY, [])
    result_of(client.admin.delete_consumer_groups([group]))
    assert group not in [each.group_id for each in client.admin.list_consumer_groups().result(TIMEOUT_S).valid]


def test_groups_are_listed_by_state(client: Confluent) -> None:
    topic, group = client.topic(), unique("group")
    with client.consumer(group) as consumer:
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, 0)], asynchronous=False)

    def listed(state: Any) -> list[str]:
        return [each.group_id for each in client.admin.list_consumer_groups(states={state}).result(TIMEOUT_S).valid]

    assert group in listed(ck.ConsumerGroupState.EMPTY)
    assert group not in listed(ck.ConsumerGroupState.STABLE)


def test_offsets_of_a_group_are_listed_and_altered(client: Confluent) -> None:
    topic, group = client.topic(2), unique("group")
    client.produce(topic, [Sample(str(number).encode()) for number in range(5)], partition=1)
    with client.consumer(group) as consumer:
        consumer.commit(offsets=[ck.TopicPartition(topic, 1, 4, "a note")], asynchronous=False)

    def listed() -> dict[int, tuple[int, str | None]]:
        request = [ck.ConsumerGroupTopicPartitions(group)]
        found = result_of(client.admin.list_consumer_group_offsets(request)).topic_partitions
        return {each.partition: (each.offset, each.metadata) for each in found if each.topic == topic}

    assert listed() == {1: (4, "a note")}
    altered = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 1, 2)])
    result_of(client.admin.alter_consumer_group_offsets([altered]))
    assert listed()[1][0] == 2
    with client.consumer(group) as consumer:
        consumer.subscribe([topic])
        assert values(polled(consumer, 3)) == [b"2", b"3", b"4"]


def test_records_are_deleted_from_the_front(client: Confluent) -> None:
    topic = client.topic()
    client.produce(topic, [Sample(str(number).encode()) for number in range(5)])
    deleted = result_of(client.admin.delete_records([ck.TopicPartition(topic, 0, 3)]))
    assert deleted.low_watermark == 3
    assert [each.offset() for each in client.consume(topic, 2)] == [3, 4]
    with pytest.raises(ck.KafkaException) as failure:
        result_of(client.admin.delete_records([ck.TopicPartition(topic, 0, 9)]))
    assert code_of(failure) == "OFFSET_OUT_OF_RANGE"
    assert result_of(client.admin.delete_records([ck.TopicPartition(topic, 0, ck.OFFSET_END)])).low_watermark == 5


def test_offsets_are_listed_by_time(client: Confluent) -> None:
    topic = client.topic()
    partition = ck.TopicPartition(topic, 0)
    client.produce(topic, [Sample(b"x", timestamp_ms=TIME_MS + offset) for offset in (0, 10, 5)])
    spec = ck_admin.OffsetSpec
    assert client.offsets(spec.earliest(), partition) == [0]
    assert client.offsets(spec.latest(), partition) == [3]
    assert client.offsets(spec.for_timestamp(TIME_MS + 1), partition) == [1]
    assert client.offsets(spec.for_timestamp(TIME_MS + 11), partition) == [-1]
    youngest = client.admin.list_offsets({partition: spec.max_timestamp()})[partition].result(TIMEOUT_S)
    assert (youngest.offset, youngest.timestamp) == (1, TIME_MS + 10)


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "code"),
    [
        ("sp ace", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("..", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("x" * 250, 1, 1, {}, "TOPIC_EXCEPTION"),
        ("too-many-replicas", 1, 2, {}, "INVALID_REPLICATION_FACTOR"),
        ("no-partitions", 0, 1, {}, "INVALID_PARTITIONS"),
        ("unknown-config", 1, 1, {"no.such.setting": "1"}, "INVALID_CONFIG"),
        ("odd-config", 1, 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        ("bad-policy", 1, 1, {"cleanup.policy": "burn"}, "INVALID_CONFIG"),
    ],
)
def test_a_topic_that_cannot_be(
    client: Confluent, name: str, partitions: int, replicas: int, config: dict[str, str], code: str
) -> None:
    with pytest.raises(ck.KafkaException) as failure:
        result_of(client.admin.create_topics([ck_admin.NewTopic(name, partitions, replicas, config=config)]))
    assert code_of(failure) == code
    assert failure.value.args[0].str()


def test_a_topic_that_is_there_already(client: Confluent) -> None:
    topic = client.topic()
    with pytest.raises(ck.KafkaException) as failure:
        result_of(client.admin.create_topics([ck_admin.NewTopic(topic, 1, 1)]))
    assert code_of(failure) == "TOPIC_ALREADY_EXISTS"
    assert topic in failure.value.args[0].str()


def test_what_is_not_there(client: Confluent) -> None:
    topic, group = unique("nothing"), unique("nobody")
    with pytest.raises(ck.KafkaException) as failure:
        result_of(client.admin.delete_topics([topic]))
    assert code_of(failure) == "UNKNOWN_TOPIC_OR_PART"
    with pytest.raises(ck.KafkaException) as failure:
        client.config_of(topic)
    assert code_of(failure) == "UNKNOWN_TOPIC_OR_PART"
    with pytest.raises(ck.KafkaException) as failure:
        result_of(client.admin.create_partitions([ck_admin.NewPartitions(topic, 2)]))
    assert code_of(failure) == "UNKNOWN_TOPIC_OR_PART"
    with pytest.raises(ck.KafkaException) as failure:
        _alter(client, topic, Entry("retention.ms", "1", incremental_operation=Op.SET))
    assert code_of(failure) == "UNKNOWN_TOPIC_OR_PART"
    with pytest.raises(ck.KafkaException) as failure:
        result_of(client.admin.delete_consumer_groups([group]))
    assert code_of(failure) == "GROUP_ID_NOT_FOUND"


def test_a_config_that_cannot_be_leaves_the_others_alone(client: Confluent) -> None:
    topic = client.topic()
    with pytest.raises(ck.KafkaException) as failure:
        _alter(
            client,
            topic,
            Entry("retention.ms", "5", incremental_operation=Op.SET),
            Entry("segment.bytes", "few", incremental_operation=Op.SET),
        )
    assert code_of(failure) == "INVALID_CONFIG"
    assert client.config_of(topic)["retention.ms"].value == "604800000"
