"""A broker and our clients on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any

from barnabas import TopicPartition, aio
from barnabas.testing import AsyncEmbeddedBroker
from tests.virtual_time import clock


class Scene:
    """Makes clients of a broker that live on its time; each has randomness of its own."""

    def __init__(self, broker: AsyncEmbeddedBroker) -> None:
        self.broker = broker
        self.faults = broker.faults
        self._seeds = count(1)

    def producer(self, **settings: Any) -> aio.Producer:
        return aio.Producer(**self._given(settings))

    def consumer(self, *topics: str, **settings: Any) -> aio.Consumer[Any, Any]:
        return aio.Consumer(*topics, **self._given(settings))

    def _given(self, settings: dict[str, Any]) -> dict[str, Any]:
        ours = {"bootstrap_servers": self.broker.bootstrap_servers, "clock": clock()}
        return {**ours, "randomness": Random(next(self._seeds)), **settings}

    async def fill(self, topic: str, count: int, partitions: int = 1) -> None:
        """Numbers, in turn over the partitions."""
        async with self.producer() as producer:
            for number in range(count):
                await producer.send(topic, b"%d" % number, partition=number % partitions)

    async def committed(self, group_id: str, partition: TopicPartition) -> int | None:
        async with self.consumer(group_id=group_id) as auditor:
            found = (await auditor.committed([partition]))[partition]
            return None if found is None else found.offset

    async def values_of(self, topic: str) -> list[bytes]:
        """All values of a topic with one partition."""
        partition = TopicPartition(topic, 0)
        async with self.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            found: list[bytes] = []
            while await consumer.position(partition) < end:
                found += [record.value for record in await consumer.poll(20)]
            return found


@asynccontextmanager
async def scene(*topics: str, partitions: int = 1, **settings: Any) -> AsyncIterator[Scene]:
    """A broker with these topics."""
    usual: dict[str, Any] = {"group_min_session_timeout_ms": 100, "group_initial_rebalance_delay_ms": 0}
    async with AsyncEmbeddedBroker(**{**usual, **settings}) as broker:
        for topic in topics:
            await broker.create_topic(topic, partitions)
        yield Scene(broker)


@asynccontextmanager
async def timed(at_least_s: float, below_s: float) -> AsyncIterator[None]:
    """What happens inside takes a time within these bounds, as clocks that tell milliseconds see it."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    yield
    taken_s = loop.time() - began
    assert at_least_s - 0.001 < taken_s < below_s
