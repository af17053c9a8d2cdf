"""aiokafka's admin client, which hands on the broker's answers as they are: older versions of many requests."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from tests.compat.aiokafka_client import AioKafka, ak, ak_admin, ak_errors, eventually, on_a_loop, received, values
from tests.compat.brokers import unique
from tests.compat.samples import Sample

Resource, Kind = ak_admin.config_resource.ConfigResource, ak_admin.config_resource.ConfigResourceType


@pytest.fixture
def client(node: str) -> AioKafka:
    return AioKafka(node)


@on_a_loop
async def test_topics_are_created_listed_described_and_deleted(client: AioKafka) -> None:
    topic = await client.topic(3)
    async with client.admin() as admin:
        assert topic in await admin.list_topics()
        (described,) = await admin.describe_topics([topic])
        assert (described["error_code"], described["topic"], described["is_internal"]) == (0, topic, False)
        partitions = sorted(described["partitions"], key=lambda each: int(each["partition"]))
        assert [(each["partition"], each["replicas"], each["isr"]) for each in partitions] == [
            (number, [each["leader"]], [each["leader"]]) for number, each in enumerate(partitions)
        ]
        answer = await admin.delete_topics([topic])
        assert [tuple(each) for each in answer.topic_error_codes] == [(topic, 0)]
        while topic in await admin.list_topics():
            pass


@on_a_loop
async def test_partitions_are_added(client: AioKafka) -> None:
    topic = await client.topic(1)
    async with client.admin() as admin:
        await admin.create_partitions({topic: ak_admin.NewPartitions(3)})
        while len((await admin.describe_topics([topic]))[0]["partitions"]) != 3:
            pass
        with pytest.raises(ak_errors.InvalidPartitionsError):
            await admin.create_partitions({topic: ak_admin.NewPartitions(2)})


async def _config(admin: Any, topic: str) -> dict[str, str]:
    ((answer),) = await admin.describe_configs([Resource(Kind.TOPIC, topic)])
    ((code, _message, _kind, _name, entries, *_),) = answer.resources
    assert code == 0
    return {entry[0]: entry[1] for entry in entries}


@on_a_loop
async def test_configs_are_replaced_whole(client: AioKafka) -> None:
    topic = await client.topic(config={"retention.ms": "1000000"})
    async with client.admin() as admin:
        assert (await _config(admin, topic))["retention.ms"] == "1000000"
        await admin.alter_configs([Resource(Kind.TOPIC, topic, {"segment.ms": "3600000"})])
        while (await _config(admin, topic))["segment.ms"] != "3600000":
            pass
        assert (await _config(admin, topic))["retention.ms"] == "604800000"


@on_a_loop
async def test_the_cluster_is_described(client: AioKafka) -> None:
    async with client.admin() as admin:
        cluster = await admin.describe_cluster()
    (broker,) = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == client.bootstrap
    assert (cluster["controller_id"], len(cluster["cluster_id"])) == (broker["node_id"], 22)


@on_a_loop
async def test_groups_are_listed_and_described_and_their_offsets_too(client: AioKafka) -> None:
    topic, group = await client.topic(2), unique("group")
    await client.produce(topic, [Sample(b"1")], partition=0)
    async with client.admin() as admin, client.consumer(topic, group=group, client_id="somebody") as consumer:
        await received(consumer, 1)
        await eventually(lambda: len(consumer.assignment()) == 2)
        await consumer.commit({ak.TopicPartition(topic, 0): (1, "a note")})
        assert (group, "consumer") in [tuple(each[:2]) for each in await admin.list_consumer_groups()]
        (answer,) = await admin.describe_consumer_groups([group])
        (described,) = answer.groups
        assert tuple(described[:4]) == (0, group, "Stable", "consumer")
        (member,) = described[5]
        assert member[1 if len(member) == 5 else 2] == "somebody"
        offsets = await admin.list_consumer_group_offsets(group)
        found = offsets[ak.TopicPartition(topic, 0)]
        assert (found.offset, found.metadata) == (1, "a note")
        assert await admin.find_coordinator(group) == (await admin.describe_cluster())["brokers"][0]["node_id"]


@on_a_loop
async def test_records_are_deleted_from_the_front(client: AioKafka) -> None:
    topic = await client.topic()
    await client.produce(topic, [Sample(b"%d" % number) for number in range(5)])
    partition = ak.TopicPartition(topic, 0)
    async with client.admin() as admin:
        assert await admin.delete_records({partition: ak_admin.RecordsToDelete(3)}) == {partition: 3}
    assert values(await client.consume(topic, 2)) == [b"3", b"4"]


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "code"),
    [
        ("sp ace", 1, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("too-many-replicas", 1, 2, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("no-partitions", 0, 1, {}, ErrorCode.INVALID_PARTITIONS),
        ("unknown-config", 1, 1, {"no.such.setting": "1"}, ErrorCode.INVALID_CONFIG),
    ],
)
@on_a_loop
async def test_a_topic_that_cannot_be(
    client: AioKafka, name: str, partitions: int, replicas: int, config: dict[str, str], code: ErrorCode
) -> None:
    async with client.admin() as admin:
        new = ak_admin.NewTopic(name, partitions, replicas, topic_configs=config)
        answer = await admin.create_topics([new])
        assert [each[1] for each in answer.topic_errors] == [code]


@on_a_loop
async def test_what_is_there_already_or_not_at_all(client: AioKafka) -> None:
    topic, missing = await client.topic(), unique("nothing")
    async with client.admin() as admin:
        answer = await admin.create_topics([ak_admin.NewTopic(topic, 1, 1)])
        assert [each[1] for each in answer.topic_errors] == [ErrorCode.TOPIC_ALREADY_EXISTS]
        answer = await admin.delete_topics([missing])
        assert [each[1] for each in answer.topic_error_codes] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        (described,) = await admin.describe_topics([missing])
        assert described["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
