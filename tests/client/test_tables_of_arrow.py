"""What `poll_arrow` and `send_arrow` refuse, at once and not after the first record has come: they do not ignore it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from barnabas import Consumer, Producer, WrongUseError, aio

NOWHERE = "127.0.0.1:1"
TABLE = pa.table({"value": ["a"]})


@pytest.fixture
def no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)


async def _within(client: Any, call: Callable[[Any], Awaitable[object]]) -> None:
    async with client:
        await call(client)


@pytest.mark.usefixtures("no_pyarrow")
def test_a_missing_pyarrow_names_the_extra() -> None:
    """Nobody is there: whoever waited for records or metadata first would not come to say it."""
    with Consumer("t", bootstrap_servers=NOWHERE) as consumer, pytest.raises(ImportError) as without:
        consumer.poll_arrow()
    assert "pip install 'pyarrow>=17'" in str(without.value)
    with Producer(NOWHERE) as producer, pytest.raises(ImportError, match=r"pip install 'pyarrow>=17'"):
        producer.send_arrow("t", TABLE)
    with pytest.raises(ImportError, match=r"pip install 'pyarrow>=17'"):
        asyncio.run(_within(aio.Consumer("t", bootstrap_servers=NOWHERE), lambda it: it.poll_arrow()))
    with pytest.raises(ImportError, match=r"pip install 'pyarrow>=17'"):
        asyncio.run(_within(aio.Producer(NOWHERE), lambda it: it.send_arrow("t", TABLE)))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"value_deserializer": "json"}, "value_deserializer=json: take poll"),
        ({"key_deserializer": "string"}, 'batch.column("key").cast("string")'),
        ({"value_deserializer": bytes.decode}, "value_deserializer=builtins.bytes.decode"),
    ],
)
def test_a_consumer_with_deserializers_gives_no_tables(settings: dict[str, Any], told: str) -> None:
    with Consumer("t", bootstrap_servers=NOWHERE, **settings) as consumer:
        with pytest.raises(WrongUseError) as refused:
            consumer.poll_arrow()
        assert told in str(refused.value)
    with pytest.raises(WrongUseError, match="poll_arrow gives keys and values as bytes"):
        asyncio.run(_within(aio.Consumer("t", bootstrap_servers=NOWHERE, **settings), lambda it: it.poll_arrow()))


def test_bytes_as_they_are_are_no_deserializer(barnabas_bootstrap: str, barnabas_topic: str) -> None:
    with Producer(barnabas_bootstrap) as producer:
        producer.send(barnabas_topic, b"a").result(10)
    with Consumer(
        barnabas_topic, bootstrap_servers=barnabas_bootstrap, auto_offset_reset="earliest", value_deserializer="bytes"
    ) as consumer:
        batch = consumer.poll_arrow(10)
    # What the refusal recommends works.
    assert batch.column("value").cast("string").to_pylist() == ["a"]


@pytest.mark.parametrize("settings", [{"value_serializer": "json"}, {"key_serializer": lambda key: key}])
def test_a_producer_with_serializers_takes_no_tables(settings: dict[str, Any]) -> None:
    with Producer(NOWHERE, **settings) as producer, pytest.raises(WrongUseError, match="send_arrow writes the columns"):
        producer.send_arrow("t", TABLE)
    with pytest.raises(WrongUseError, match="send_arrow writes the columns"):
        asyncio.run(_within(aio.Producer(NOWHERE, **settings), lambda it: it.send_arrow("t", TABLE)))


def test_the_serializer_of_text_writes_what_a_column_of_text_is(barnabas_bootstrap: str, barnabas_topic: str) -> None:
    with Producer(barnabas_bootstrap, value_serializer="string") as producer:
        producer.send(barnabas_topic, "ä").result(10)
        producer.send_arrow(barnabas_topic, pa.table({"value": ["ä"]})).result(10)
    with Consumer(barnabas_topic, bootstrap_servers=barnabas_bootstrap, auto_offset_reset="earliest") as consumer:
        values = [record.value for record in consumer.poll(10)]
        while len(values) < 2:
            values += [record.value for record in consumer.poll(10)]
    assert values == ["ä".encode()] * 2
    latin = {"bootstrap.servers": barnabas_bootstrap, "value.serializer.encoding": "latin-1"}
    with Producer(latin, value_serializer="string") as producer, pytest.raises(WrongUseError, match="value_serializer"):
        producer.send_arrow(barnabas_topic, TABLE)
