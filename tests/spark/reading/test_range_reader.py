"""The reader of one range, where what it reads from moves under it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import Producer, TopicPartition
from barnabas.client._kernel.receiving import Chunk
from barnabas.client.consumer.range_reading import RangeReader
from barnabas.client.consumer.sync_consumer import Consumer
from barnabas.net.errors import DisconnectedError
from barnabas.records._kernel.collect import RecordColumns
from barnabas.testing import EmbeddedBroker

PARTITION = TopicPartition("clicks", 0)
COUNT = 100


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with EmbeddedBroker() as broker:
        broker.create_topic(PARTITION.topic)
        with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1000) as producer:
            for _ in range(COUNT):
                producer.send(PARTITION.topic, b"x" * 100, partition=0)
        settings = {"auto.offset.reset": "none", "max.partition.fetch.bytes": "2000", "fetch.max.wait.ms": "50"}
        with Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as consumer:
            yield consumer


class Disturbed:
    """A chunk. While it gives out rows the consumer goes back to before them, as when it finds that the log was cut."""

    def __init__(self, chunk: Chunk, consumer: Consumer) -> None:
        self._chunk = chunk
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chunk, name)

    def add_to(self, *where: Any) -> int:
        before = self._chunk.next_offset
        added = self._chunk.add_to(*where)
        if added:
            self._consumer.seek(PARTITION, before)
        return added


def reader_of_all(consumer: Consumer) -> RangeReader:
    reader = RangeReader(consumer, PARTITION)
    reader.begin(0, COUNT)
    return reader


def read_on(reader: RangeReader, timeout_s: float = 1.0) -> list[int]:
    offsets: list[int] = []
    columns = RecordColumns()
    while reader.position < COUNT:
        runs = reader.fill(columns, max_rows=1000, max_bytes=1 << 20, timeout_s=timeout_s)
        rows = columns.row_count
        assert sum(run.row_count for run in runs) == rows
        offsets += memoryview(columns.take().offset).cast("B").cast("q")[:rows]
    return offsets


@pytest.mark.parametrize("timeout_s", [1.0, 0.0])
def test_a_log_that_is_found_cut_while_rows_are_added_gives_none_twice(
    timeout_s: float, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of_all(consumer)
    next_chunk = reader._next_chunk

    def cut_once(timeout_s: float) -> Any:
        chunk = next_chunk(timeout_s)
        if chunk is None:
            return None
        monkeypatch.undo()
        return Disturbed(chunk, consumer)

    monkeypatch.setattr(reader, "_next_chunk", cut_once)
    assert read_on(reader, timeout_s) == [*range(COUNT)]


def test_limits_are_waited_for_while_a_broker_may_hold_a_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for together: behind the first answer the broker would hold the next fetch."""
    with Consumer({"bootstrap.servers": "127.0.0.1:1", "fetch.max.wait.ms": "5000"}) as consumer:
        timeouts_s: list[float] = []
        both_are_asked = asyncio.Event()

        async def told(partitions: list[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
            timeouts_s.append(timeout_s)
            if len(timeouts_s) == 2:
                both_are_asked.set()
            await asyncio.wait_for(both_are_asked.wait(), 30)
            return dict.fromkeys(partitions, 7)

        monkeypatch.setattr(consumer._consumer, "beginning_offsets", told)
        monkeypatch.setattr(consumer._consumer, "end_offsets", told)
        assert RangeReader(consumer, PARTITION).limits(1.0) == (7, 7)
        assert timeouts_s == [6.0, 6.0]


def test_a_connection_that_breaks_after_rows_leaves_them_whole(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the consumer fails, rows come with what is to be known of them, and the error afterwards, if at all."""
    reader = reader_of_all(consumer)
    next_chunk, calls = reader._next_chunk, iter([False, True])

    def breaking(timeout_s: float) -> Any:
        if next(calls, False):
            raise DisconnectedError("127.0.0.1:9092", "reset by peer")
        return next_chunk(timeout_s)

    monkeypatch.setattr(reader, "_next_chunk", breaking)
    assert read_on(reader) == [*range(COUNT)]
    assert next(calls, None) is None
