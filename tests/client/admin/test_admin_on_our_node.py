"""The admin against our own node: what it serves, what it does not, and faults on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, SettingsError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import (
    Admin,
    AlterConfig,
    ConfigOp,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    GroupState,
    GroupType,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
)
from barnabas.client.errors import ClientTimeoutError, NoBrokersError
from barnabas.net.errors import UnsupportedRequestError
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.wire import ApiKey
from tests.ports import free_ports

PLACE = TopicPartition("clicks", 0)
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 1}


def run(story: Callable[[AsyncEmbeddedBroker, Admin], Coroutine[Any, Any, Any]], **settings: Any) -> None:
    async def whole() -> None:
        async with (
            AsyncEmbeddedBroker() as broker,
            Admin(bootstrap_servers=broker.bootstrap_servers, **(QUICK | settings)) as admin,
        ):
            await story(broker, admin)

    asyncio.run(whole())


def test_topics_from_birth_to_death() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        made = await admin.create_topics([NewTopic("clicks", 3, configs={"retention.ms": 1000, "preallocate": True})])
        assert (made["clicks"].num_partitions, made["clicks"].replication_factor) == (3, 1)
        assert made["clicks"].configs is not None
        assert made["clicks"].configs["preallocate"].value == "true"
        await admin.create_topics([NewTopic("never")], validate_only=True)
        assert list(await admin.list_topics()) == ["clicks"]
        await admin.create_partitions({"clicks": 4})
        described = (await admin.describe_topics(["clicks"]))["clicks"]
        assert [each.partition for each in described.partitions] == [0, 1, 2, 3]
        (node,) = (await admin.describe_cluster()).nodes
        assert {(each.leader, each.replicas, each.isr) for each in described.partitions} == {(node, (node,), (node,))}
        await admin.delete_topics([described.topic_id])
        assert await admin.list_topics() == {}

    run(story)


def test_settings_of_a_topic() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        topic = ConfigResource(ConfigResourceType.TOPIC, "clicks")
        await broker.create_topic("clicks")
        changes = [AlterConfig("retention.ms", 5000), AlterConfig("cleanup.policy", ["compact"], ConfigOp.APPEND)]
        await admin.alter_configs({topic: changes})
        found = (await admin.describe_configs([topic], names=["retention.ms", "cleanup.policy"]))[topic]
        retention = found["retention.ms"]
        assert set(found) == {"retention.ms", "cleanup.policy"}
        assert (retention.value, retention.type) == ("5000", ConfigType.LONG)
        assert retention.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert found["cleanup.policy"].value == "delete,compact"
        await admin.alter_configs({topic: [AlterConfig("retention.ms", op=ConfigOp.DELETE)]})
        assert (await admin.describe_configs([topic]))[topic]["retention.ms"].is_default
        with pytest.raises(BrokerError) as raised:
            await admin.alter_configs({topic: [AlterConfig("retention.ms", "soon")]})
        assert raised.value.code is ErrorCode.INVALID_CONFIG

    run(story)


def test_groups_and_their_offsets() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        await broker.create_topic("clicks", partitions=2)
        second = TopicPartition("clicks", 1)
        await admin.alter_group_offsets("readers", {PLACE: OffsetAndMetadata(3, "note", 0), second: 4})
        assert await admin.list_group_offsets("readers") == {
            PLACE: OffsetAndMetadata(3, "note", 0),
            second: OffsetAndMetadata(4),
        }
        assert await admin.list_group_offsets({"readers": [second]}) == {"readers": {second: OffsetAndMetadata(4)}}
        (listing,) = await admin.list_groups(states=["empty"], types=["classic"])
        assert (listing.group_id, listing.state, listing.is_simple) == ("readers", GroupState.EMPTY, True)
        described = (await admin.describe_groups(["readers"]))["readers"]
        assert (described.type, described.members, described.is_simple) == (GroupType.CLASSIC, (), True)
        await admin.delete_group_offsets("readers", [second])
        assert list(await admin.list_group_offsets("readers")) == [PLACE]
        await admin.delete_groups(["readers"])
        assert await admin.list_groups() == []

    run(story)


def test_offsets_records_disks_and_quorum() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        await broker.create_topic("clicks")
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.earliest_local()):
            assert (await admin.list_offsets({PLACE: spec}))[PLACE].offset == 0
        assert (await admin.list_offsets({PLACE: OffsetSpec.at(5)}))[PLACE].offset == -1
        assert await admin.delete_records({PLACE: -1}) == {PLACE: 0}
        (log_dir,) = (await admin.describe_log_dirs())[1].values()
        assert log_dir.replicas[PLACE].size_bytes == 0
        assert (await admin.describe_metadata_quorum()).leader_id == 1
        assert "metadata.version" in (await admin.describe_features()).finalized

    run(story)


def test_what_the_node_does_not_offer_is_said() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        with pytest.raises(UnsupportedRequestError, match="it does not offer AlterPartitionReassignments"):
            await admin.alter_partition_reassignments({TopicPartition("t", 0): [1]})
        with pytest.raises(BrokerError, match="SECURITY_DISABLED"):
            await admin.describe_acls()

    run(story)


@pytest.mark.parametrize("fault", [{"close": True}, {"error": ErrorCode.NOT_CONTROLLER}])
def test_a_topic_is_created_in_spite_of_faults(fault: dict[str, Any]) -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        broker.faults.fail_next(ApiKey.CREATE_TOPICS, times=3, **fault)
        assert list(await admin.create_topics([NewTopic("clicks")])) == ["clicks"]
        assert broker.faults.seen[ApiKey.CREATE_TOPICS] == 4

    run(story)


def test_coordinators_that_load_or_moved_are_asked_again() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        await broker.create_topic("clicks")
        broker.faults.fail_next(ApiKey.FIND_COORDINATOR, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
        broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=ErrorCode.NOT_COORDINATOR)
        broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        broker.faults.fail_next(ApiKey.OFFSET_COMMIT, close=True)
        await admin.alter_group_offsets("readers", {PLACE: 3})
        broker.faults.fail_next(ApiKey.OFFSET_FETCH, error=ErrorCode.NOT_COORDINATOR, times=2)
        assert await admin.list_group_offsets("readers") == {PLACE: OffsetAndMetadata(3)}

    run(story)


def test_leaders_that_moved_are_asked_for_again() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        await broker.create_topic("clicks")
        broker.faults.fail_next(ApiKey.LIST_OFFSETS, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        assert (await admin.list_offsets({PLACE: OffsetSpec.latest()}))[PLACE].offset == 0

    run(story)


def test_a_broker_that_is_too_slow_ends_the_call_with_words() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        await admin.list_topics()
        broker.faults.fail_next(ApiKey.DESCRIBE_CLUSTER, delay_ms=1500, times=10)
        with pytest.raises(ClientTimeoutError, match=r"describe_cluster was not done within 1000 ms.*DescribeCluster"):
            await admin.describe_cluster(timeout=1)

    run(story, request_timeout_ms=500, default_api_timeout_ms=5000)


def test_a_restarted_node_is_found_again() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        await admin.create_topics([NewTopic("clicks")])
        await broker.restart()
        assert list(await admin.list_topics()) == ["clicks"]

    run(story)


def test_nobody_at_the_address_is_told_with_the_address() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"

    async def story() -> None:
        async with Admin(bootstrap_servers=address) as admin:
            with pytest.raises(NoBrokersError, match=address):
                await admin.create_topics([NewTopic("a"), NewTopic("b")], timeout=0.3)

    asyncio.run(story())


def test_settings_that_are_wrong_are_refused_at_once() -> None:
    with pytest.raises(SettingsError, match="give brokers or controllers"):
        Admin()
    with pytest.raises(SettingsError, match=r"request\.timeout\.ms"):
        Admin(bootstrap_servers="a:1", request_timeout_ms=-1)


def test_metrics_count_what_was_asked() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        await admin.list_topics()
        assert admin.metrics()["admin-client-metrics"]["request-total"] >= 2
        assert "request_total" in admin.prometheus()

    run(story)


def test_one_name_is_not_taken_for_a_list_of_letters() -> None:
    async def story(broker: AsyncEmbeddedBroker, admin: Admin) -> None:
        await admin.create_topics(["a", "b"])
        for call in (admin.delete_topics, admin.describe_topics, admin.describe_groups, admin.create_topics):
            with pytest.raises(TypeError, match=r"a list is expected, such as \['ab'\]"):
                await call("ab")
        assert list(await admin.list_topics()) == ["a", "b"]

    run(story)
