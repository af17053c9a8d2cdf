"""Topics that come and go, records that nobody can take, data that is broken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition, aio
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, SettingsError
from barnabas.client.admin import NewTopic
from barnabas.client.errors import (
    ClientTimeoutError,
    CorruptRecordsError,
    DeliveryTimeoutError,
    NoOffsetError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownPartitionError,
    WrongUseError,
)
from barnabas.testing import EmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.client.faults.reading import LIMIT_S, values_of
from tests.client.scenes import scene, timed
from tests.virtual_time import on_virtual_time

# Topics


@on_virtual_time
async def test_an_unknown_topic_is_waited_for_and_named() -> None:
    async with scene(auto_create_topics_enable=False) as it:
        async with it.producer(max_block_ms=200) as producer, timed(0.2, 0.25):
            with pytest.raises(ClientTimeoutError, match=r"'nowhere'.*UNKNOWN_TOPIC_OR_PARTITION"):
                await producer.send("nowhere", b"v")
        async with it.consumer(default_api_timeout_ms=200, request_timeout_ms=100) as consumer:
            with pytest.raises(ClientTimeoutError, match="'nowhere'"):
                await consumer.partitions_for("nowhere")


@on_virtual_time
async def test_a_topic_that_comes_after_its_consumer_is_read() -> None:
    async with (
        scene(auto_create_topics_enable=False) as it,
        it.consumer("late", group_id="g", auto_offset_reset="earliest", metadata_max_age_ms=100) as consumer,
    ):
        assert await consumer.poll(0.2) == []
        await it.broker.create_topic("late")
        await it.fill("late", 1)
        assert [record.value for record in await consumer.poll(LIMIT_S)] == [b"0"]


@pytest.mark.parametrize("name", ["with space", "a/b", "x" * 250, "."])
@on_virtual_time
async def test_a_name_that_no_topic_may_have_is_refused_without_waiting(name: str) -> None:
    async with scene() as it, it.producer() as producer, timed(0, 1):
        with pytest.raises(BrokerError) as told:
            await producer.send(name, b"v")
        assert told.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("name", "error"), [("", ValueError), (None, TypeError), (5, TypeError), (b"bytes", TypeError)]
)
def test_what_is_no_name_at_all_is_refused(broker: EmbeddedBroker, name: Any, error: type[Exception]) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer, pytest.raises(error):
        producer.send(name, b"v")


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"partition": 99}, UnknownPartitionError),
        ({"partition": -1}, ValueError),
        ({"partition": "0"}, TypeError),
        ({"timestamp_ms": -5}, ValueError),
        ({"timestamp_ms": "now"}, TypeError),
        ({"headers": [("name", "text")]}, TypeError),
        ({"headers": [(1, b"value")]}, TypeError),
        ({"headers": [("name",)]}, (TypeError, ValueError)),
        ({"headers": 5}, TypeError),
        ({"keys": b"misspelt"}, TypeError),
    ],
    ids=str,
)
def test_arguments_that_cannot_be_meant_are_refused_on_the_first_call_and_on_later_ones(
    broker: EmbeddedBroker, topic: str, keywords: dict[str, Any], error: Any
) -> None:
    """And nothing of such a record is sent, nor does it keep memory."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=50) as producer:
        with pytest.raises(error):
            producer.send(topic, b"v", **keywords)
        producer.send(topic, b"good")
        with pytest.raises(error):
            producer.send(topic, b"v", **keywords)
        producer.flush()
        assert producer._parts.pool.available_bytes == producer._parts.pool.total_bytes
    assert values_of(broker.bootstrap_servers, topic) == [b"good"]


def test_a_partition_that_was_added_meanwhile_is_found(broker: EmbeddedBroker, topic: str) -> None:
    from barnabas.client.admin import NewPartitions

    with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        with pytest.raises(UnknownPartitionError, match=f"{topic}.*0 to 0"):
            producer.send(topic, b"v", partition=1)
        admin.create_partitions({topic: NewPartitions(2)})
        assert producer.send(topic, b"v", partition=1).result(LIMIT_S).partition == 1


