"""Our own clients, with the few lines that their tests share: without asyncio, with it, and in Arrow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Timer
from typing import Any, Final, TypeVar

import pyarrow as pa

from barnabas import Admin, Consumer, ConsumerRecord, Producer, RecordMetadata, TopicPartition, aio
from barnabas.client.admin import NewTopic, OffsetSpec
from tests.compat.brokers import unique
from tests.compat.samples import TIMEOUT_S, Sample, until

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

#: For members of groups that come and go quickly, and for readers that wait for nobody.
BRISK: Final[dict[str, Any]] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 200,
    "fetch_max_wait_ms": 100,
    "metadata_max_age_ms": 500,
}

TABLE: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)


class Ours:
    """Clients of one broker, and a topic for each test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def topic(self, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = unique("ours")
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions, 1, configs=config or {})])
            # Brokers hear of a new topic a little later, and have logs for it later still: acks=0 would not wait.
            until(lambda: name in admin.list_topics())
            admin.list_offsets({TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)})
        return name

    # Without asyncio

    def producer(self, **settings: Any) -> Producer:
        return Producer(bootstrap_servers=self.bootstrap, **settings)

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        return Consumer(*topics, bootstrap_servers=self.bootstrap, **{**BRISK, **settings})

    def produce(
        self, topic: str, samples: Iterable[Sample], partition: int | None = None, **settings: Any
    ) -> list[RecordMetadata]:
        """What was acknowledged, in order; the first failure is raised."""
        with self.producer(**settings) as producer:
            sent = [
                producer.send(
                    topic,
                    each.value,
                    each.key,
                    headers=each.headers,
                    partition=partition,
                    timestamp_ms=each.timestamp_ms,
                )
                for each in samples
            ]
            producer.flush(TIMEOUT_S)
            return [each.result(TIMEOUT_S) for each in sent]

    def produce_arrow(self, topic: str, table: pa.Table, partition: int | None = None, **settings: Any) -> list[Any]:
        """The ranges of offsets that were acknowledged."""
        with self.producer(**settings) as producer:
            return list(producer.send_arrow(topic, table, partition=partition).result(TIMEOUT_S))

    def read(self, topic: str, partitions: int, count: int, how: Callable[[Consumer, int], T], **settings: Any) -> T:
        """The first records of all partitions, without a group, taken in one of the ways below."""
        with self.consumer(**settings) as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            return how(consumer, count)

    # With asyncio

    def aio_producer(self, **settings: Any) -> aio.Producer:
        return aio.Producer(bootstrap_servers=self.bootstrap, **settings)

    def aio_consumer(self, *topics: str, **settings: Any) -> aio.Consumer:
        return aio.Consumer(*topics, bootstrap_servers=self.bootstrap, **{**BRISK, **settings})

    async def aio_produce(
        self, topic: str, samples: Iterable[Sample], partition: int | None = None, **settings: Any
    ) -> list[RecordMetadata]:
        async with self.aio_producer(**settings) as producer:
            sent = [
                await producer.send(
                    topic,
                    each.value,
                    each.key,
                    headers=each.headers,
                    partition=partition,
                    timestamp_ms=each.timestamp_ms,
                )
                for each in samples
            ]
            async with asyncio.timeout(TIMEOUT_S):
                return [await each for each in sent]

    async def aio_produce_arrow(
        self, topic: str, table: pa.Table, partition: int | None = None, **settings: Any
    ) -> list[Any]:
        async with self.aio_producer(**settings) as producer, asyncio.timeout(TIMEOUT_S):
            return list(await (await producer.send_arrow(topic, table, partition=partition)))

    async def aio_read(
        self,
        topic: str,
        partitions: int,
        count: int,
        how: Callable[[aio.Consumer, int], Awaitable[T]],
        **settings: Any,
    ) -> T:
        async with self.aio_consumer(**settings) as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            return await how(consumer, count)


# Ways of reading; each gives as many records as are asked for


def iterated(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """By iteration, which waits for ever: a test whose records do not come is ended by a wakeup."""
    timer = Timer(TIMEOUT_S, consumer.wakeup)
    timer.start()
    try:
        return [record for _, record in zip(range(count), consumer, strict=False)]
    finally:
        timer.cancel()


def polled(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    patience = _Patience(count)
    while len(records) < count:
        records += consumer.poll(patience.left_s(len(records)), max_records=count - len(records))
    return records


def polled_arrow(consumer: Consumer, count: int) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    patience = _Patience(count)
    while (rows := sum(map(len, batches))) < count:
        batches.append(consumer.poll_arrow(patience.left_s(rows), max_rows=count - rows))
    return pa.Table.from_batches(batches)


async def aio_iterated(consumer: aio.Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(TIMEOUT_S):
        async for record in consumer:
            records.append(record)
            if len(records) == count:
                break
    return records


async def aio_polled(consumer: aio.Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    patience = _Patience(count)
    while len(records) < count:
        records += await consumer.poll(patience.left_s(len(records)), max_records=count - len(records))
    return records


async def aio_polled_arrow(consumer: aio.Consumer, count: int) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    patience = _Patience(count)
    while (rows := sum(map(len, batches))) < count:
        batches.append(await consumer.poll_arrow(patience.left_s(rows), max_rows=count - rows))
    return pa.Table.from_batches(batches)


class _Patience:
    """How long somebody waits for records, and what is said when they do not come."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._deadline = time.monotonic() + TIMEOUT_S

    def left_s(self, found: int) -> float:
        left_s = self._deadline - time.monotonic()
        assert left_s > 0, f"{found} of {self._count} records came"
        return left_s


# Records and samples


def as_sample(record: ConsumerRecord) -> Sample:
    return Sample(record.value, record.key, record.headers, record.timestamp_ms)


def as_table(samples: Sequence[Sample]) -> pa.Table:
    """Records as somebody who works with Arrow has them."""
    rows = [
        {
            "key": each.key,
            "value": each.value,
            "headers": [{"key": name, "value": value} for name, value in each.headers],
            "timestamp": each.timestamp_ms,
        }
        for each in samples
    ]
    return pa.Table.from_pylist(rows, schema=TABLE)


def rows_of(table: pa.Table) -> list[tuple[int, int, Sample]]:
    """Partition, offset and sample of every row."""
    return [
        (
            row["partition"],
            row["offset"],
            Sample(
                row["value"],
                row["key"],
                tuple((each["key"], each["value"]) for each in row["headers"]),
                (row["timestamp"] - _EPOCH) // _MILLISECOND,
            ),
        )
        for row in table.to_pylist()
    ]


def values(records: Iterable[ConsumerRecord]) -> list[bytes | None]:
    return [each.value for each in records]
