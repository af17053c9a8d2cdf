"""Our admin and confluent-kafka's see and change the same things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import Admin, BrokerError, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.client.admin import (
    AlterConfig,
    ConfigOp,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from tests.compat.brokers import unique
from tests.compat.confluent_client import ck, ck_admin, result_of
from tests.compat.our_client_peers import Peers
from tests.compat.samples import TIME_MS, TIMEOUT_S, Sample, until


@pytest.fixture
def admin(both_peers: Peers) -> Iterator[Admin]:
    with Admin(bootstrap_servers=both_peers.bootstrap) as client:
        yield client


def test_topics(both_peers: Peers, admin: Admin) -> None:
    theirs = both_peers.confluent
    name = unique("topics")
    admin.create_topics([NewTopic(name, 2, 1, configs={"retention.ms": "123456"})])
    assert sorted(theirs.partitions_of(name, 2)) == [0, 1]
    assert theirs.config_of(name)["retention.ms"].value == "123456"
    result_of(theirs.admin.create_partitions([ck_admin.NewPartitions(name, 3)]))
    until(lambda: len(admin.describe_topics([name])[name].partitions) == 3)
    ours = admin.describe_topics([name])[name]
    described = result_of(theirs.admin.describe_topics(ck.TopicCollection([name])))
    # confluent-kafka writes ids in the other alphabet of base64.
    assert str(ours.topic_id) == str(described.topic_id).translate(str.maketrans("+/", "-_"))
    assert [(each.partition, each.leader and each.leader.node_id) for each in ours.partitions] == [
        (each.id, each.leader.id) for each in described.partitions
    ]
    admin.create_partitions({name: NewPartitions(4)})
    theirs.partitions_of(name, 4)
    with pytest.raises(BrokerError) as failure:
        admin.create_topics([NewTopic(name, 2, 1)])
    assert failure.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    result_of(theirs.admin.delete_topics([name]))
    until(lambda: name not in admin.list_topics())


def test_configs(both_peers: Peers, admin: Admin) -> None:
    theirs, name = both_peers.confluent, both_peers.ours.topic()
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    admin.alter_configs(
        {
            resource: [
                AlterConfig("cleanup.policy", "compact", ConfigOp.APPEND),
                AlterConfig("max.message.bytes", "2000000"),
            ]
        }
    )
    until(lambda: theirs.config_of(name)["max.message.bytes"].value == "2000000")
    described = theirs.config_of(name)
    ours = admin.describe_configs([resource])[resource]
    assert {key: each.value for key, each in ours.items()} == {key: each.value for key, each in described.items()}
    assert {key: int(each.source) for key, each in ours.items()} == {
        key: each.source for key, each in described.items()
    }
    assert ours["cleanup.policy"].value == "delete,compact"


def test_groups_and_offsets(both_peers: Peers, admin: Admin) -> None:
    theirs, group, topic = both_peers.confluent, unique("group"), both_peers.ours.topic()
    partition = TopicPartition(topic, 0)
    theirs.produce(topic, [Sample(b"%d" % number, timestamp_ms=TIME_MS + number) for number in range(10)])
    with theirs.consumer(group) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.05) and consumer.assignment())
        ours = admin.describe_groups([group])[group]
        described = result_of(theirs.admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S))
        assert (str(ours.state).lower(), ours.protocol) == (described.state.name.lower(), described.partition_assignor)
        assert [each.assignment for each in ours.members] == [(partition,)]
        assert [(each.member_id, each.client_id, each.host) for each in ours.members] == [
            (each.member_id, each.client_id, each.host) for each in described.members
        ]
    admin.alter_group_offsets(group, {partition: 4})
    asked = ck.ConsumerGroupTopicPartitions(group)
    (listed,) = result_of(theirs.admin.list_consumer_group_offsets([asked])).topic_partitions
    assert (listed.topic, listed.partition, listed.offset) == (topic, 0, 4)
    moved = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0, 6)])
    result_of(theirs.admin.alter_consumer_group_offsets([moved]))
    assert admin.list_group_offsets(group)[partition].offset == 6
    assert group in {each.group_id for each in admin.list_groups()}
    result_of(theirs.admin.delete_consumer_groups([group]))
    with pytest.raises(BrokerError) as failure:
        admin.delete_groups([group])
    assert failure.value.code == ErrorCode.GROUP_ID_NOT_FOUND

    where = ck.TopicPartition(topic, 0)
    for spec, other, offset in (
        (OffsetSpec.earliest(), ck_admin.OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), ck_admin.OffsetSpec.latest(), 10),
        (OffsetSpec.max_timestamp(), ck_admin.OffsetSpec.max_timestamp(), 9),
        (OffsetSpec.at(TIME_MS + 5), ck_admin.OffsetSpec.for_timestamp(TIME_MS + 5), 5),
    ):
        assert [admin.list_offsets({partition: spec})[partition].offset] == theirs.offsets(other, where) == [offset]
    assert admin.delete_records({partition: 3}) == {partition: 3}
    assert theirs.offsets(ck_admin.OffsetSpec.earliest(), where) == [3]


def test_the_cluster(both_peers: Peers, admin: Admin) -> None:
    ours = admin.describe_cluster()
    described = both_peers.confluent.admin.describe_cluster(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    assert ours.cluster_id == described.cluster_id
    assert ours.controller is not None
    assert ours.controller.node_id == described.controller.id
    assert {(each.node_id, each.host, each.port) for each in ours.nodes} == {
        (each.id, each.host, each.port) for each in described.nodes
    }
