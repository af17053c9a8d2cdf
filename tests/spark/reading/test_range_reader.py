"""The reader of one range, where what it reads from moves under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas import Producer, TopicPartition
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
    """Columns, and something that happens elsewhere while they are filled for the first time."""

    def __init__(self, happen: Callable[[], object]) -> None:
        self.columns = RecordColumns()
        self._happen: Callable[[], object] | None = happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.columns, name)

    def add(self, *batch: Any) -> Any:
        is_whole = self.columns.add(*batch)
        happen, self._happen = self._happen, None
        if happen is not None:
            happen()
        return is_whole


def reader_of_all(consumer: Consumer) -> RangeReader:
    reader = RangeReader(consumer, PARTITION)
    reader.begin(0, COUNT)
    return reader


def read_on(reader: RangeReader, columns: Any, timeout_s: float = 1.0) -> list[int]:
    offsets: list[int] = []
    while reader.position < COUNT:
        runs = reader.fill(columns, max_rows=1000, max_bytes=1 << 20, timeout_s=timeout_s)
        rows = columns.row_count
        assert sum(run.row_count for run in runs) == rows
        offsets += memoryview(columns.take().offset).cast("B").cast("q")[:rows]
    return offsets


@pytest.mark.parametrize("timeout_s", [1.0, 0.0])
def test_a_log_that_is_found_cut_while_rows_are_added_gives_none_twice(timeout_s: float, consumer: Consumer) -> None:
    reader = reader_of_all(consumer)
    state = consumer._consumer._subscription.state(PARTITION)
    # What the loop does when it hears that the log was cut behind what was handed out.
    columns = Disturbed(lambda: consumer._do(state.drop_fetched))
    assert read_on(reader, columns, timeout_s) == [*range(COUNT)]


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
    assert read_on(reader, RecordColumns()) == [*range(COUNT)]
    assert next(calls, None) is None
