"""What a type checker knows of keys and values: mypy checks this file with all others, and the lines run as well.

Each has `Any` beside its type: a null is None, whatever the deserializer makes.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from barnabas import Consumer, ConsumerRecord, aio
from barnabas.client.serialization import IntegerSerde, UuidSerde, with_context

NOWHERE = "127.0.0.1:1"


@dataclass
class Order:
    text: str

    @classmethod
    def from_bytes(cls, data: bytes) -> Order:
        return cls(data.decode())


class OrderReader:
    def deserialize(self, topic: str, headers: object, data: bytes) -> Order:
        return Order.from_bytes(data)


def test_without_asyncio() -> None:
    assert_type(Consumer("t", bootstrap_servers=NOWHERE), Consumer[bytes, bytes])
    assert_type(Consumer("t", bootstrap_servers=NOWHERE, value_deserializer="bytes"), Consumer[bytes, bytes])
    assert_type(Consumer("t", bootstrap_servers=NOWHERE, value_deserializer=None), Consumer[bytes, bytes])
    assert_type(Consumer("t", bootstrap_servers=NOWHERE, value_deserializer="string"), Consumer[bytes, str])
    assert_type(Consumer("t", bootstrap_servers=NOWHERE, key_deserializer="string"), Consumer[str, bytes])
    assert_type(Consumer("t", bootstrap_servers=NOWHERE, value_deserializer="json"), Consumer[bytes, Any])
    assert_type(
        Consumer("t", bootstrap_servers=NOWHERE, key_deserializer="string", value_deserializer="json"),
        Consumer[str, Any],
    )
    assert_type(
        Consumer("t", bootstrap_servers=NOWHERE, key_deserializer="long", value_deserializer="string"),
        Consumer[Any, str],
    )
    assert_type(Consumer("t", bootstrap_servers=NOWHERE, value_deserializer=Order.from_bytes), Consumer[bytes, Order])
    assert_type(Consumer("t", bootstrap_servers=NOWHERE, value_deserializer=OrderReader), Consumer[bytes, Order])
    assert_type(Consumer("t", bootstrap_servers=NOWHERE, value_deserializer=OrderReader()), Consumer[bytes, Order])
    assert_type(
        Consumer("t", bootstrap_servers=NOWHERE, key_deserializer=IntegerSerde, value_deserializer=UuidSerde()),
        Consumer[int, uuid.UUID],
    )
    assert_type(
        Consumer("t", bootstrap_servers=NOWHERE, value_deserializer=lambda data: data.decode()), Consumer[bytes, str]
    )

    def in_context(data: Any, context: Any) -> Order:
        return Order(context.topic)

    assert_type(
        Consumer("t", bootstrap_servers=NOWHERE, value_deserializer=with_context(in_context)), Consumer[bytes, Order]
    )


def test_with_asyncio() -> None:
    assert_type(aio.Consumer("t", bootstrap_servers=NOWHERE), aio.Consumer[bytes, bytes])
    assert_type(aio.Consumer("t", bootstrap_servers=NOWHERE, value_deserializer="string"), aio.Consumer[bytes, str])
    assert_type(
        aio.Consumer("t", bootstrap_servers=NOWHERE, key_deserializer="string", value_deserializer=Order.from_bytes),
        aio.Consumer[str, Order],
    )
    assert_type(aio.Consumer("t", bootstrap_servers=NOWHERE, value_deserializer="json"), aio.Consumer[bytes, Any])


def test_records_have_the_types_of_their_consumer(barnabas_bootstrap: str, barnabas_topic: str) -> None:
    consumer = Consumer(
        barnabas_topic, bootstrap_servers=barnabas_bootstrap, key_deserializer="string", value_deserializer=OrderReader
    )
    with consumer:
        assert_type(iter(consumer), Iterator[ConsumerRecord[str, Order]])
        records = consumer.poll(0)
    assert_type(records, list[ConsumerRecord[str, Order]])
    for record in records:
        assert_type(record.key, str | Any)
        assert_type(record.value, Order | Any)


async def _read(consumer: aio.Consumer[str, Order]) -> None:
    assert_type(consumer.__aiter__(), AsyncIterator[ConsumerRecord[str, Order]])
    assert_type(await consumer.poll(), list[ConsumerRecord[str, Order]])


def test_a_wrong_use_of_a_value_is_noticed_and_a_tombstone_is_not_impossible() -> None:
    record = ConsumerRecord[bytes, str]("t", 0, 0, b"key", "value")
    with pytest.raises(TypeError):
        record.value + 1  # type: ignore[operator]
    assert record.value.upper() == "VALUE"
    number: int = record.value  # type: ignore[assignment]
    del number
    tombstone = ConsumerRecord[bytes, str]("t", 0, 1, b"key")
    assert tombstone.value is None  # reached: mypy would complain about what follows otherwise
    assert tombstone.key == b"key"
