"""aiokafka, with the few lines that its tests share."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import pytest

from tests.compat.brokers import unique
from tests.compat.samples import TIMEOUT_S, Sample

ak = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
ak_admin = pytest.importorskip("aiokafka.admin", reason="aiokafka is not installed")
ak_errors = pytest.importorskip("aiokafka.errors", reason="aiokafka is not installed")

P = ParamSpec("P")


def on_a_loop(story: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Runs a test that is a coroutine on an event loop of its own, for a minute at most."""

    @functools.wraps(story)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await story(*args, **kwargs)

        asyncio.run(bounded())

    return test


class AioKafka:
    """Clients of one broker, and a topic for each test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        admin = ak_admin.AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def topic(self, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = unique("aiokafka")
        async with self.admin() as admin:
            answer = await admin.create_topics([ak_admin.NewTopic(name, partitions, 1, topic_configs=config or {})])
        assert [each[1] for each in answer.topic_errors] == [0], answer
        return name

    @asynccontextmanager
    async def producer(self, **settings: Any) -> AsyncIterator[Any]:
        async with ak.AIOKafkaProducer(bootstrap_servers=self.bootstrap, **settings) as producer:
            yield producer

    async def produce(
        self, topic: str, samples: Iterable[Sample], partition: int | None = None, **settings: Any
    ) -> list[Any]:
        """What was acknowledged, in order; the first failure is raised."""
        async with self.producer(**settings) as producer:
            sent = [
                await producer.send(
                    topic,
                    each.value,
                    each.key,
                    partition=partition,
                    timestamp_ms=each.timestamp_ms,
                    headers=list(each.headers),
                )
                for each in samples
            ]
            return list(await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S))

    @asynccontextmanager
    async def consumer(self, *topics: str, group: str | None = None, **settings: Any) -> AsyncIterator[Any]:
        consumer = ak.AIOKafkaConsumer(
            *topics,
            **{
                "bootstrap_servers": self.bootstrap,
                "group_id": group,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "session_timeout_ms": 6000,
                "heartbeat_interval_ms": 200,
                "fetch_max_wait_ms": 100,
                "metadata_max_age_ms": 1000,
                **settings,
            },
        )
        async with consumer:
            yield consumer

    async def consume(self, topic: str, count: int, partition: int = 0, **settings: Any) -> list[Any]:
        """The first records of a partition, without a group."""
        async with self.consumer(**settings) as consumer:
            consumer.assign([ak.TopicPartition(topic, partition)])
            return await received(consumer, count)


async def received(consumer: Any, count: int) -> list[Any]:
    """The next records that a consumer gets, and not one more."""
    deadline = time.monotonic() + TIMEOUT_S
    records: list[Any] = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        for batch in (await consumer.getmany(timeout_ms=500, max_records=count - len(records))).values():
            records.extend(batch)
    return records


async def eventually(what: Callable[[], bool]) -> None:
    """Wait for what members do in tasks of their own."""
    deadline = time.monotonic() + TIMEOUT_S
    while not what():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s"
        await asyncio.sleep(0.02)


def values(records: Iterable[Any]) -> list[bytes | None]:
    return [each.value for each in records]


def as_sample(record: Any) -> Sample:
    return Sample(record.value, record.key, tuple(record.headers), record.timestamp)
