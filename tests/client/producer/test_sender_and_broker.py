"""Sender, accumulator, network and a node of our own together: records are there once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.client._kernel.sending import SendFuture
from barnabas.client.core.producing.accumulator import Accumulator
from barnabas.client.errors import DeliveryTimeoutError
from barnabas.client.producer.parts import ProducerParts
from barnabas.client.settings import ProducerSettings
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.virtual_time import clock, play

Together = Callable[[AsyncEmbeddedBroker, "Client"], Coroutine[Any, Any, None]]


class Client:
    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        given = {"bootstrap.servers": bootstrap_servers, "batch.size": 200, "retry.backoff.ms": 10, **settings}
        self.parts = ProducerParts(
            ProducerSettings.load(given),
            clock=clock(),
            randomness=Random(1),
            lock=nullcontext(),
            is_shared=False,
        )
        self.accumulator: Accumulator = self.parts.accumulator

    def send(self, partition: int, value: bytes) -> SendFuture:
        lane = self.accumulator.lane("t", self.parts.metadata.view)
        assert lane is not None
        now_ms = self.parts.clock.monotonic_ms()
        made = self.accumulator.append(lane, partition, value, None, None, self.parts.clock.now_ms(), None, now_ms)
        assert isinstance(made, SendFuture)
        return made


def run_together(story: Together, partitions: int = 3, **settings: Any) -> None:
    async def run() -> None:
        async with AsyncEmbeddedBroker() as broker:
            await broker.create_topic("t", partitions=partitions)
            client = Client(broker.bootstrap_servers, **settings)
            await client.parts.start()
            try:
                client.parts.metadata.want("t", client.parts.clock.monotonic_ms())
                await client.parts.network.topic_metadata("t", 5000)
                await story(broker, client)
            finally:
                await client.parts.close(2000)

    play(run())


async def check_offsets(sent: list[list[SendFuture]]) -> None:
    """With one producer, offsets tell of gaps, repetitions and order."""
    for futures in sent:
        assert [(await each).offset for each in futures] == list(range(len(futures)))


def test_many_records_of_several_partitions() -> None:
    async def story(broker: AsyncEmbeddedBroker, client: Client) -> None:
        sent: list[list[SendFuture]] = [[], [], []]
        for number in range(600):
            sent[number % 3].append(client.send(number % 3, b"%d" % number))
            if number % 50 == 0:
                await asyncio.sleep(0)
        await client.parts.driver.flush(5000)
        await check_offsets(sent)
        assert client.parts.pool.available_bytes == client.parts.settings.buffer_memory

    run_together(story)


def test_errors_and_cut_connections_leave_order_and_count_as_they_are() -> None:
    async def story(broker: AsyncEmbeddedBroker, client: Client) -> None:
        random = Random(5)
        sent: list[list[SendFuture]] = [[], [], []]
        for number in range(300):
            if number % 20 == 0:
                kind: dict[str, Any] = random.choice(
                    [
                        {"close": True},
                        {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER},
                        {"error": ErrorCode.NOT_ENOUGH_REPLICAS, "times": 2},
                        {"delay_ms": 20},
                    ]
                )
                broker.faults.fail_next(ApiKey.PRODUCE, **kind)
            sent[number % 3].append(client.send(number % 3, b"%d" % number))
            if number % 10 == 0:
                await asyncio.sleep(0.002)
        await client.parts.driver.flush(10_000)
        await check_offsets(sent)

    run_together(story)


def test_a_restart_of_the_broker_costs_nothing() -> None:
    async def story(broker: AsyncEmbeddedBroker, client: Client) -> None:
        sent: list[list[SendFuture]] = [[]]

        async def keep_sending() -> None:
            for number in range(200):
                sent[0].append(client.send(0, b"%d" % number))
                await asyncio.sleep(0.002)

        sending = asyncio.create_task(keep_sending())
        await asyncio.sleep(0.1)
        await broker.restart()
        await sending
        await client.parts.driver.flush(10_000)
        await check_offsets(sent)

    run_together(story, partitions=1)


def test_a_batch_that_the_topic_refuses_is_split_until_it_fits() -> None:
    async def story(broker: AsyncEmbeddedBroker, client: Client) -> None:
        await broker.create_topic("small", config={"max.message.bytes": 300})
        client.parts.metadata.want("small", client.parts.clock.monotonic_ms())
        view = await client.parts.network.topic_metadata("small", 5000)
        lane = client.accumulator.lane("small", view)
        assert lane is not None
        now_ms = client.parts.clock.monotonic_ms()
        futures = [
            client.accumulator.append(lane, 0, b"%03d" % number * 20, None, None, 1, None, now_ms)
            for number in range(20)
        ]
        await client.parts.driver.flush(10_000)
        assert [(await each).offset for each in futures] == list(range(20))  # type: ignore[misc]
        assert client.parts.metrics is not None
        too_large = client.accumulator.append(lane, 0, b"x" * 400, None, None, 1, None, now_ms)
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            await too_large  # type: ignore[misc]
        after = client.accumulator.append(lane, 0, b"y", None, None, 1, None, now_ms)
        assert (await after).offset == 20  # type: ignore[misc]

    run_together(story, **{"batch.size": 2000, "linger.ms": 20})


def test_a_broker_that_is_gone_lets_records_time_out_with_a_reason() -> None:
    async def story(broker: AsyncEmbeddedBroker, client: Client) -> None:
        assert (await client.send(0, b"first")).offset == 0
        await broker.stop()
        with pytest.raises(DeliveryTimeoutError, match=r"t-0: a batch of 1 records .*\(delivery.timeout.ms is 400\)"):
            await client.send(0, b"second")
        await broker.start()
        assert (await client.send(0, b"third")).offset in (1, 2)

    timeouts = {"delivery.timeout.ms": 400, "request.timeout.ms": 200, "reconnect.backoff.max.ms": 50}
    run_together(story, **timeouts, **{"linger.ms": 0})


@pytest.mark.parametrize("acks", ["0", "1"])
def test_weaker_acknowledgements(acks: str) -> None:
    async def story(broker: AsyncEmbeddedBroker, client: Client) -> None:
        futures = [client.send(0, b"%d" % number) for number in range(50)]
        await client.parts.driver.flush(5000)
        offsets = [(await each).offset for each in futures]
        assert offsets == ([-1] * 50 if acks == "0" else list(range(50)))

    run_together(story, acks=acks)