def test_rows_of_a_table_find_partitions_that_were_added_meanwhile(broker: EmbeddedBroker, topic: str) -> None:
    pa = pytest.importorskip("pyarrow")

    def rows(*partitions: int) -> Any:
        return pa.table({"value": [b"v"] * len(partitions), "partition": partitions})

    async def by_loop() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await (await producer.send_arrow(topic, rows(0)))
            admin.create_partitions({topic: 3})
            assert [each.partition for each in await (await producer.send_arrow(topic, rows(2, 0)))] == [0, 2]

    with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        with pytest.raises(UnknownPartitionError, match=f"{topic}.*row 1 names partition 1.*0 to 0"):
            producer.send_arrow(topic, rows(0, 1))
        admin.create_partitions({topic: 2})
        with pytest.raises(UnknownPartitionError, match="row 0 names partition 1"):
            producer.send_arrow(topic, rows(1).to_reader())  # half of a stream would be lost
        assert [each.partition for each in producer.send_arrow(topic, rows(1, 0)).result(LIMIT_S)] == [0, 1]
        asyncio.run(by_loop())


def test_a_topic_that_is_deleted_under_a_producer_fails_its_records_in_time() -> None:
    with EmbeddedBroker(auto_create_topics_enable=False) as own:
        own.create_topic("t")
        settings: dict[str, Any] = {
            "request_timeout_ms": 100,
            "delivery_timeout_ms": 400,
            "linger_ms": 0,
            "max_block_ms": 300,
        }
        settings |= {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50}
        with (
            Producer(bootstrap_servers=own.bootstrap_servers, **settings) as producer,
            Admin(bootstrap_servers=own.bootstrap_servers) as admin,
        ):
            producer.send("t", b"0").result(LIMIT_S)
            admin.delete_topics(["t"])
            future = producer.send("t", b"1")
            assert isinstance(future.exception(LIMIT_S), DeliveryTimeoutError | BrokerError)
            with pytest.raises(ClientTimeoutError, match="'t'"):
                producer.send("t", b"2").result(LIMIT_S)
            admin.create_topics([NewTopic("t", 1)])
            assert producer.send("t", b"3").result(LIMIT_S).offset == 0
        assert values_of(own.bootstrap_servers, "t") == [b"3"]


def test_a_topic_that_is_made_anew_under_its_clients_is_used_on() -> None:
    """Another id under the same name: what is sent goes to the new one, and a reader by name reads it from there."""
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0, auto_create_topics_enable=False) as own:
        own.create_topic("t")
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 200, "retry_backoff_ms": 10}
        with (
            Producer(bootstrap_servers=own.bootstrap_servers, retry_backoff_ms=10) as producer,
            Consumer("t", bootstrap_servers=own.bootstrap_servers, group_id="g", **settings) as consumer,
            Admin(bootstrap_servers=own.bootstrap_servers) as admin,
        ):
            for number in range(5):
                producer.send("t", b"old %d" % number).result(LIMIT_S)
            assert consumer.poll(LIMIT_S)
            admin.delete_topics(["t"])
            admin.create_topics([NewTopic("t", 1)])
            for number in range(3):
                producer.send("t", b"new %d" % number).result(LIMIT_S)
            seen: list[bytes] = []
            deadline = time.monotonic() + LIMIT_S
            while b"new 2" not in seen and time.monotonic() < deadline:
                seen += [record.value for record in consumer.poll(0.2)]
            assert seen[-1:] == [b"new 2"]
        assert values_of(own.bootstrap_servers, "t") == [b"new 0", b"new 1", b"new 2"]


# Sizes


