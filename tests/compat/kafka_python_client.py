"""kafka-python, with the few lines that its tests share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest

from tests.compat.brokers import unique
from tests.compat.samples import TIMEOUT_S, Sample

kp = pytest.importorskip("kafka", reason="kafka-python is not installed")
kp_admin = pytest.importorskip("kafka.admin", reason="kafka-python is not installed")
kp_errors = pytest.importorskip("kafka.errors", reason="kafka-python is not installed")

TIMEOUT_MS = TIMEOUT_S * 1000


class KafkaPython:
    """Clients of one broker, and a topic for each test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = kp.KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self.admin.close()

    def topic(self, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = unique("kafka-python")
        new = kp_admin.NewTopic(name, partitions, 1, topic_configs=config or {})
        self.admin.create_topics([new], wait_for_metadata=True)
        return name

    def config_of(self, topic: str) -> dict[str, Any]:
        resource = kp_admin.ConfigResource(kp_admin.ConfigResourceType.TOPIC, topic)
        found: dict[str, Any] = self.admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return found

    @contextmanager
    def producer(self, **settings: Any) -> Iterator[Any]:
        producer = kp.KafkaProducer(bootstrap_servers=self.bootstrap, **settings)
        try:
            yield producer
        finally:
            producer.close(timeout=5)

    def produce(
        self, topic: str, samples: Iterable[Sample], partition: int | None = None, **settings: Any
    ) -> list[Any]:
        """What was acknowledged, in order; the first failure is raised."""
        with self.producer(**settings) as producer:
            sent = [
                producer.send(
                    topic,
                    each.value,
                    each.key,
                    headers=list(each.headers),
                    partition=partition,
                    timestamp_ms=each.timestamp_ms,
                )
                for each in samples
            ]
            producer.flush(TIMEOUT_S)
            return [each.get(TIMEOUT_S) for each in sent]

    @contextmanager
    def consumer(self, *topics: str, group: str | None = None, **settings: Any) -> Iterator[Any]:
        consumer = kp.KafkaConsumer(
            *topics,
            **{
                "bootstrap_servers": self.bootstrap,
                "group_id": group,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "session_timeout_ms": 6000,
                "heartbeat_interval_ms": 200,
                "fetch_max_wait_ms": 100,
                "metadata_max_age_ms": 500,  # a leader that has not heard of the topic yet shares out nothing
                **settings,
            },
        )
        try:
            yield consumer
        finally:
            consumer.close(timeout_ms=5000)

    @contextmanager
    def member(self, topic: str, group: str, **settings: Any) -> Iterator[Member]:
        with self.consumer(topic, group=group, **settings) as consumer:
            member = Member(consumer)
            try:
                yield member
            finally:
                member.stop()

    def consume(self, topic: str, count: int, partition: int = 0, **settings: Any) -> list[Any]:
        """The first records of a partition, without a group."""
        with self.consumer(**settings) as consumer:
            consumer.assign([kp.TopicPartition(topic, partition)])
            consumer.seek_to_beginning()
            return polled(consumer, count)


class Member:
    """A consumer that a thread of its own polls, as an application would: a join must not wait for other members."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.values: list[bytes | None] = []
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # A leader shares out nothing of a topic that it has not heard of yet, and may leave it at that.
        for topic in self.consumer.subscription():
            self.consumer.partitions_for_topic(topic)
        while not self._stopping.is_set():
            for batch in poll(self.consumer, 100).values():
                self.values += values(batch)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    @property
    def generation(self) -> int:
        return int(self.consumer.group_metadata().generation_id)


def poll(consumer: Any, timeout_ms: int, max_records: int | None = None) -> dict[Any, list[Any]]:
    """kafka-python 3.0.12 forgets a second join that ends after the poll that began it, and its heartbeats with it: the
    next poll sees no reason to join. Here it gets one."""
    records: dict[Any, list[Any]] = consumer.poll(timeout_ms, max_records=max_records)
    coordinator = consumer._coordinator  # no other way to see it
    joining = coordinator._join_task if coordinator is not None else None
    if joining is not None and joining.is_done and not coordinator.need_rejoin():
        coordinator.request_rejoin()
    return records


def polled(consumer: Any, count: int) -> list[Any]:
    """The next records that a consumer gets, and not one more."""
    deadline = time.monotonic() + TIMEOUT_S
    records: list[Any] = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        for batch in poll(consumer, 500, count - len(records)).values():
            records.extend(batch)
    return records


def values(records: Iterable[Any]) -> list[bytes | None]:
    return [each.value for each in records]


def as_sample(record: Any) -> Sample:
    return Sample(record.value, record.key, tuple(record.headers), record.timestamp)
