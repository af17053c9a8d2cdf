"""Wrong addresses: everything ends in time, with an error that names each address and what was wrong with it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition, aio
from barnabas.base.errors import SettingsError
from barnabas.client.errors import NoBrokersError
from tests.ports import free_ports

PARTITION = TopicPartition("clicks", 0)
#: Names under .invalid never lead anywhere.
NO_SUCH_HOST = "broker.invalid:9092"
#: How long these calls would take if nothing were said of it. How much less, a busy machine decides.
DEFAULT_S = 60


@pytest.fixture
def nobody() -> str:
    """An address that is taken, and at which nobody listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


PRODUCER_CALLS: dict[str, Callable[[Any], Any]] = {
    "send": lambda producer: producer.send("clicks", b"v"),
    "partitions_for": lambda producer: producer.partitions_for("clicks"),
}
CONSUMER_CALLS: dict[str, Callable[[Any], Any]] = {
    "poll": lambda consumer: consumer.poll(),
    "poll_arrow": lambda consumer: consumer.poll_arrow(),
    "partitions_for": lambda consumer: consumer.partitions_for("clicks"),
    "list_topics": lambda consumer: consumer.list_topics(),
    "position": lambda consumer: consumer.position(PARTITION),
    "end_offsets": lambda consumer: consumer.end_offsets([PARTITION]),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([PARTITION]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({PARTITION: 0}),
}
GROUP_CALLS: dict[str, Callable[[Any], Any]] = {
    "poll": lambda consumer: consumer.poll(),
    "commit": lambda consumer: consumer.commit({PARTITION: 1}),
    "committed": lambda consumer: consumer.committed([PARTITION]),
}


@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_a_producer_says_within_max_block_ms_that_nobody_answers(nobody: str, call: str) -> None:
    """Nothing hangs: neither the constructor nor the call nor the close."""
    with Producer(bootstrap_servers=[nobody, NO_SUCH_HOST], max_block_ms=150) as producer:
        began = time.monotonic()
        with pytest.raises(NoBrokersError) as told:
            PRODUCER_CALLS[call](producer)
        assert 0.1 < time.monotonic() - began < DEFAULT_S
    assert f"{nobody}" in str(told.value)
    assert "Connection refused" in str(told.value)
    assert "broker.invalid:9092" in str(told.value)
    assert isinstance(told.value, ConnectionError)


@pytest.mark.parametrize("call", CONSUMER_CALLS)
def test_a_consumer_says_within_default_api_timeout_ms_that_nobody_answers(nobody: str, call: str) -> None:
    """That goes for a poll without a timeout too, which would otherwise wait for ever for records from nowhere."""
    with Consumer(bootstrap_servers=nobody, default_api_timeout_ms=150, request_timeout_ms=100) as consumer:
        consumer.assign([PARTITION])
        began = time.monotonic()
        with pytest.raises(NoBrokersError, match=f"{nobody}.*refused"):
            CONSUMER_CALLS[call](consumer)
        assert 0.1 < time.monotonic() - began < DEFAULT_S


@pytest.mark.parametrize("call", GROUP_CALLS)
def test_a_member_of_a_group_says_so_too(nobody: str, call: str) -> None:
    settings: dict[str, Any] = {"group_id": "g", "default_api_timeout_ms": 150, "request_timeout_ms": 100}
    with Consumer("clicks", bootstrap_servers=nobody, **settings) as consumer:
        if call != "poll":
            consumer.unsubscribe()
            consumer.assign([PARTITION])
        with pytest.raises(NoBrokersError, match=f"{nobody}.*refused"):
            GROUP_CALLS[call](consumer)


def test_short_polls_return_nothing_until_the_time_for_a_first_broker_is_over(nobody: str) -> None:
    """A broker that comes late is no reason to end a program which polls in a loop; one that never comes is."""
    with Consumer("clicks", bootstrap_servers=nobody, default_api_timeout_ms=200, request_timeout_ms=100) as consumer:
        assert consumer.poll(timeout=0.01) == []

        def loop() -> None:
            for _ in range(200):
                consumer.poll(timeout=0.01)

        with pytest.raises(NoBrokersError, match="refused"):
            loop()


def test_an_admin_says_so(nobody: str) -> None:
    with (
        Admin(bootstrap_servers=nobody, default_api_timeout_ms=150, request_timeout_ms=100) as admin,
        pytest.raises(NoBrokersError, match=f"{nobody}.*refused"),
    ):
        admin.list_topics()


def test_the_asyncio_clients_say_the_same(nobody: str) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap_servers=nobody, max_block_ms=100) as producer:
            with pytest.raises(NoBrokersError, match="refused"):
                await producer.send("clicks", b"v")
            with pytest.raises(NoBrokersError, match="refused"):
                await producer.partitions_for("clicks")
        settings: dict[str, Any] = {"default_api_timeout_ms": 100, "request_timeout_ms": 100}
        async with aio.Consumer("clicks", bootstrap_servers=nobody, group_id="g", **settings) as consumer:
            with pytest.raises(NoBrokersError, match="refused"):
                await consumer.poll()
            with pytest.raises(NoBrokersError, match="refused"):
                await anext(aiter(consumer))

    asyncio.run(story())


def test_an_address_that_swallows_everything_is_given_up_in_time() -> None:
    """It takes connections and never says a word, as a firewall or a wrong service does."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        settings: dict[str, Any] = {
            "max_block_ms": 300,
            "request_timeout_ms": 100,
            "socket_connection_setup_timeout_ms": 100,
        }
        with (
            Producer(bootstrap_servers=address, delivery_timeout_ms=1000, linger_ms=0, **settings) as producer,
            pytest.raises(NoBrokersError, match=r"versions"),
        ):
            producer.send("clicks", b"v")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ":9092", ""])
def test_what_is_no_address_is_refused_by_the_constructor(address: str) -> None:
    with pytest.raises(SettingsError, match=r"bootstrap.servers|bootstrap_servers"):
        Producer(bootstrap_servers=address)