def test_a_record_over_the_clients_limit_is_refused_by_send(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=10_000) as producer:
        for _ in range(2):
            with pytest.raises(RecordTooLargeError, match=r"max.request.size"):
                producer.send(topic, bytes(20_000))
            producer.send(topic, b"small").result(LIMIT_S)


def test_a_batch_over_the_brokers_limit_is_split_until_it_fits(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    """Every record gets its own answer, in order; one that fits nowhere fails alone, and says so."""
    topic = make_topic(max_message_bytes=3000)
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=50, batch_size=100_000) as producer:
        values = [b"%03d" % number + bytes(400) for number in range(50)]
        futures = [producer.send(topic, value) for value in values]
        huge = producer.send(topic, bytes(5000))
        futures += [producer.send(topic, value) for value in values]
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(100))
        error = huge.exception(0)
        assert isinstance(error, BrokerError | RecordTooLargeError)
        assert "too large" in str(error).lower() or "MESSAGE_TOO_LARGE" in str(error)
        assert producer._parts.pool.available_bytes == producer._parts.pool.total_bytes
    assert values_of(broker.bootstrap_servers, topic) == values * 2


def sizes_of(producer: Producer) -> dict[str, float]:
    return producer.metrics()["producer-metrics"]


def test_without_a_batch_size_a_burst_leaves_in_large_batches(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=100) as producer:
        values = [b"%06d" % number * 20 for number in range(30_000)]
        futures = [producer.send(topic, value, partition=0) for value in values]
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(30_000))
        assert 16_384 < sizes_of(producer)["batch-size-max"] <= 1_048_576
        assert producer._parts.pool.available_bytes == producer._parts.pool.total_bytes


def test_a_batch_size_that_was_given_is_obeyed(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=16_384) as producer:
        for _ in range(5_000):
            producer.send(topic, bytes(100), partition=0)
        producer.send_arrow(topic, pyarrow.table({"value": [bytes(100)] * 5_000}), partition=0)
        producer.flush()
        assert 15_000 < sizes_of(producer)["batch-size-max"] <= 16_384


@pytest.mark.parametrize("compression_type", ["none", "lz4"])
def test_a_topic_that_takes_little_is_learned(
    broker: EmbeddedBroker, make_topic: Callable[..., str], compression_type: str
) -> None:
    """Large batches are refused, split and sent again, and the partition's are smaller from then on."""
    topic = make_topic(max_message_bytes=50_000)
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "compression_type": compression_type}
    random = Random(1)
    with Producer(**settings) as producer:
        values = [random.randbytes(200) for _ in range(4_000)]
        splits = []
        for number in range(5):
            sent = producer.send_arrow(topic, pyarrow.table({"value": values}), partition=0)
            ranges = sent.result(LIMIT_S)
            assert sum(each.row_count for each in ranges) == len(values)
            assert min(each.base_offset for each in ranges) == number * len(values)
            splits.append(sizes_of(producer)["batch-split-total"])
        assert splits[0] > 0
        assert splits[-1] == splits[-2], "what fits is known"
        assert producer._parts.pool.available_bytes == producer._parts.pool.total_bytes
    assert values_of(broker.bootstrap_servers, topic) == values * 5


# Settings


