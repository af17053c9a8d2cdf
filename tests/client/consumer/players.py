"""Consumers without fetching: a network, a subscription and a group driver, on the running loop."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.base.metrics.registry import MetricsRegistry
from barnabas.client.consumer.group import GroupDriver
from barnabas.client.core.consuming.offsets import OffsetAndMetadata, ResetStrategy
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.core.metadata import Metadata
from barnabas.client.core.metrics.consumer import GroupMetrics
from barnabas.client.network_client import NetworkClient
from barnabas.client.settings import ConsumerSettings
from tests.virtual_time import clock


class Listener:
    """Notes what it is told, and can be made to fail or to do something first."""

    def __init__(self) -> None:
        self.story: list[tuple[str, list[TopicPartition]]] = []
        self.before: Callable[[str], Any] | None = None

    async def _told(self, what: str, partitions: list[TopicPartition]) -> None:
        self.story.append((what, sorted(partitions)))
        if self.before is not None:
            outcome = self.before(what)
            if inspect.isawaitable(outcome):
                await outcome

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._told("assigned", partitions)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._told("revoked", partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await self._told("lost", partitions)

    @property
    def words(self) -> list[str]:
        return [what for what, _ in self.story]


class Member:
    """A member of a group that reads nothing; `read` says what it would have."""

    def __init__(self, network: NetworkClient, settings: ConsumerSettings, registry: MetricsRegistry) -> None:
        self.network = network
        self.registry = registry
        self.subscription = Subscription(ResetStrategy.parse("earliest"))
        self.listener = Listener()
        self.group = GroupDriver(
            network,
            self.subscription,
            settings,
            clock=clock(),
            randomness=random.Random(7),
            invoke=invoke,
            metrics=GroupMetrics(registry),
        )

    def subscribe(self, *topics: str) -> None:
        self.subscription.subscribe(topics, self.listener)

    async def join(self, timeout_ms: float = 5_000) -> None:
        assert await self.group.poll(timeout_ms)

    async def poll_until(self, happened: Callable[[], bool], timeout_ms: float = 10_000, poll_ms: float = 20) -> None:
        time = clock()
        deadline_ms = time.monotonic_ms() + timeout_ms
        while not happened():
            assert time.monotonic_ms() < deadline_ms, self.listener.story
            await self.group.poll(poll_ms)
            await asyncio.sleep(0.005)  # as if it waited for records

    def read(self, partition: TopicPartition, offset: int) -> None:
        """As if the program had been handed everything below `offset`, and had come back for more."""
        self.subscription.seek(partition, OffsetAndMetadata(offset))

    @property
    def metrics(self) -> dict[str, float]:
        return self.registry.as_dict()["consumer-coordinator-metrics"]

    @property
    def assigned(self) -> list[TopicPartition]:
        return sorted(self.subscription.assigned())


def at(offset: int, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, metadata)


async def invoke(function: Callable[..., Any], *arguments: Any) -> None:
    outcome = function(*arguments)
    if inspect.isawaitable(outcome):
        await outcome


@asynccontextmanager
async def member_of(bootstrap_servers: str, group: str = "g", /, **settings: Any) -> AsyncIterator[Member]:
    keywords = {"bootstrap_servers": bootstrap_servers, "group_id": group, "heartbeat_interval_ms": 50} | settings
    loaded = ConsumerSettings.load(**keywords)
    time, randomness = clock(), random.Random(3)
    network = NetworkClient(loaded, Metadata.of(loaded, randomness=randomness), clock=time, randomness=randomness)
    await network.start()
    registry = MetricsRegistry(time.monotonic_ms)
    member = Member(network, loaded, registry)
    try:
        yield member
    finally:
        await member.group.close(2_000)
        await network.close()
