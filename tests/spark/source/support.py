"""Readers without Spark: made from options and asked in the order in which Spark would ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from barnabas import Producer
from barnabas.spark.core.options import SourceOptions
from barnabas.spark.core.positions import SparkOffset
from barnabas.spark.reading import RangePartition, ReadPlan
from barnabas.spark.streaming import StreamReader
from barnabas.spark.tasks import Tasks
from barnabas.testing import EmbeddedBroker

#: Fixtures: a topic of its own for a test, and readers that are stopped after it.
NewTopic = Callable[..., str]
Readers = Callable[..., StreamReader]


def source_options(broker: EmbeddedBroker | str, *, is_batch: object = False, **options: object) -> SourceOptions:
    address = broker if isinstance(broker, str) else broker.bootstrap_servers
    given = {"kafka.bootstrap.servers": address, "fetchOffset.retryIntervalMs": "1", **_texts(options)}
    return SourceOptions.parse(given, is_streaming=not is_batch)


def stream_reader(broker: EmbeddedBroker | str, **options: object) -> StreamReader:
    parsed = source_options(broker, **options)
    return StreamReader(parsed, Tasks(ReadPlan(client=parsed.client)), parsed.client)


def send(broker: EmbeddedBroker, topic: str, count: int, *, partition: int = 0, value: bytes = b"x") -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send(topic, value, partition=partition)


def next_batch(reader: StreamReader, start: SparkOffset) -> SparkOffset | None:
    """The end of the next batch, as its text comes back from the checkpoint; None if there is none."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return None if json.dumps(end) == json.dumps(start) else stored(end)


def planned(reader: StreamReader, start: SparkOffset, end: SparkOffset) -> list[tuple[str, int, int, int]]:
    """The ranges of a batch: topic, partition, from, until."""
    parts = reader.partitions(start, end)
    assert all(isinstance(part, RangePartition) for part in parts)
    return [
        (part.topic, part.partition, part.from_offset, part.until_offset)
        for part in parts
        if isinstance(part, RangePartition)
    ]


def stored(offset: SparkOffset) -> SparkOffset:
    """What Spark hands in after a restart."""
    read: SparkOffset = json.loads(json.dumps(offset))
    return read


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    """Dots cannot be in keywords: two underscores stand for one."""
    return {
        name.replace("__", "."): json.dumps(value) if isinstance(value, dict) else str(value)
        for name, value in options.items()
    }
