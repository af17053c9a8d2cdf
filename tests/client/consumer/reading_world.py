"""A broker in the process, a fetcher that reads from it, and records to read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.receiving import ConsumerRecord
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.core.consuming.offsets import ResetStrategy
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.core.metadata import Metadata
from barnabas.client.network_client import NetworkClient
from barnabas.client.settings import ConsumerSettings
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.client.core.consuming.logs import batch
from tests.virtual_time import clock

A, B = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
PATIENCE_S = 10.0
_BY_NAME = 12  # the last version of Produce that needs no ids


@asynccontextmanager
async def reading(
    bootstrap: str,
    *partitions: TopicPartition,
    key_deserializer: Any = None,
    value_deserializer: Any = None,
    committed: Any = None,
    metrics: Any = None,
    **given: Any,
) -> AsyncIterator[Reader]:
    """A reader of these partitions, of any broker."""
    settings = ConsumerSettings(
        **{
            "bootstrap_servers": bootstrap,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 50,
            "retry_backoff_ms": 10,
            "retry_backoff_max_ms": 50,
            **given,
        }
    )
    randomness, time = Random(1), clock()
    metadata = Metadata.of(settings, randomness=randomness)
    network = NetworkClient(settings, metadata, clock=time, randomness=randomness)
    subscription = Subscription(ResetStrategy.parse(settings.auto_offset_reset))
    fetcher = Fetcher(
        network,
        subscription,
        settings,
        clock=time,
        randomness=randomness,
        key_deserializer=key_deserializer,
        value_deserializer=value_deserializer,
        committed=committed,
        metrics=metrics,
    )
    await network.start()
    fetcher.start()
    metadata.set_topics({partition.topic for partition in partitions or (A,)})
    subscription.assign(partitions)
    try:
        yield Reader(network, subscription, fetcher)
    finally:
        await fetcher.close(1000)
        await network.close()


class World:
    def __init__(self, broker: AsyncEmbeddedBroker) -> None:
        self.broker = broker

    async def produce(self, partition: TopicPartition, values: Iterable[bytes], **options: Any) -> None:
        client = await ScriptedClient.connect(self.broker.bootstrap_servers)
        data = PartitionProduceData(index=partition.partition, records=memoryview(batch(0, values, **options)))
        topic = TopicProduceData(name=partition.topic, partition_data=[data])
        response = await client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), _BY_NAME)
        assert response.responses[0].partition_responses[0].error_code == 0
        await client.close()

    async def delete_records(self, partition: TopicPartition, before: int) -> None:
        client = await ScriptedClient.connect(self.broker.bootstrap_servers)
        wanted = DeleteRecordsTopic(
            name=partition.topic,
            partitions=[DeleteRecordsPartition(partition_index=partition.partition, offset=before)],
        )
        response = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=5000))
        assert response.topics[0].partitions[0].error_code == 0
        await client.close()

    def reader(self, *partitions: TopicPartition, **given: Any) -> AbstractAsyncContextManager[Reader]:
        return reading(self.broker.bootstrap_servers, *partitions, **given)


class Reader:
    def __init__(self, network: NetworkClient, subscription: Subscription, fetcher: Fetcher) -> None:
        self.network = network
        self.subscription = subscription
        self.fetcher = fetcher

    async def poll(self, limit: int = 500, timeout_s: float = PATIENCE_S) -> list[ConsumerRecord]:
        """Records as soon as there are some; none if the time is up."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        self.subscription.begin_poll()
        while True:
            taken = self.fetcher.take_records(limit)
            left_s = deadline - asyncio.get_running_loop().time()
            if taken or left_s <= 0:
                return taken
            await self.fetcher.wait_for_data(left_s)

    async def values(self, count: int) -> list[Any]:
        """The values of the next so many records."""
        found: list[Any] = []
        while len(found) < count:
            records = await self.poll(count - len(found))
            assert records, f"only {len(found)} of {count} records came"
            found += [record.value for record in records]
        return found

    async def nothing(self, timeout_s: float = 0.15) -> None:
        assert await self.poll(timeout_s=timeout_s) == []


@asynccontextmanager
async def world(partitions: int = 1, **settings: Any) -> AsyncIterator[World]:
    async with AsyncEmbeddedBroker(**settings) as broker:
        await broker.create_topic(A.topic, partitions=partitions)
        yield World(broker)