@pytest.mark.parametrize("kind", [Producer, Consumer, aio.Producer, aio.Consumer])
def test_a_setting_that_does_not_exist_is_refused_with_the_nearest_name(kind: Any) -> None:
    with pytest.raises(SettingsError, match=r"bootstrap_serverz.*bootstrap_servers"):
        kind(bootstrap_serverz="127.0.0.1:9092")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transactional_id": ""}, r"transactional.id"),
        ({"transactional_id": "t", "enable_idempotence": False}, r"transactions need idempotence"),
        ({"acks": 2}, r"acks"),
        ({"acks": 0}, r"idempotence"),
        ({"linger_ms": -1}, r"linger.ms"),
        ({"linger_ms": "soon"}, r"linger.ms"),
        ({"compression_type": "rar"}, r"compression.type"),
        ({"delivery_timeout_ms": 10}, r"delivery.timeout.ms"),
        ({"partitioner_class": "no.such.Thing"}, r"no.such"),
        ({"value_serializer": "no.such.Thing"}, r"no.such"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_with_words(settings: dict[str, Any], words: str) -> None:
    explicit: dict[str, Any] = {"enable_idempotence": True} if settings.get("acks") == 0 else {}
    with pytest.raises(SettingsError, match=words):
        Producer(bootstrap_servers="127.0.0.1:9092", **explicit, **settings)


def test_a_consumer_that_was_told_nothing_says_so(broker: EmbeddedBroker) -> None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        with pytest.raises(WrongUseError, match="subscribe to topics, or assign"):
            consumer.poll(0)
        with pytest.raises(SettingsError, match="group_id"):
            consumer.commit()
        with pytest.raises(TypeError, match="list of topics"):
            consumer.subscribe("clicks")
        with pytest.raises(WrongUseError, match="not assigned"):
            consumer.seek(TopicPartition("clicks", 0), 5)
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll(0, max_records=0)
        consumer.subscribe(["clicks"])
        with pytest.raises(WrongUseError, match="unsubscribe"):
            consumer.assign([TopicPartition("clicks", 0)])


# Positions


def test_no_offset_and_no_reset_is_an_error_that_a_seek_ends(broker: EmbeddedBroker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"v")
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}", auto_offset_reset="none"
    ) as consumer:
        consumer.assign([partition])
        for _ in range(2):
            with pytest.raises(NoOffsetError, match=f"{topic}-0.*seek"):
                consumer.poll(LIMIT_S)
        consumer.seek(partition, 77)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0 at 77"):
                consumer.poll(LIMIT_S)
        consumer.seek(partition, 0)
        assert [record.value for record in consumer.poll(LIMIT_S)] == [b"v"]


def test_out_of_range_with_a_reset_goes_on_there(broker: EmbeddedBroker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"v")
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 77)
        assert [record.value for record in consumer.poll(LIMIT_S)] == [b"v"]


# Broken data


def test_a_damaged_batch_is_named_by_partition_and_offset_and_can_be_passed(tmp_path: Path) -> None:
    """A bit that turned over on the broker's disk. What is before it is handed out first."""
    with EmbeddedBroker(tmp_path) as own:
        own.create_topic("t")
        with Producer(bootstrap_servers=own.bootstrap_servers) as producer:
            for value in (b"one", b"DAMAGED", b"three"):
                producer.send("t", value).result(LIMIT_S)
        own.stop()
        (log,) = tmp_path.glob("t-0/*.log")
        log.write_bytes(log.read_bytes().replace(b"DAMAGED", b"damaged"))
        own.start()
        with Consumer("t", bootstrap_servers=own.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            assert [record.value for record in consumer.poll(LIMIT_S)] == [b"one"]
            for _ in range(2):
                with pytest.raises(CorruptRecordsError, match=r"t-0 at offset 1.*seek past it") as told:
                    consumer.poll(LIMIT_S)
            consumer.seek(told.value.partition, told.value.offset + 1)
            assert [record.value for record in consumer.poll(LIMIT_S)] == [b"three"]


def test_the_asyncio_producer_refuses_the_same(broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=10_000) as producer:
            for _ in range(2):
                with pytest.raises(UnknownPartitionError):
                    await producer.send(topic, b"v", partition=9)
                with pytest.raises(RecordTooLargeError):
                    await producer.send(topic, bytes(20_000))
                with pytest.raises((TypeError, ValueError)):
                    await producer.send(topic, "text")
                await (await producer.send(topic, b"good"))

    asyncio.run(story())
    assert values_of(broker.bootstrap_servers, topic) == [b"good"] * 2
    assert ApiKey.PRODUCE in broker.faults.seen
