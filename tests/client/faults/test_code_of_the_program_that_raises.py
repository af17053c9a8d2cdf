"""Callbacks, serializers, partitioners, interceptors and listeners that raise: where it is told, and what goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from barnabas import Consumer, Producer, TopicPartition, aio
from barnabas.client.errors import SerializationError, WrongUseError
from barnabas.client.plugins import RebalanceListener
from barnabas.testing import EmbeddedBroker
from tests.client.faults.reading import LIMIT_S, values_of


class Boom(Exception):  # noqa: N818
    """What the program's code raises here."""


def fill(broker: EmbeddedBroker, topic: str, *values: bytes, partition: int = 0) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


# The producer's


def test_a_delivery_callback_that_raises_is_logged_and_costs_nothing(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other callbacks run, the futures are done, the producer goes on."""
    told: list[int] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        told.append(metadata.offset)
        if metadata.offset % 2 == 0:
            raise Boom

    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5) as producer:
        futures = [producer.send(topic, b"v", on_delivery=on_delivery) for _ in range(10)]
        futures[0].add_done_callback(lambda future: [][0])
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(10))
        assert producer.send(topic, b"v").result(LIMIT_S).offset == 10
    assert told == list(range(10))
    assert sum("callback raised" in record.message for record in caplog.records) == 6


def boom(*_: Any) -> Any:
    raise Boom("as it does")


@pytest.mark.parametrize("which", ["key", "value"])
def test_a_serializer_that_raises_is_told_by_send_and_nothing_is_sent(
    broker: EmbeddedBroker, topic: str, which: str
) -> None:
    """On both ways that a record takes: the first, which looks for metadata, and the usual one."""
    bad: dict[str, Any] = {which: "bad"}
    good: dict[str, Any] = {which: "good"}

    def serialize(data: Any) -> bytes:
        if data == "bad":
            raise Boom("as it does")
        return str(data).encode()

    serializer: dict[str, Any] = {f"{which}_serializer": serialize}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **serializer) as producer:
        for _ in range(2):
            with pytest.raises(SerializationError, match=f"{which}.*{topic}.*as it does") as told:
                producer.send(topic, **bad)
            assert isinstance(told.value.__cause__, Boom)
            producer.send(topic, **good).result(LIMIT_S)
        assert producer._parts.pool.available_bytes == producer._parts.pool.total_bytes
    assert len(values_of(broker.bootstrap_servers, topic)) == 2


@pytest.mark.parametrize("wrong", ["text", 7, {"a": 1}])
def test_without_a_serializer_what_is_not_bytes_is_refused(broker: EmbeddedBroker, topic: str, wrong: Any) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(2):
            with pytest.raises((TypeError, SerializationError), match="value_serializer"):
                producer.send(topic, wrong)
            producer.send(topic, b"good").result(LIMIT_S)


@pytest.mark.parametrize("choice", [boom, lambda *_: 99, lambda *_: -1, lambda *_: "0", lambda *_: None])
def test_a_partitioner_that_fails_is_told_by_send(
    broker: EmbeddedBroker, topic: str, choice: Callable[..., Any]
) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, partitioner_class=choice) as producer,
        pytest.raises((Boom, ValueError, TypeError)),
    ):
        producer.send(topic, b"v")
    assert values_of(broker.bootstrap_servers, topic) == []


class Spoiler:
    """An interceptor that fails in everything."""

    def on_send(self, record: Any) -> Any:
        raise Boom

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        raise Boom

    def on_consume(self, records: Any) -> Any:
        raise Boom

    def on_commit(self, offsets: Any) -> None:
        raise Boom

    def close(self) -> None:
        raise Boom


def test_interceptors_that_raise_are_logged_and_passed_over(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = broker.bootstrap_servers
    with Producer(bootstrap_servers=address, interceptor_classes=[Spoiler()]) as producer:
        told: list[Any] = []
        future = producer.send(topic, b"v", on_delivery=lambda metadata, error: told.append(error))
        assert future.result(LIMIT_S).offset == 0
        assert told == [None]
    settings: dict[str, Any] = {
        "group_id": f"g-{topic}",
        "auto_offset_reset": "earliest",
        "interceptor_classes": [Spoiler()],
    }
    with Consumer(topic, bootstrap_servers=address, **settings) as consumer:
        assert [record.value for record in consumer.poll(LIMIT_S)] == [b"v"]
        consumer.commit()
    failures = [record.message for record in caplog.records if "Spoiler failed in" in record.message]
    for what in ("on_send", "on_acknowledgement", "on_consume", "on_commit", "close"):
        assert any(what in message for message in failures), what


# The consumer's


def picky(data: bytes) -> str:
    if data.startswith(b"bad"):
        raise Boom("as it does")
    return data.decode()


@pytest.mark.parametrize("by", ["poll", "iteration"])
def test_a_deserializer_that_raises_names_the_record_and_a_seek_goes_past_it(
    broker: EmbeddedBroker, topic: str, by: str
) -> None:
    """What comes before it is handed out first; without a seek the same error comes again, and nothing is skipped."""
    fill(broker, topic, b"one", b"two", b"bad", b"three")
    seen: list[str] = []
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "value_deserializer": picky}
    with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:

        def read() -> None:
            if by == "iteration":
                seen.extend(record.value for record in consumer)
            while True:
                seen.extend(record.value for record in consumer.poll(LIMIT_S))

        for _ in range(2):
            with pytest.raises(SerializationError, match=f"{topic}-0 at offset 2.*as it does.*seek") as told:
                read()
            assert isinstance(told.value.__cause__, Boom)
        # The generator of an iteration ends with its error, and what it had yielded is not yielded again.
        assert list(dict.fromkeys(seen)) == ["one", "two"]
        error: Any = told.value
        consumer.seek(error.partition, error.offset + 1)
        assert [record.value for record in consumer.poll(LIMIT_S)] == ["three"]


def test_an_error_in_one_partition_does_not_cost_the_records_of_another(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    """All records before the bad one are handed out, whatever the order in which partitions come."""
    topic = make_topic(partitions=2)
    fill(broker, topic, b"bad", b"after", partition=0)
    fill(broker, topic, b"a", b"b", b"c", partition=1)
    seen: list[str] = []
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "value_deserializer": picky, "group_id": f"g-{topic}"}
    with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        while len(seen) < 4:
            try:
                seen += [record.value for record in consumer.poll(LIMIT_S)]
            except SerializationError as error:
                place: Any = error
                consumer.seek(place.partition, place.offset + 1)
    assert sorted(seen) == ["a", "after", "b", "c"]


def test_a_listener_that_raises_is_told_by_poll_and_the_group_goes_on(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, b"v")

    class Listener(RebalanceListener):
        count = 0

        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            self.count += 1
            if self.count == 1:
                raise Boom

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            raise Boom

    settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **settings)
    consumer.subscribe([topic], listener=Listener())
    with pytest.raises(Boom) as told:
        consumer.poll(LIMIT_S)
    assert "on_partitions_assigned of the rebalance listener" in "".join(told.value.__notes__)
    assert [record.value for record in consumer.poll(LIMIT_S)] == [b"v"]
    with pytest.raises(Boom):
        consumer.close()
    consumer.close()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_a_listener_that_ends_the_program_ends_the_poll_and_not_the_consumer(
    broker: EmbeddedBroker, topic: str, interrupt: type[BaseException]
) -> None:
    """Ctrl-C may strike there as anywhere. The background goes on, so that the consumer can still be closed."""
    fill(broker, topic, b"v")

    class Listener(RebalanceListener):
        has_struck = False

        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            if not self.has_struck:
                self.has_struck = True
                raise interrupt

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            pass

    settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        consumer.subscribe([topic], listener=Listener())
        with pytest.raises(interrupt):
            consumer.poll(LIMIT_S)
        assert [record.value for record in consumer.poll(LIMIT_S)] == [b"v"]


def test_a_listener_may_use_the_consumer(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, b"one", b"two")

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 1)
            assert consumer.committed(partitions) == dict.fromkeys(partitions)

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            consumer.commit()

    settings: dict[str, Any] = {"group_id": f"g-{topic}", "enable_auto_commit": False}
    with Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        consumer.subscribe([topic], listener=Listener())
        assert [record.value for record in consumer.poll(LIMIT_S)] == [b"two"]
    with Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        partition = TopicPartition(topic, 0)
        committed = consumer.committed([partition])[partition]
        assert committed is not None
        assert committed.offset == 2


def test_a_listener_that_closes_its_consumer_ends_the_poll(broker: EmbeddedBroker, topic: str) -> None:
    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            consumer.close()

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            pass

    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}")
    consumer.subscribe([topic], listener=Listener())
    with pytest.raises(Exception, match="closed"):
        consumer.poll(LIMIT_S)
    consumer.close()


def test_callbacks_of_commits_that_raise_are_told_by_poll(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, b"v")
    settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        assert consumer.poll(LIMIT_S)
        told: list[Any] = []
        consumer.commit_async(on_commit=boom)
        consumer.commit_async(on_commit=lambda offsets, error: told.append(error))
        with pytest.raises(Boom):
            consumer.commit()
        consumer.commit()
        assert told == [None]


def test_asyncio_listeners_may_be_coroutines_and_may_raise(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, b"v")

    class Listener(RebalanceListener):
        count = 0

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            self.count += 1
            if self.count == 1:
                raise Boom

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)

    async def story() -> None:
        settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
        async with aio.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
            consumer.subscribe([topic], listener=Listener())
            with pytest.raises(Boom):
                await consumer.poll(LIMIT_S)
            assert [record.value for record in await consumer.poll(LIMIT_S)] == [b"v"]

    asyncio.run(story())


def test_an_asyncio_callback_that_raises_costs_nothing(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            told: list[Any] = []
            first = await producer.send(topic, b"one", on_delivery=boom)
            second = await producer.send(topic, b"two", on_delivery=lambda metadata, error: told.append(metadata))
            assert [(await each).offset for each in (first, second)] == [0, 1]
            assert len(told) == 1
            later = await producer.send(topic, b"three")
            with pytest.raises(WrongUseError, match="await the future"):
                later.result()
            assert (await later).offset == 2

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())
    assert "callback raised" in caplog.text
