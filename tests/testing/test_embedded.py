"""The embedded broker: with and without an event loop, in memory and on disk, several at once, with faults."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.records import BatchBuilder, iter_records
from barnabas.testing import AsyncEmbeddedBroker, EmbeddedBroker
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.wire import ApiKey
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.virtual_time import clock, on_virtual_time

TIMEOUT_S = 20.0


async def asked(bootstrap: str, request: Any, version: int) -> Any:
    client = await ScriptedClient.connect(bootstrap, timeout_s=TIMEOUT_S)
    try:
        return await client.ask(request, version)
    finally:
        await client.close()


def ask(bootstrap: str, request: Any, version: int) -> Any:
    return asyncio.run(asked(bootstrap, request, version))


def partitions_of(bootstrap: str, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return len(ask(bootstrap, request, 12).topics[0].partitions)


def produce_request(topic: str, value: bytes) -> ProduceRequest:
    builder = BatchBuilder(10_000)
    builder.append(value, None, timestamp_ms=1_700_000_000_000)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=builder.build())])
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])


def produce(bootstrap: str, topic: str, value: bytes) -> Any:
    return ask(bootstrap, produce_request(topic, value), 11).responses[0].partition_responses[0]


def values_in(bootstrap: str, topic: str) -> list[bytes]:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    records = ask(bootstrap, request, 12).responses[0].partitions[0].records
    return [record.value or b"" for record in iter_records(bytes(records or b""))]


def test_from_code_without_an_event_loop() -> None:
    others = threading.enumerate()
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", partitions=3)
        assert partitions_of(broker.bootstrap_servers, "orders") == 3
        assert produce(broker.bootstrap_servers, "orders", b"hello").base_offset == 0
        assert values_in(broker.bootstrap_servers, "orders") == [b"hello"]
    assert not broker.is_running
    left = [thread.name for thread in threading.enumerate() if thread not in others]
    assert "embedded-broker" not in left
    with pytest.raises(OSError, match=r"."):
        partitions_of(broker.bootstrap_servers, "orders")


def test_on_the_running_loop() -> None:
    async def story() -> None:
        async with AsyncEmbeddedBroker() as broker:
            await broker.create_topic("orders")
            answer = await asked(broker.bootstrap_servers, produce_request("orders", b"x"), 11)
            assert answer.responses[0].partition_responses[0].error_code == 0
        async with EmbeddedBroker() as other:
            await other.create_topic("orders")
            await other.restart()
            assert other.is_running

    asyncio.run(story())


def test_several_at_once_know_nothing_of_each_other() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        one.create_topic("mine")
        assert partitions_of(one.bootstrap_servers, "mine") == 1
        assert partitions_of(other.bootstrap_servers, "mine") == 0


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_restart_keeps_port_and_data(tmp_path: Path, on_disk: bool) -> None:
    with EmbeddedBroker(tmp_path / "data" if on_disk else None) as broker:
        broker.create_topic("orders")
        before = broker.bootstrap_servers
        produce(before, "orders", b"kept")
        broker.restart()
        assert broker.bootstrap_servers == before
        assert values_in(before, "orders") == [b"kept"]
    if on_disk:
        with EmbeddedBroker(tmp_path / "data") as again:
            assert values_in(again.bootstrap_servers, "orders") == [b"kept"]


def test_topic_settings_by_both_kinds_of_names() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", config={"max.message.bytes": 5000}, retention_ms=1000, preallocate=False)
        wanted = DescribeConfigsResource(resource_type=2, resource_name="orders", configuration_keys=None)
        found = ask(broker.bootstrap_servers, DescribeConfigsRequest(resources=[wanted]), 4).results[0].configs
        values = {each.name: each.value for each in found}
        assert (values["max.message.bytes"], values["retention.ms"]) == ("5000", "1000")


def test_broker_settings_by_both_kinds_of_names() -> None:
    with EmbeddedBroker(overrides={"num.partitions": 2}, auto_create_topics_enable=False) as broker:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
        answer = ask(broker.bootstrap_servers, request, 12).topics[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_keeps_it_from_starting_is_raised_where_it_was_started() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = EmbeddedBroker(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(BarnabasError, match="in use"):
            broker.start()
        assert not broker.is_running
    broker.start()
    broker.stop()
    broker.stop()


def test_bad_arguments_are_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="host:port is expected"):
        EmbeddedBroker(listen="9092")
    with pytest.raises(BarnabasError, match="num_partition"):
        EmbeddedBroker(num_partition=1).start()
    with pytest.raises(BarnabasError, match="not running"):
        EmbeddedBroker().create_topic("early")
    with pytest.raises(BarnabasError, match="not started"):
        _ = EmbeddedBroker().bootstrap_servers


def test_a_topic_that_cannot_be_made_says_why() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            broker.create_topic("orders")
        with pytest.raises(BrokerError, match="orders!"):
            broker.create_topic("orders!")


def test_an_error_names_the_topic_once() -> None:
    with EmbeddedBroker() as broker:
        with pytest.raises(BrokerError) as refused:
            broker.create_topic("orders", partitions=0)
        assert str(refused.value).count("orders") == 1
        with pytest.raises(BrokerError) as refused:
            broker.create_topic("orders", config={"retention.ms": "soon"})
        assert str(refused.value).count("orders") == 1


def test_it_shows_its_address_and_whether_it_runs() -> None:
    broker = EmbeddedBroker()
    assert repr(broker) == "<EmbeddedBroker, not running>"
    with broker:
        address = broker.bootstrap_servers
        assert repr(broker) == f"<EmbeddedBroker {address}, running>"
    assert repr(broker) == f"<EmbeddedBroker {address}, not running>"
    assert repr(AsyncEmbeddedBroker(listen="127.0.0.1:9")) == "<AsyncEmbeddedBroker 127.0.0.1:9, not running>"


def test_planned_errors_strike_as_often_as_told() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        assert broker.faults.pending == 2
        codes = [produce(broker.bootstrap_servers, "orders", b"x").error_code for _ in range(3)]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
        assert broker.faults.pending == 0
        assert broker.faults.seen[ApiKey.PRODUCE] == 3
        assert values_in(broker.bootstrap_servers, "orders") == [b"x"]


def test_planned_closing_does_not_carry_the_request_out() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        broker.faults.fail_next(ApiKey.PRODUCE, close=True)
        with pytest.raises(ConnectionError):
            produce(broker.bootstrap_servers, "orders", b"x")
        assert values_in(broker.bootstrap_servers, "orders") == []


def test_planned_delays_come_before_the_answer() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with AsyncEmbeddedBroker() as broker:
            await broker.create_topic("orders")
            broker.faults.fail_next(ApiKey.PRODUCE, delay_ms=300)
            begin_s = loop.time()
            answer = await asked(broker.bootstrap_servers, produce_request("orders", b"x"), 11)
            assert loop.time() - begin_s >= 0.3
            assert answer.responses[0].partition_responses[0].error_code == 0

    asyncio.run(story())


def test_planned_faults_can_be_taken_back_and_must_make_sense() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        broker.faults.fail_next(ApiKey.PRODUCE, close=True)
        broker.faults.clear()
        assert produce(broker.bootstrap_servers, "orders", b"x").error_code == 0
        with pytest.raises(ValueError, match="say what is to happen"):
            broker.faults.fail_next(ApiKey.PRODUCE)
        with pytest.raises(ValueError, match="not both"):
            broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.UNKNOWN_SERVER_ERROR, close=True)
        with pytest.raises(ValueError, match="at least 1"):
            broker.faults.fail_next(ApiKey.PRODUCE, close=True, times=0)


# Virtual time


@on_virtual_time
async def test_on_a_loop_with_virtual_time_it_lives_on_that_time() -> None:
    began = clock().now_ms()
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("orders", partitions=3)
        broker.faults.fail_next(ApiKey.METADATA, delay_ms=3_600_000)
        client = await ScriptedClient.connect(broker.bootstrap_servers, timeout_s=7200)
        answer = await client.ask(MetadataRequest(topics=None))
        await client.close()
        assert [(each.name, len(each.partitions)) for each in answer.topics] == [("orders", 3)]
        await broker.restart()
        assert 3_600_000 <= clock().now_ms() - began < 3_700_000


# Failures of the node itself


def break_metadata_log(broker: AsyncEmbeddedBroker) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "the disk is broken")

    broker.node.quorum.log.begin_sync = fail  # type: ignore[method-assign]


def test_what_made_the_node_fail_is_raised_where_it_is_asked_for_something() -> None:
    async def story() -> None:
        broker = AsyncEmbeddedBroker()
        await broker.start()
        break_metadata_log(broker)
        with pytest.raises(BarnabasError, match="the disk is broken") as raised:
            await broker.create_topic("orders")
        assert not isinstance(raised.value, BrokerError)
        with pytest.raises(BarnabasError, match="the disk is broken"):
            await broker.stop()
        assert not broker.is_running
        await broker.stop()
        await broker.start()
        await broker.create_topic("payments")
        await broker.stop()

    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))
